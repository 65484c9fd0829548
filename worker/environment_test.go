package worker_test

// The environment of a task.

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/environment"
)

func TestEnvironmentOfATask(t *testing.T) {
	cfg := config(2)
	cfg.Inherit = map[string]string{"PATH": "/bin", "HOME": "/root", "USER": "root", "LANG": "C", "SECRET": "x", "PET_NNODES": "1"}
	h := newHost(t, cfg)
	s := h.meet(amy, 1)
	a := attempt(1, 3)
	m := start(1, a, s, gpus(2))
	x := spec(gpus(2))
	x.Name = "train"
	x.Params = map[string]string{"lr": "0.1"}
	x.Env = map[string]string{"HOME": "/home/ada", "MUSTER_ATTEMPT": "9"}
	m.File = file(x)
	h.says(amy, offer(1, a, gpus(2)))
	e := h.says(amy, m)
	want := []string{
		"HOME=/home/ada", "LANG=C",
		"MUSTER_ATTEMPT=3", "MUSTER_EPOCH=1.1", "MUSTER_GPUS_PER_NODE=2", "MUSTER_JOB_ID=" + string(a.Job),
		"MUSTER_JOB_NAME=train", "MUSTER_NODE_IPS=127.0.0.1", "MUSTER_NODE_RANK=0", "MUSTER_NUM_NODES=1",
		"MUSTER_PARAM_LR=0.1", "MUSTER_TASK=0", "PATH=/bin", "USER=root",
	}
	if !slices.Equal(e.Start[0].Env, want) {
		t.Fatalf("environment\n%s\nwant\n%s", strings.Join(e.Start[0].Env, "\n"), strings.Join(want, "\n"))
	}
	if e.Start[0].Hostfile != "127.0.0.1 slots=1\n" {
		t.Fatalf(`hostfile %q, want "127.0.0.1 slots=1\n"`, e.Start[0].Hostfile)
	}
}

// All members of a gang find the same addresses and the same port, each with its own rank. The variables of a gang
// differ from those of an array, and an array of gangs has both.
func TestMembersOfAGangFindTheSameAddresses(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		rec := contract.Record{
			Attempt: attempt(1, 1), Need: gpus(4), File: file(spec(gpus(4))), Element: contract.Element{Rank: 1, Array: true, Index: 5, Entry: "x"},
			Gang: &contract.Gang{Port: 20007, Members: []contract.Member{{Address: "10.0.0.1"}, {Address: "10.0.0.2"}, {Address: "10.0.0.3"}}},
		}
		rec.Attempt.Task = 7
		ips := []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}
		if v6 {
			for i := range ips {
				ips[i] = "2001:db8::" + ips[i][len(ips[i])-1:]
				rec.Gang.Members[i].Address = ips[i]
			}
		}
		env := environment.Of(nil, config(4).IP, rec)
		for _, want := range []string{
			"MUSTER_NODE_RANK=1", "MUSTER_NUM_NODES=3", "MUSTER_NODE_IPS=" + strings.Join(ips, "\n"), "MUSTER_GPUS_PER_NODE=4",
			"MASTER_ADDR=" + ips[0], "MASTER_PORT=20007", "NNODES=3", "NODE_RANK=1",
			"PET_NNODES=3", "PET_NODE_RANK=1", "PET_NPROC_PER_NODE=4", "PET_MASTER_ADDR=" + ips[0], "PET_MASTER_PORT=20007",
			"MUSTER_ARRAY_INDEX=5", "MUSTER_TASK=16", "MUSTER_ENTRY=x",
		} {
			if !slices.Contains(env, want) {
				t.Errorf("%q is missing in\n%s", want, strings.Join(env, "\n"))
			}
		}
		rec.File = edited(rec.File, func(s *job.Spec) { s.TasksPerNode = 2 })
		if env := environment.Of(nil, config(4).IP, rec); !slices.Contains(env, "PET_NPROC_PER_NODE=2") {
			t.Errorf("with two tasks a node PET_NPROC_PER_NODE=2 is missing in\n%s", strings.Join(env, "\n"))
		}
	}
}

