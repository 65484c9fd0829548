package gputest

import (
	"errors"
	"testing"

	"github.com/musterhq/muster/gpu"
)

func TestFakeDriverFulfilsContract(t *testing.T) {
	eight := Devices(8, "GPU", "NVIDIA H100 80GB HBM3", 80<<30)
	for i := range eight {
		eight[i].Nodes = []gpu.Node{{Path: "/dev/test", Major: Major, Minor: uint32(i)}, {Path: "/dev/testctl", Major: Major, Minor: 255}}
	}
	TestDriver(t, New(eight...))
	TestDriver(t, New())
}

func TestDriverReportsWhatTestSets(t *testing.T) {
	d := New(Devices(2, "GPU", "Tesla T4", 15<<30)...)
	d.SetStatus(gpu.Status{UUID: "GPU-1", Health: gpu.Unhealthy, Detail: "Xid 79"})
	s, err := d.Status(t.Context())
	if err != nil || s[0].Health != gpu.Healthy || s[1].Detail != "Xid 79" {
		t.Errorf(`status %v, %v, want no error, [0].Health %v and [1].Detail "Xid 79"`, s, err, gpu.Healthy)
	}
	faults, err := d.Faults(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Inject(gpu.Fault{UUID: "GPU-1", Code: 79}); err != nil {
		t.Fatal(err)
	}
	if f := <-faults; f.Code != 79 {
		t.Errorf("fault %v, want Code 79", f)
	}
	broken := errors.New("broken")
	d.Fail(broken)
	if _, err := d.List(t.Context()); !errors.Is(err, broken) {
		t.Errorf("List: %v, want broken", err)
	}
	d.Fail(nil)
	d.Set()
	if devices, err := d.List(t.Context()); err != nil || len(devices) != 0 {
		t.Errorf("List: %v, %v, want no error and none", devices, err)
	}
}
