package contract

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// linked returns n devices with links of this kind between some pairs.
func linked(n int, kind gpu.LinkKind, pairs ...[2]int) []gpu.Device {
	out := devices(n, "h100-80gb", 80e9)
	link := func(from, to int) {
		out[from].Links = append(out[from].Links, gpu.Link{To: out[to].UUID, Kind: kind})
	}
	for _, p := range pairs {
		link(p[0], p[1])
		link(p[1], p[0])
	}
	return out
}

func TestNVLinkFactHoldsIfAllGPUsAreJoined(t *testing.T) {
	bridged := linked(4, gpu.LinkNVLink, [2]int{0, 1}, [2]int{2, 3})
	for _, c := range []struct {
		name    string
		devices []gpu.Device
		want    job.Truth
	}{
		{"no GPU", nil, job.No},
		{"one GPU", linked(1, ""), job.No},
		{"all joined", linked(3, gpu.LinkNVLink, [2]int{0, 1}, [2]int{0, 2}, [2]int{1, 2}), job.Yes},
		{"joined by way of others", linked(4, gpu.LinkNVLink, [2]int{0, 1}, [2]int{1, 2}, [2]int{2, 3}), job.Yes},
		{"bridges between pairs", bridged, job.No},
		{"PCIe alone", linked(2, gpu.LinkSwitch, [2]int{0, 1}), job.No},
		{"no links in the profile", linked(64, ""), job.Unknown},
		{"a link to a device that is not listed", []gpu.Device{
			{UUID: "a", Links: []gpu.Link{{To: "z", Kind: gpu.LinkNVLink}}}, {UUID: "b", Links: []gpu.Link{{To: "z", Kind: gpu.LinkNVLink}}},
		}, job.No},
	} {
		if got := FactsOf(&Profile{GPUs: c.devices}).NVLink; got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestFactsDescribeTheDevices(t *testing.T) {
	p := Profile{Name: "n", Arch: "arm64", OS: "linux", CPUs: 8, Memory: 1 << 30, Labels: map[string]string{"rack": "r1"}, GPUs: []gpu.Device{
		{UUID: "a", Class: "h100-80gb", Memory: 80e9, Compute: "9.0", Driver: "550.54.15"},
		{UUID: "b", Class: "t4", Memory: 16e9, Compute: "7.5", Driver: "simulated"},
		{UUID: "c", Class: "h100-80gb", Memory: 80e9, Compute: "9.0", Driver: "550.54.15"},
	}}
	p.Signed = map[string]string{"rack": "r1"}
	f := FactsOf(&p)
	want := "{map[rack:r1] map[rack:r1] n arm64 linux 8 1GiB 3 [{h100-80gb 80GB 9.0 550.54.15} {t4 16GB 7.5 0.0}] 0 0}"
	if got := fmt.Sprint(f); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p.GPUs = nil
	for i := range job.MaxKinds {
		p.GPUs = append(p.GPUs, gpu.Device{UUID: fmt.Sprint(i), Memory: job.Size(1+i) << 30})
	}
	if f = FactsOf(&p); len(f.Kinds) != job.MaxKinds {
		t.Errorf("%d kinds, want %v", len(f.Kinds), job.MaxKinds)
	}
	p.GPUs = append(p.GPUs, gpu.Device{UUID: "one more", Memory: 1})
	if f = FactsOf(&p); len(f.Kinds) != 0 || f.GPUs != job.MaxKinds+1 {
		t.Errorf("%d kinds of %d GPUs, want none and %v", len(f.Kinds), f.GPUs, job.MaxKinds+1)
	}
}

func TestFactOfFencing(t *testing.T) {
	for f, want := range map[job.Fencing]job.Truth{
		{}: job.Unknown, {Certain: true}: job.Unknown, {Boot: "b"}: job.No, {Certain: true, Boot: "b"}: job.Yes,
	} {
		if got := FactsOf(&Profile{Fencing: f}).Fencing; got != want {
			t.Errorf("%+v: %d, want %d", f, got, want)
		}
	}
}