// The host file of a gang has a line for each member, with as many slots as it has tasks.
func TestHostfileHasALineForEachMember(t *testing.T) {
	h := newGangHost(t, 0)
	for i, want := range []string{"10.0.0.1 slots=1\n10.0.0.9 slots=1\n10.0.0.3 slots=1\n", "10.0.0.1 slots=4\n10.0.0.9 slots=4\n10.0.0.3 slots=4\n"} {
		m := member(uint64(i+1), 1, cpu)
		h.says(amy, m)
		s := startOf(m, one[contract.Commit](h, amy))
		s.File = edited(s.File, func(s *job.Spec) { s.TasksPerNode = i * 4 })
		if e := h.says(amy, s); len(e.Start) != 1 || e.Start[0].Hostfile != want {
			t.Errorf("started %+v, want host file %q", e.Start, want)
		}
	}
}

// A script with #SBATCH lines finds the variables of Slurm with the same meaning as ours, unless the user sets them.
func TestScriptsWithSBATCHLinesFindTheVariablesOfSlurm(t *testing.T) {
	x := spec(job.Resources{CPUs: 8, Memory: 4 << 30})
	x.Array, x.Nodes, x.TasksPerNode, x.SubmitDir, x.SlurmEnv = "1-9:2,20%2", 2, 4, "/home/ada", true
	x.Env = map[string]string{"SLURM_NTASKS": "mine"}
	rec := contract.Record{Attempt: attempt(1, 3), File: file(x), Element: contract.Element{Rank: 1, Array: true, Index: 5}}
	rec.Gang, rec.Project = &contract.Gang{Members: []contract.Member{{Address: "10.0.0.1"}, {Address: "10.0.0.2"}}}, "vision"
	id := string(rec.Attempt.Job)
	want := []string{
		"SLURM_ARRAY_JOB_ID=" + id, "SLURM_ARRAY_TASK_COUNT=6", "SLURM_ARRAY_TASK_ID=5", "SLURM_ARRAY_TASK_MAX=20", "SLURM_ARRAY_TASK_MIN=1", "SLURM_CPUS_ON_NODE=8", "SLURM_CPUS_PER_TASK=2", "SLURM_GPUS_ON_NODE=0",
		"SLURM_JOBID=" + id, "SLURM_JOB_ACCOUNT=vision", "SLURM_JOB_ID=" + id, "SLURM_JOB_NAME=", "SLURM_JOB_NUM_NODES=2", "SLURM_MEM_PER_NODE=4096", "SLURM_NNODES=2",
		"SLURM_NODEID=1", "SLURM_NPROCS=8", "SLURM_NTASKS=mine", "SLURM_NTASKS_PER_NODE=4", "SLURM_RESTART_COUNT=2", "SLURM_SUBMIT_DIR=/home/ada",
	}
	slurm := func(env []string) []string {
		return slices.DeleteFunc(env, func(v string) bool { return !strings.HasPrefix(v, "SLURM") })
	}
	if got := slurm(environment.Of(nil, config(4).IP, rec)); !slices.Equal(got, want) {
		t.Errorf("environment\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, v := range want {
		if name, _, _ := strings.Cut(v, "="); !job.IsSlurmEnv(name) {
			t.Errorf("%s is not a known variable of Slurm", name)
		}
	}
	for array, count := range map[string]bool{"7": true, "0-9:3": true, strings.Repeat("1,", 200) + "1": false} { // a long one is not sent to each node
		x.Array = array
		rec.File = file(x)
		if got := slices.ContainsFunc(environment.Of(nil, config(4).IP, rec), func(v string) bool { return strings.HasPrefix(v, "SLURM_ARRAY_TASK_COUNT=") }); got != count {
			t.Errorf("array %.20s: its size is told: %t, want %v", array, got, count)
		}
	}
	x.SlurmEnv, x.Env = false, nil
	rec.File = file(x)
	if s := rec.File.Spec(); s.Array != "" {
		t.Errorf("the file of tasks without these variables has the array %q, want none", s.Array)
	}
	if got := slurm(environment.Of(nil, config(4).IP, rec)); len(got) > 0 {
		t.Errorf("a job that does not ask for them has %q, want none", got)
	}
	alone := job.SlurmEnv(job.Spec{Exclusive: true}, map[string]string{"MUSTER_ATTEMPT": "1", "MUSTER_JOB_ID": id})
	for _, name := range []string{"SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_RESTART_COUNT", "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE"} {
		if v, is := alone[name]; is {
			t.Errorf("%s=%s in a job that does not ask for it", name, v)
		}
	}
}
