package api

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// wantFields returns the JSON fields of v. The test fails if one of the names is missing.
func wantFields(t *testing.T, v any, names string) map[string]any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	for n := range strings.FieldsSeq(names) {
		if _, ok := m[n]; !ok {
			t.Errorf("%T: got no field %s, want it: %s", v, n, text)
		}
	}
	return m
}

func TestDocumentsHaveAllFields(t *testing.T) {
	j := job.Job{
		ID: job.NewID(1, 2), User: "amy", Spec: job.DefaultSpec(), Submitted: time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600)),
		Tasks: []job.Task{{State: job.Pending, Reason: job.Reason{Word: job.ReasonResources, Detail: "full"}}},
	}
	j.Spec.Resources.Memory, j.Spec.TimeLimit = 8<<30, job.Duration(90*time.Minute)
	m := wantFields(t, JobDocument(whole(j), 3), "schema id name user state reason exit_code priority nodes array submitted_at started_at ended_at owner tasks spec copies task_count counts exit_status")
	if m["submitted_at"] != "2026-01-02T02:04:05Z" || m["exit_code"] != nil || m["started_at"] != nil || m["reason"] != "Resources" || m["time_limit"] != 5400.0 ||
		m["resources"].(map[string]any)["memory"] != float64(8<<30) || m["copies"] != 3.0 {
		t.Errorf("job: got %v, want its values in the units of the API", m)
	}
	wantFields(t, JobDocument(j, 1).Tasks[0], "schema job task state reason node_id node attempt exit_code signal gpus started_at ended_at")
	info := NodeInfo{
		Profile: contract.Profile{Peer: "p", Name: "n", CPUs: 4, Memory: 64 << 30, GPUs: []gpu.Device{{UUID: "u", Memory: 80 << 30, Simulated: true}, {UUID: "v"}}},
		Free:    contract.Free{CPUs: 2, Memory: 1 << 30, GPUs: []contract.FreeGPU{{UUID: "u", Milli: 500}, {UUID: "v", Milli: 1000}}}, State: NodeReady,
		Status: []gpu.Status{{UUID: "u", MemoryUsed: 5, Health: gpu.Healthy}}, Holders: map[string][]job.ID{"u": {j.ID}},
	}
	n := NodeDocument(info)
	m = wantFields(t, n, "schema id name state labels addrs version cpus memory free gpus")
	if m["memory"] != float64(64<<30) || m["free"].(map[string]any)["gpus"] != 1.0 {
		t.Errorf("node: got %v, want memory in bytes and one free GPU", m)
	}
	m = wantFields(t, n.GPUs[0], "schema node uuid index model memory memory_used utilization health simulated job")
	if m["job"] != string(j.ID) || m["memory_used"] != 5.0 || m["simulated"] != true || m["free"] != 0.5 {
		t.Errorf("gpu: got %v, want the job, the memory and the free half", m)
	}
	if n.GPUs[1].Health != gpu.Unknown || n.GPUs[1].Job != "" || n.GPUs[1].Utilization != -1 {
		t.Errorf("a GPU without status: got %+v, want unknown values", n.GPUs[1])
	}
	wantFields(t, Invitation{}, "bootstrap token cluster expires_at")
	m = wantFields(t, Listing[Job]{Schema: SchemaJobs, Items: []Job{}, Partial: []string{}}, "schema items partial")
	if m["items"] == nil || m["partial"] == nil {
		t.Errorf("an empty listing: got %v, want empty lists", m)
	}
}

func TestExitCodeFollowsFromTheState(t *testing.T) {
	base := job.Job{ID: job.NewID(1, 1), Spec: job.DefaultSpec(), Tasks: []job.Task{{State: job.Running, Attempt: 1}}}
	of := func(e job.Exit) job.Job { return ended(base, e) }
	never := base
	never.Tasks = []job.Task{{State: job.Cancelled}}
	several := base
	several.Tasks = append(of(job.Exit{State: job.Succeeded}).Tasks, of(job.Exit{State: job.Failed, Code: 3}).Tasks...)
	for name, c := range map[string]struct {
		j    job.Job
		code int
		end  bool
	}{
		"still running": {base, 0, false},
		"succeeded":     {of(job.Exit{State: job.Succeeded}), 0, true},
		"own code":      {of(job.Exit{State: job.Failed, Code: 7}), 7, true},
		"no such file":  {of(job.Exit{State: job.Failed, Code: 127}), 127, true},
		"signal":        {of(job.Exit{State: job.Failed, Code: 128 + 9, Signal: 9}), 137, true},
		"time limit":    {of(job.Exit{State: job.Timeout, Code: 128 + 15, Signal: 15}), 124, true},
		"memory":        {of(job.Exit{State: job.OutOfMemory, Code: 137, Signal: 9}), 137, true},
		"failed with 0": {of(job.Exit{State: job.Failed, Code: 0}), 125, true},
		"cancelled":     {of(job.Exit{State: job.Cancelled, Code: 143, Signal: 15}), 143, true},
		"never started": {never, 125, true},
		"node lost":     {of(job.Exit{State: job.NodeFail}), 125, true},
		"several tasks": {several, 3, true},
	} {
		code, end := JobDocument(whole(c.j), 1).Exit()
		if code != c.code || end != c.end {
			t.Errorf("%s: got exit %d, %v; want %d, %v", name, code, end, c.code, c.end)
		}
	}
}

// In the document of a job that has ended, the field reason holds the sentence. For a waiting job it holds the stable
// word.
func TestEndedJobHasASentenceAsReason(t *testing.T) {
	j := job.Job{Tasks: []job.Task{{State: job.Failed, Reason: job.Reason{Word: "Exit", Detail: "no such program: xyz"}}}}
	if d := JobDocument(j, 1); d.Reason != "no such program: xyz" {
		t.Errorf("reason: got %q, want %q", d.Reason, "no such program: xyz")
	}
}
