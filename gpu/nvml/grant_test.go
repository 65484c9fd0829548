package nvml

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/gpu/gputest"
	"github.com/musterhq/muster/job"
)

// runMPS makes MPS run at a directory, and returns the directory.
func runMPS(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", dir)
	if err := os.WriteFile(filepath.Join(dir, mpsPIDFile), fmt.Appendf(nil, "%d\n", os.Getpid()), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The variables of MPS are set if MPS runs and the task has a share of a GPU, and not otherwise.
func TestSharesHaveTheVariablesOfMPS(t *testing.T) {
	d, _ := stage(t, &play{})
	whole := gputest.Devices(1, "GPU", "NVIDIA H100 80GB HBM3", 80e9)[0]
	mig := whole
	mig.Parent = "GPU-card"
	share := job.Resources{CPUs: 1, GPUShare: .25, GPUMemory: 10 << 30}
	limits := func(need job.Resources, devices ...gpu.Device) (percent, memory, pipe string) {
		env := d.Grant(devices, need).Env
		return env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], env["CUDA_MPS_PIPE_DIRECTORY"]
	}
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", t.TempDir())
	if percent, memory, pipe := limits(share, whole); percent+memory+pipe != "" {
		t.Errorf("without MPS: %q %q %q, want none", percent, memory, pipe)
	}
	if shared := d.Grant([]gpu.Device{whole}, share).Shared; shared != nil {
		t.Errorf("shared without MPS: %v, want nothing", shared)
	}
	dir := runMPS(t)
	if percent, memory, pipe := limits(share, whole); percent != "25" || memory != "0=10240M" || pipe != dir {
		t.Errorf(`a share under MPS: %q %q %q, want "25", "0=10240M" and %v`, percent, memory, pipe, dir)
	}
	// If the task names no memory size, its share of the memory is that of the GPU.
	if percent, memory, _ := limits(job.Resources{CPUs: 1, GPUShare: .5}, whole); percent != "50" || memory != "0=38146M" {
		t.Errorf(`half a GPU: %q %q, want "50" and "0=38146M"`, percent, memory)
	}
	if mounts := d.Grant([]gpu.Device{whole}, share).Engine.Mounts; !slices.Equal(mounts, []string{dir, "/dev/shm"}) {
		t.Errorf("a container with a share gets %v, want %v", mounts, []string{dir, "/dev/shm"})
	}
	for name, c := range map[string]struct {
		need    job.Resources
		devices []gpu.Device
	}{
		"a whole GPU":       {job.Resources{GPUs: 1}, []gpu.Device{whole}},
		"a MIG instance":    {share, []gpu.Device{mig}},
		"no GPU":            {job.Resources{CPUs: 1}, nil},
		"two GPUs":          {job.Resources{GPUs: 2}, []gpu.Device{whole, mig}},
		"a simulated share": {share, []gpu.Device{{UUID: "GPU-sim-0", Simulated: true}}},
	} {
		want := []string{dir, "/dev/shm"} // programs meet the server there, including those with a whole GPU
		if name == "no GPU" || name == "a simulated share" {
			want = nil
		}
		if shared := d.Grant(c.devices, c.need).Shared; !slices.Equal(shared, want) {
			t.Errorf("%s: shared with MPS: %v, want %v", name, shared, want)
		}
		if percent, memory, pipe := limits(c.need, c.devices...); percent+memory+pipe != "" {
			t.Errorf("%s: %q %q %q, want none", name, percent, memory, pipe)
		}
		if mounts := d.Grant(c.devices, c.need).Engine.Mounts; mounts != nil {
			t.Errorf("%s: a container gets %v, want nothing", name, mounts)
		}
	}
}

// The memory of a share is bounded whether MPS runs or not. A whole GPU, a MIG instance and a simulated share have no
// such bound.
func TestMemoryOfASharedGPUIsBounded(t *testing.T) {
	d, _ := stage(t, &play{})
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", t.TempDir())
	whole := gputest.Devices(1, "GPU", "NVIDIA H100 80GB HBM3", 80e9)[0]
	whole.PCI = "00000000:1B:00.0"
	mig, simulated, unknown := whole, whole, whole
	mig.Parent, simulated.Simulated, unknown.PCI = "GPU-card", true, ""
	share := job.Resources{CPUs: 1, GPUShare: .25, GPUMemory: 10 << 30}
	want := []gpu.MemoryLimit{{PCI: "00000000:1B:00.0", Bytes: 10 << 30}}
	if got := d.Grant([]gpu.Device{whole}, share).Memory; !slices.Equal(got, want) {
		t.Errorf("a share: %v, want %v", got, want)
	}
	runMPS(t)
	if got := d.Grant([]gpu.Device{whole}, share).Memory; !slices.Equal(got, want) {
		t.Errorf("a share under MPS: %v, want %v", got, want)
	}
	for name, got := range map[string]gpu.Grant{
		"a whole GPU": d.Grant([]gpu.Device{whole}, job.Resources{GPUs: 1}), "a MIG instance": d.Grant([]gpu.Device{mig}, share),
		"a simulated share": d.Grant([]gpu.Device{simulated}, share), "a GPU without an address": d.Grant([]gpu.Device{unknown}, share), "no GPU": d.Grant(nil, job.Resources{CPUs: 1}),
	} {
		if got.Memory != nil {
			t.Errorf("%s: %v, want no bound", name, got.Memory)
		}
	}
}
