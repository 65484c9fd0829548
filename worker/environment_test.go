package worker_test

// The environment of a task.

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

func TestEnvironment(t *testing.T) {
	cfg := config(2)
	cfg.Inherit = map[string]string{"PATH": "/bin", "HOME": "/root", "USER": "root", "LANG": "C", "SECRET": "x", "PET_NNODES": "1"}
	h := newHost(t, cfg)
	s := h.meet(amy, 1)
	a := attempt(1, 3)
	m := start(1, a, s, gpus(2))
	x := spec(gpus(2))
	x.Name = "train"
	x.Params = map[string]string{"lr": "0.1"}
	x.Env = map[string]string{"HOME": "/home/ada", "CUDA_VISIBLE_DEVICES": "0", "MUSTER_ATTEMPT": "9"}
	m.File = file(x)
	h.says(amy, offer(1, a, gpus(2)))
	e := h.says(amy, m)
	want := []string{
		"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b", "HOME=/home/ada", "LANG=C",
		"MUSTER_ATTEMPT=3", "MUSTER_EPOCH=1.1", "MUSTER_GPUS_PER_NODE=2", "MUSTER_JOB_ID=" + string(a.Job),
		"MUSTER_JOB_NAME=train", "MUSTER_NODE_IPS=127.0.0.1", "MUSTER_NODE_RANK=0", "MUSTER_NUM_NODES=1",
		"MUSTER_PARAM_LR=0.1", "MUSTER_TASK=0", "NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b", "PATH=/bin", "USER=root",
	}
	if !slices.Equal(e.Start[0].Env, want) {
		t.Fatalf("environment\n%s\nwant\n%s", strings.Join(e.Start[0].Env, "\n"), strings.Join(want, "\n"))
	}
	if e.Start[0].Hostfile != "127.0.0.1 slots=2\n" {
		t.Fatalf("hostfile %q", e.Start[0].Hostfile)
	}
}

func TestEnvironmentWithoutGPUsHidesAll(t *testing.T) {
	h := newHost(t, config(2))
	s := h.meet(amy, 1)
	task := h.run(amy, 1, attempt(1, 1), s, job.Resources{CPUs: 1})
	for _, v := range []string{"CUDA_VISIBLE_DEVICES=", "NVIDIA_VISIBLE_DEVICES="} {
		if !slices.Contains(task.Env, v) {
			t.Errorf("%q is missing in %v", v, task.Env)
		}
	}
}
