package nvidia

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
)

func TestSeverityOfXids(t *testing.T) {
	now := time.Unix(1, 0)
	want := map[uint64]gpu.Severity{}
	for _, n := range []uint64{13, 31, 43, 45, 68} {
		want[n] = gpu.SeverityProgram
	}
	for _, n := range []uint64{1, 32, 92, 154, 157, 1 << 40} {
		want[n] = gpu.SeverityUnknown
	}
	for _, n := range []uint64{46, 48, 62, 63, 64, 74, 79, 94, 95, 109, 110, 119, 120, 136, 140, 143, 144, 145, 146, 147, 148, 149, 150, 155, 156, 158} {
		want[n] = gpu.SeverityDevice
	}
	for n, severity := range want {
		f := Xid("GPU-a", n, now)
		if f.UUID != "GPU-a" || f.Code != n || f.Severity != severity || f.At != now || !strings.HasPrefix(f.Text, fmt.Sprintf("xid %d", n)) {
			t.Errorf("%+v, want severity %q", f, severity)
		}
		if (severity == gpu.SeverityDevice) != strings.HasSuffix(f.Text, ")") {
			t.Errorf("xid %d has the text %q, want a reason exactly if it is a fault of the device", n, f.Text)
		}
	}
	if f := Xid("", 79, now); f.Text != "xid 79 (fallen off the bus)" {
		t.Errorf(`%q, want "xid 79 (fallen off the bus)"`, f.Text)
	}
}

