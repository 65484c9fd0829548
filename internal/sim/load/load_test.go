package load

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

const (
	machineHeader = "sn,cpu_milli,memory_mib,gpu,model\n"
	requestHeader = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
	jobHeader     = "job,submit_s,duration_s,num_gpu,gpu_milli,cpu_milli,memory_mib,gpu_spec,class,priority\n"
)

// four is a cluster of four machines.
func four(t *testing.T) []Machine {
	t.Helper()
	all, err := ReadMachines("m.csv", strings.NewReader(machineHeader+"a,96000,524288,8,G2\nb,96000,524288,8,G2\nc,64000,262144,2,T4\nd,64000,262144,0,\n"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func readJobs(t *testing.T, text string, o Options) ([]Job, []string) {
	t.Helper()
	jobs, notes, err := ReadJobs("j.csv", strings.NewReader(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return jobs, notes
}

func TestMachinesAreRead(t *testing.T) {
	got, err := ReadMachines("m.csv", strings.NewReader("\ufeff\"model\",sn,gpu,cpu_milli,memory_mib,rack,leaf,labels,device_memory_mib\r\n"+
		"H100-80GB,n1,8,96500,2048.5,r1,l1,zone=a; disk=fast,\r\n\r\n,\"n,2\",0,1000.0,0,,,,\r\nT4,n3,2,1000,1,,,,15360\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Machine{
		{
			Name: "n1", CPUs: 96_500, Memory: 2048<<20 + 512<<10, GPUs: 8, Model: "H100-80GB", DeviceMemory: 80 << 30,
			Labels: map[string]string{"rack": "r1", "leaf": "l1", "zone": "a", "disk": "fast"},
		},
		{Name: "n,2", CPUs: 1000},
		{Name: "n3", CPUs: 1000, Memory: 1 << 20, GPUs: 2, Model: "T4", DeviceMemory: 15 << 30},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, want\n%+v", got, want)
	}
}

func TestRequestsAreRead(t *testing.T) {
	got, err := ReadRequests("p.csv", strings.NewReader(requestHeader+
		"a,3152,5600,1,810,\nb,8000,30517,0,0,\nc,1000,0,1,1000,G2|V100M16\nd,64000,1,8,1000,\ne,1,1,0,1000,T4\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Request{
		{Name: "a", GPUs: 1, Milli: 810, Need: job.Resources{CPUs: 3152, Memory: 5600 << 20, GPUShare: 0.81}},
		{Name: "b", Need: job.Resources{CPUs: 8000, Memory: 30517 << 20}},
		{Name: "c", GPUs: 1, Milli: 1000, Models: "G2|V100M16", Need: job.Resources{CPUs: 1000, GPUs: 1, GPUModel: "g2|v100m16"}},
		{Name: "d", GPUs: 8, Milli: 1000, Need: job.Resources{CPUs: 64_000, Memory: 1 << 20, GPUs: 8}},
		{Name: "e", Need: job.Resources{CPUs: 1, Memory: 1 << 20}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read\n%+v, want\n%+v", got, want)
	}
	for milli := 1; milli < gpu.Whole; milli++ {
		all, err := ReadRequests("p.csv", strings.NewReader(fmt.Sprintf("%sa,1,1,1,%d,\n", requestHeader, milli)))
		if err != nil || gpu.Milli(all[0].Need) != milli {
			t.Errorf("%d thousandths became %+v: %v, want the same", milli, all, err)
		}
	}
}

// A wide job becomes a gang on as few machines as can hold it. They share what it requests.
func TestWideJobBecomesAGang(t *testing.T) {
	jobs, notes := readJobs(t, jobHeader+`narrow,0,1.25,8,1000,64000,65536,,std,1
wide,1,10,16,1000,64000,65536,G2,std,
odd,1e1,2,3,1000,1000,1,T4|G2,,0
uneven,11,2,13,1000,1001,0,,,3
`, Options{Cluster: four(t)})
	want := []struct {
		name           string
		submit, runs   time.Duration
		nodes          int
		need           job.Resources
		class          string
		priority, each int
	}{
		{"narrow", 0, 1250 * time.Millisecond, 0, job.Resources{CPUs: 64_000, Memory: 64 << 30, GPUs: 8}, "std", 1, 8},
		{"wide", time.Second, 10 * time.Second, 2, job.Resources{CPUs: 32_000, Memory: 32 << 30, GPUs: 8, GPUModel: "g2"}, "std", 50, 8},
		{"odd", 10 * time.Second, 2 * time.Second, 0, job.Resources{CPUs: 1000, Memory: 1 << 20, GPUs: 3, GPUModel: "t4|g2"}, "", 0, 3},
		{"uneven", 11 * time.Second, 2 * time.Second, 2, job.Resources{CPUs: 501, GPUs: 7}, "", 3, 7},
	}
	if len(jobs) != len(want) {
		t.Fatalf("%d jobs, want %d", len(jobs), len(want))
	}
	for i, w := range want {
		j := jobs[i]
		if j.Name != w.name || j.Submit != w.submit || j.Runs != w.runs || j.Spec.Nodes != w.nodes || j.Spec.Resources != w.need ||
			j.Class != w.class || j.Spec.Priority != w.priority || j.Spec.TimeLimit != 0 || j.Spec.Preemptible {
			t.Errorf("read %+v, want %+v", j, w)
		}
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "uneven in line 5: 14 GPUs on 2 nodes, and not 13") {
		t.Errorf(`notes %q, want 1 of them and [0] "uneven in line 5: 14 GPUs on 2 nodes, and not 13" in it`, notes)
	}
}

func TestOptionalColumnsAreRead(t *testing.T) {
	header := strings.TrimSpace(jobHeader) + ",user,project,nodes,tasks,time_limit_s,preemptible,files_mib\n"
	jobs, notes := readJobs(t, header+`late,5,1,4,1000,4000,8,,,1,ann,p1,2,3,60,yes,1.5
early,1,1,1,500,4000,8,,,1,,,,,,,
`, Options{Cluster: four(t)})
	if len(jobs) != 2 || jobs[0].Name != "early" || len(notes) != 1 || !strings.Contains(notes[0], "1 rows are submitted before the row above them") {
		t.Fatalf("read %+v with %q, want 2 with a note about the order", jobs, notes)
	}
	late := jobs[1]
	if late.User != "ann" || late.Spec.Project != "p1" || late.Spec.Nodes != 2 || late.Spec.Array != "0-2" || late.Bytes != 3<<19 ||
		late.Spec.TimeLimit != job.Duration(time.Minute) || !late.Spec.Preemptible ||
		late.Spec.Resources != (job.Resources{CPUs: 2000, Memory: 4 << 20, GPUs: 2}) {
		t.Errorf("read %+v, want the values of its row", late)
	}
	for _, j := range jobs {
		if err := j.Spec.Validate(); err != nil {
			t.Errorf("%s: %v", j.Name, err)
		}
	}
	jobs, _ = readJobs(t, jobHeader+"a,0,7,0,0,1,0,,,\n", Options{Known: true, Preemptible: true})
	if s := jobs[0].Spec; s.TimeLimit.D() != 7*time.Second || !s.Preemptible {
		t.Errorf("known and preemptible: %+v, want a limit of 7 s and preemptible", s)
	}
}

// Jobs of the public experiment are preemptible unless the table says otherwise, and a known limit allows for a
// restart.
func TestJobsOfTheExperimentArePreemptible(t *testing.T) {
	for _, c := range []struct {
		column string
		o      Options
		may    bool
		limit  time.Duration
	}{
		{"", Options{Experiment: true}, true, 0},
		{"", Options{}, false, 0},
		{"no", Options{Experiment: true}, false, 0},
		{"", Options{Experiment: true, Known: true, Restart: time.Minute}, true, 7*time.Second + time.Minute + limitSlack},
		{"no", Options{Experiment: true, Known: true, Restart: time.Minute}, false, 7 * time.Second},
		{"", Options{Known: true, Restart: time.Minute}, false, 7 * time.Second},
	} {
		header, row := jobHeader, "a,0,7,0,0,1,0,,,"
		if c.column != "" {
			header, row = strings.TrimSuffix(jobHeader, "\n")+",preemptible\n", row+","+c.column
		}
		jobs, _ := readJobs(t, header+row+"\n", c.o)
		if s := jobs[0].Spec; s.Preemptible != c.may || s.TimeLimit.D() != c.limit {
			t.Errorf("column %q, %+v: preemptible %t, limit %s, want %v and D() %v", c.column, c.o, s.Preemptible, s.TimeLimit, c.may, c.limit)
		}
	}
}

// The public traces are read to the last row.
func TestPublicTracesAreRead(t *testing.T) {
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		t.Skip("MUSTER_TRACES is not set: it names the directory with the public traces")
	}
	dir = filepath.Join(dir, "openb")
	open := func(name string) *os.File {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	machines, err := ReadMachines("nodes", open("openb_node_list_gpu_node.csv"))
	if err != nil {
		t.Fatal(err)
	}
	gpus, cpus := 0, 0
	for _, m := range machines {
		gpus, cpus = gpus+m.GPUs, cpus+m.CPUs
	}
	if len(machines) != 1213 || gpus != 6212 || cpus != 107_018_000 {
		t.Errorf("%d machines with %d GPUs and %d thousandths of CPUs, want 1213, 6212 and 107_018_000", len(machines), gpus, cpus)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "openb_pod_list_*.csv"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables: %v", err)
	}
	rows := map[string]int{"default": 8152, "cpu050": 7439, "gpuspec20": 8152, "multigpu50": 9061}
	for _, path := range tables {
		all, err := ReadRequests(path, open(filepath.Base(path)))
		if err != nil {
			t.Error(err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "openb_pod_list_"), ".csv")
		if want := rows[name]; want > 0 && len(all) != want {
			t.Errorf("%s: %d rows, want %d", name, len(all), want)
		}
	}
	arrivals, err := ReadRequests("arrivals", open("arrivals_gpuspec20_seed42.csv"))
	if err != nil || len(arrivals) != 10_866 {
		t.Errorf("%d arrivals: %v, want no error and 10_866", len(arrivals), err)
	}
	asked := 0
	for _, a := range arrivals {
		asked += a.AllMilli()
	}
	if want := 6_212_000 * 13 / 10; asked > want || asked < want-8000 {
		t.Errorf("the arrivals ask for %d thousandths, want about %d", asked, want)
	}
	for name, want := range map[string]struct{ machines, gpus, jobs, gangs, mean int }{ // mean duration, in seconds: the published mean completion time less the mean wait
		"openb": {21, 104, 7228, 0, 3693}, "philly_a": {8, 64, 992, 111, 46_865}, "philly_b": {14, 112, 2638, 0, 119_336},
	} {
		machines, err := ReadMachines(name, open("queue_"+name+"_nodes.csv"))
		if err != nil {
			t.Fatal(err)
		}
		jobs, notes, err := ReadJobs(name, open("queue_"+name+"_jobs.csv"), Options{Cluster: machines})
		if err != nil || len(notes) > 0 {
			t.Fatalf("got %v, %v, want no error and none", err, notes)
		}
		gangs, gpus, runs := 0, 0, 0.0
		for _, j := range jobs {
			runs += j.Runs.Seconds()
			if j.Spec.Nodes > 1 {
				gangs++
			}
		}
		for _, m := range machines {
			gpus += m.GPUs
			if m.Labels[RackLabel] == "" {
				t.Errorf("%s: %s has no rack", name, m.Name)
			}
		}
		if len(machines) != want.machines || gpus != want.gpus || len(jobs) != want.jobs || gangs != want.gangs || int(runs/float64(len(jobs))+0.5) != want.mean {
			t.Errorf("%s: %d machines, %d GPUs, %d jobs of %.0f s on average, %d gangs; want %+v", name, len(machines), gpus, len(jobs), runs/float64(len(jobs)), gangs, want)
		}
		if !slices.IsSortedFunc(jobs, func(a, b Job) int { return int(a.Submit - b.Submit) }) {
			t.Errorf("%s: the jobs are not in order", name)
		}
	}
}
