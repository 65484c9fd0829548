package worker_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

// The variables of MPS are set if MPS runs and the task has a share, and not otherwise.
func TestSharesUnderMPS(t *testing.T) {
	share := job.Resources{CPUs: 1, GPUShare: .25, GPUMemory: 10 << 30}
	mps := func(env []string) []string {
		return slices.DeleteFunc(slices.Clone(env), func(w string) bool { return !strings.HasPrefix(w, "CUDA_MPS_") })
	}
	h, s := real(t)
	if got := mps(h.run(amy, 1, attempt(1, 1), s, share).Env); len(got) != 0 {
		t.Errorf("without MPS: %v", got)
	}
	st := status(nil, nil)
	st.MPS = "/run/mps"
	h.round(st)
	want := []string{
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=25", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=10240M", "CUDA_MPS_PIPE_DIRECTORY=/run/mps",
	}
	task := h.run(amy, 2, attempt(2, 1), s, share)
	if got := mps(task.Env); !slices.Equal(got, want) || !slices.IsSorted(task.Env) {
		t.Errorf("a share under MPS: %v, want %v", got, want)
	}
	// If the task names no memory size, its share of the memory is that of the GPU.
	task = h.run(amy, 3, attempt(3, 1), s, job.Resources{CPUs: 1, GPUShare: .5})
	if got := mps(task.Env); len(got) != 3 || got[1] != "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=38146M" {
		t.Errorf("half a GPU: %v", got)
	}
	if got := mps(h.run(amy, 4, attempt(4, 1), s, gpus(1)).Env); len(got) != 0 {
		t.Errorf("a whole GPU: %v", got)
	}
}
