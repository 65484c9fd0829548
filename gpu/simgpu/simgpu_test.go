package simgpu

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
	"github.com/musterhq/muster/job"
)

func TestSimulatedDriverFulfilsContract(t *testing.T) {
	for _, spec := range []string{"sim:8xH100-80GB", "sim:16xB200", "sim:4xH100-80GB,2xT4-16GB", "sim:8xL40S", "sim:T4", "sim:2xMI300X-192GB", "sim:64xA100-80GB"} {
		t.Run(spec, func(t *testing.T) {
			d, err := Parse(spec, "host")
			if err != nil {
				t.Fatal(err)
			}
			gputest.TestDriver(t, d)
		})
	}
}

func list(t *testing.T, spec, seed string) []gpu.Device {
	t.Helper()
	d, err := Parse(spec, seed)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return devices
}

func TestSpecsAreParsed(t *testing.T) {
	for spec, want := range map[string]string{
		"sim:2xH100-80GB":            "h100-80gb h100-80gb",
		"sim:h200":                   "h200-141gb",
		"sim:1xT4,1xA100-40GB":       "t4-16gb a100-40gb",
		"sim: T4-16GB , L4":          "t4-16gb l4-24gb",
		"sim:RTX 4090":               "rtx4090-24gb",
		"sim:2xRTX4090-24GB":         "rtx4090-24gb rtx4090-24gb",
		"sim:MI300X-192GB":           "mi300x-192gb",
		"sim:1xH100-80GiB,V100-32gb": "h100-80gb v100-32gb",
	} {
		var got []string
		for _, d := range list(t, spec, "host") {
			got = append(got, d.Class)
			if !d.Simulated || !strings.HasPrefix(d.UUID, "GPU-sim-") || !strings.Contains(d.Model, "Simulated") {
				t.Errorf("%s: %+v does not look simulated", spec, d)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", spec, got, want)
		}
	}
	for spec, word := range map[string]string{
		"": "write it like", "sim:": "write it like", "8xH100": "write it like", "sim:0xH100": "want 1 to 64", "sim:65xH100": "want 1 to 64",
		"sim:60xH100,5xT4": "want 1 to 64", "sim:999999xT4": "want 1 to 64", "sim:9999999xT4": "write it like", "sim:H100-0GB": "without memory",
		"sim:Foo": "memory of a", "sim:2xH100-80": "write it like", "sim:H100,": "write it like", "sim:-1xH100": "write it like",
		"sim:NVIDIA-80GB": "not a model name", "sim:" + strings.Repeat("T4,", 1000): "write it like",
	} {
		if _, err := Parse(spec, "host"); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("Parse(%.40q): %v, want %q", spec, err, word)
		}
	}
}

func TestUUIDsSurviveARestart(t *testing.T) {
	a, again, other := list(t, "sim:2xH100", "amy"), list(t, "sim:2xH100", "amy"), list(t, "sim:2xH100", "bob")
	if a[0].UUID != again[0].UUID || a[1].UUID != again[1].UUID {
		t.Error("the UUID differs after a restart")
	}
	if a[0].UUID == other[0].UUID || a[0].UUID == a[1].UUID {
		t.Error("two devices have the same UUID")
	}
}

func TestSimulatedLinks(t *testing.T) {
	mixed := list(t, "sim:4xH100-80GB,2xT4-16GB", "host")
	for _, l := range mixed[0].Links {
		nv := slices.ContainsFunc(mixed[:4], func(d gpu.Device) bool { return d.UUID == l.To })
		if nv != (l.Kind == gpu.LinkNVLink) {
			t.Errorf("H100 to %s: %s, want NVLink to another H100 only", l.To, l.Kind)
		}
	}
	kinds := map[gpu.LinkKind]int{}
	for _, l := range list(t, "sim:8xL40S", "host")[0].Links {
		kinds[l.Kind]++
	}
	if fmt.Sprint(kinds) != "map[bridge:2 switch:1 system:4]" {
		t.Errorf("eight cards over two sockets: %v, want 2 bridge, 1 switch and 4 system", kinds)
	}
	p, err := gpu.NewPool(mixed)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := p.Choose(job.Resources{GPUs: 2, GPUModel: "H100"}); !slices.Equal(got, []string{mixed[0].UUID, mixed[1].UUID}) {
		t.Errorf("chose %v, want %v", got, []string{mixed[0].UUID, mixed[1].UUID})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("sim:4xH100-80GB,2xT4-16GB")
	f.Fuzz(func(t *testing.T, spec string) {
		if d, err := Parse(spec, "host"); err == nil {
			if _, err := gpu.NewPool(d.devices); err != nil || len(d.devices) > maxDevices {
				t.Errorf("Parse(%q): %d devices, %v, want no error and at most %v", spec, len(d.devices), err, maxDevices)
			}
		}
	})
}

func TestFaultScriptIsCarriedOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faults")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := Parse("sim:2xH100?faults="+path, "host")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	faults, err := d.Faults(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, "9 xid 1\nnonsense\n1 unhealthy fell over\n0 ecc 3\n0 foreign 10GiB\n1 xid 79\n")
	f.Close()
	got := <-faults // all lines before it have been carried out
	all, err := d.Status(t.Context())
	if err != nil || got.UUID != all[1].UUID || got.Code != 79 {
		t.Fatalf("fault %+v, %v, want no error, UUID %v and Code 79", got, err, all[1].UUID)
	}
	if s := all[1]; s.Health != gpu.Unhealthy || s.Detail != "fell over (simulated)" || s.Recovery != gpu.RecoveryReset {
		t.Errorf(`status %+v, want Health %v, Detail "fell over (simulated)" and Recovery %v`, s, gpu.Unhealthy, gpu.RecoveryReset)
	}
	if s := all[0]; s.ECC != 3 || s.MemoryUsed != 10<<30 || len(s.Processes) != 1 || s.Health != gpu.Healthy {
		t.Errorf("status %+v, want the values of the script", s)
	}
	stop()
	if _, open := <-faults; open {
		t.Error("got a fault after the end")
	}
	gputest.TestDriver(t, d)
}