// host makes the files in which a kernel lists the numbers of device files: with the driver, and with the modules that
// are loaded when they are first needed.
func host(t *testing.T, driver, all bool) string {
	t.Helper()
	root := t.TempDir()
	devices := "Character devices:\n  1 mem\n136 pts\n"
	if driver {
		devices += "195 nvidia\n195 nvidiactl\n507 nvidia-caps\n510 nvidia-nvswitch\n"
	}
	if all {
		devices += "505 nvidia-caps-imex-channels\n508 nvidia-uvm\n"
	}
	devices += "\nBlock devices:\n  7 loop\n259 nvidia-block\n"
	minors := "config 1\nmonitor 2\n"
	for i, n := 0, 3; i < 2; i++ {
		for gi := range 15 {
			minors += fmt.Sprintf("gpu%d/gi%d/access %d\n", i, gi, n)
			n++
			for ci := range 8 {
				minors += fmt.Sprintf("gpu%d/gi%d/ci%d/access %d\n", i, gi, ci, n)
				n++
			}
		}
	}
	for path, text := range map[string]string{"proc/devices": devices, "proc/driver/nvidia-caps/mig-minors": minors} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// card returns a GPU with its device files.
func card(root string, minor int) gpu.Device {
	return gpu.Device{UUID: fmt.Sprintf("GPU-%d", minor), Nodes: NewKernel(root).Nodes(minor)}
}

func instance(t *testing.T, root string, minor, gi, ci int) gpu.Device {
	t.Helper()
	d := card(root, minor)
	more, err := NewKernel(root).Capabilities(minor, gi, ci)
	if err != nil {
		t.Fatal(err)
	}
	d.Nodes, d.Parent, d.UUID = append(d.Nodes, more...), d.UUID, fmt.Sprintf("MIG-%d-%d-%d", minor, gi, ci)
	return d
}

func TestDeviceFilesOfGPUs(t *testing.T) {
	root := host(t, true, true)
	want := []gpu.Node{
		{Path: "/dev/nvidia3", Major: 195, Minor: 3},
		{Path: "/dev/nvidiactl", Major: 195, Minor: 255},
		{Path: "/dev/nvidia-modeset", Major: 195, Minor: 254},
		{Path: "/dev/nvidia-uvm", Major: 508},
		{Path: "/dev/nvidia-uvm-tools", Major: 508, Minor: 1},
	}
	if got := NewKernel(root).Nodes(3); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := NewKernel(host(t, true, false)).Nodes(3); !slices.Equal(got, want[:3]) {
		t.Errorf("before the module for memory is loaded: %v, want %v", got, want[:3])
	}
	want = []gpu.Node{{Path: "/dev/nvidia-caps/nvidia-cap147", Major: 507, Minor: 147}, {Path: "/dev/nvidia-caps/nvidia-cap149", Major: 507, Minor: 149}}
	if got, err := NewKernel(root).Capabilities(1, 1, 1); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if got, err := NewKernel(root).Capabilities(2, 0, 0); err == nil || !strings.Contains(err.Error(), "gpu2/gi0/access") {
		t.Errorf("an instance that the kernel does not know: %v, %v, want an error that names its file", got, err)
	}
	if got, err := NewKernel(host(t, false, false)).Capabilities(0, 0, 0); err != nil || got != nil {
		t.Errorf("a driver without such files: %v, %v, want none and no error", got, err)
	}
}

// A task may open the files of its own devices, and no other file of the driver, by number: whether it exists or not.
func TestDeviceFilesOfOthersAreClosed(t *testing.T) {
	root := host(t, true, true)
	none := []gpu.Closed{{Major: 195, Minors: 256}, {Major: 505, Minors: 256}, {Major: 507, Minors: 8192}, {Major: 508, Minors: 256}, {Major: 510, Minors: 256}}
	own := func(gpus, caps []uint32) []gpu.Closed {
		return []gpu.Closed{{Major: 195, Minors: 256, Open: gpus}, {Major: 507, Minors: 8192, Open: caps}, {Major: 510, Minors: 256}}
	}
	for name, c := range map[string]struct {
		devices []gpu.Device
		want    []gpu.Closed
	}{
		"no GPU":                 {nil, none},
		"a simulated GPU":        {[]gpu.Device{{UUID: "GPU-sim-0", Simulated: true}}, none},
		"a GPU that is gone":     {[]gpu.Device{{UUID: "GPU-9", Nodes: []gpu.Node{}}}, own(nil, nil)},
		"a GPU":                  {[]gpu.Device{card(root, 1)}, own([]uint32{1, 254, 255}, nil)},
		"two GPUs":               {[]gpu.Device{card(root, 7), card(root, 0)}, own([]uint32{0, 7, 254, 255}, nil)},
		"an instance":            {[]gpu.Device{instance(t, root, 0, 2, 0)}, own([]uint32{0, 254, 255}, []uint32{21, 22})},
		"two instances of a GPU": {[]gpu.Device{instance(t, root, 0, 2, 0), instance(t, root, 0, 2, 1)}, own([]uint32{0, 254, 255}, []uint32{21, 22, 23})},
		"a GPU without numbers":  {[]gpu.Device{{UUID: "GPU-wsl"}}, nil},
	} {
		got := NewKernel(root).Grant(c.devices).Closed
		if !slices.EqualFunc(got, c.want, func(a, b gpu.Closed) bool {
			return a.Major == b.Major && a.Minors == b.Minors && slices.Equal(a.Open, b.Open)
		}) {
			t.Errorf("%s: %v\nwant %v", name, got, c.want)
		}
	}
	// Before the driver is loaded, the GPUs that it will have are closed to tasks.
	if got := NewKernel(host(t, false, false)).Grant(nil).Closed; len(got) != 1 || got[0].Major != 195 || len(got[0].Open) > 0 {
		t.Errorf("without a driver: %v, want 1 of them, [0].Major 195 and no [0].Open", got)
	}
	if got := NewKernel(filepath.Join(root, "nothing")).Grant(nil).Closed; len(got) != 1 || got[0].Major != 195 {
		t.Errorf("without /proc: %v, want 1 of them and [0].Major 195", got)
	}
}

func TestVariablesNameTheGPUs(t *testing.T) {
	for want, devices := range map[string][]gpu.Device{
		"": nil, "GPU-a,MIG-b": {{UUID: "GPU-a"}, {UUID: "MIG-b"}}, "GPU-sim-0": {{UUID: "GPU-sim-0", Simulated: true}},
	} {
		g := NewKernel(t.TempDir()).Grant(devices)
		for name, value := range map[string]string{"CUDA_VISIBLE_DEVICES": want, "NVIDIA_VISIBLE_DEVICES": want, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"} {
			if got, set := g.Env[name]; !set || got != value {
				t.Errorf("%s is %q (%t), want %q", name, got, set, value)
			}
		}
		hardware := want == "GPU-a,MIG-b"
		if e := g.Engine; (len(e.IDs) == 2) != hardware || (len(e.CDI) == 2) != hardware || (e.Driver == "nvidia") != hardware {
			t.Errorf("%q: a container gets %+v", want, e)
		}
		if hardware && g.Engine.CDI[1] != "nvidia.com/gpu=MIG-b" {
			t.Errorf("CDI names %v, want nvidia.com/gpu=MIG-b second", g.Engine.CDI)
		}
	}
}
