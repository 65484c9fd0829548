package load

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

const accounting = `JobID|JobName|User|Account|Partition|Submit|Eligible|Start|End|Elapsed|Timelimit|ReqTRES|AllocTRES|NNodes|NCPUS|ReqMem|State|Priority
1001|train|ann|nlp|gpu|2026-03-01T08:00:00|2026-03-01T08:00:00|2026-03-01T08:05:00|2026-03-02T10:05:01|1-02:00:01|2-00:00:00|billing=16,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=128G,node=1|billing=16,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=128G,node=1|1|16|128G|COMPLETED|5000
1001.batch|batch||nlp||2026-03-01T08:05:00|2026-03-01T08:05:00|2026-03-01T08:05:00|2026-03-02T10:05:01|1-02:00:01||||1|16||COMPLETED|
1001.extern|extern||nlp||2026-03-01T08:05:00|2026-03-01T08:05:00|2026-03-01T08:05:00|2026-03-02T10:05:01|1-02:00:01||||1|16||COMPLETED|
1002_3|sweep|bob|vision|gpu|2026-03-01T07:59:00|2026-03-01T08:30:00|2026-03-01T08:31:00|2026-03-01T09:31:20|01:00:20|01:00:00|cpu=4,gres/gpu=1,mem=15.50G,node=1|cpu=4,gres/gpu=1,mem=15.50G,node=1|1|4|15.50G|TIMEOUT|100
1002_[4-9%2]|sweep|bob|vision|gpu|2026-03-01T07:59:00|Unknown|Unknown|Unknown|00:00:00|01:00:00|cpu=4,gres/gpu=1,mem=15.50G,node=1||1|4|15.50G|PENDING|100
1003|big|ann|nlp|gpu|2026-03-01T07:58:30|2026-03-01T07:58:30|2026-03-01T09:00:00|2026-03-01T09:10:00|00:10:00|UNLIMITED|cpu=64,gres/gpu=16,mem=1T,node=2|cpu=65,gres/gpu=16,mem=1T,node=2|2|65|1T|FAILED|200
1004|cpu|eve|(null)|cpu|2026-03-01T08:00:05|2026-03-01T08:00:05|2026-03-01T08:00:06|2026-03-01T08:00:36|00:00:30|Partition_Limit|cpu=6,mem=6000M,node=3|cpu=6,mem=6000M,node=3|3|6|6000M|CANCELLED by 1000|0
1005|odd|eve|lab x|gpu|2026-03-01T08:00:07|2026-03-01T08:00:07|2026-03-01T08:00:08|2026-03-01T08:02:08|02:00|10:00|cpu=3,gres/gpu=3,node=2|cpu=3,gres/gpu=3,node=2|2|3|4Gn|COMPLETED|1
1006|mps|eve|lab|gpu|2026-03-01T08:00:08|2026-03-01T08:00:08|2026-03-01T08:00:09|2026-03-01T08:00:10|00:00:01.500|10:00|cpu=1,gres/mps=30,mem=1G,node=1|cpu=1,gres/mps=30,mem=1G,node=1|1|1|1G|OUT_OF_MEMORY|1
1007|shard|eve|lab|gpu|2026-03-01T08:00:08|2026-03-01T08:00:08|2026-03-01T08:00:09|2026-03-01T08:00:10|00:00:01|10:00|cpu=1,gres/shard=2,mem=1G,node=1|cpu=1,gres/shard=2,mem=1G,node=1|1|1|1G|COMPLETED|1
1008|never|eve|lab|gpu|2026-03-01T08:00:09|2026-03-01T08:00:09|None|2026-03-01T08:00:10|00:00:00|10:00|cpu=1,mem=1G,node=1||1|1|1G|CANCELLED by 7|1
1009|on|eve|lab|gpu|2026-03-01T08:00:09|2026-03-01T08:00:09|2026-03-01T08:00:10|Unknown|5-00:00:00|10-00:00:00|cpu=1,mem=1G,node=1|cpu=1,mem=1G,node=1|1|1|1G|RUNNING|1
1010|a|b|eve|lab|gpu|2026-03-01T08:00:09|2026-03-01T08:00:09|2026-03-01T08:00:10|2026-03-01T08:00:10|00:00:10|10:00|cpu=1,mem=1G,node=1|cpu=1,mem=1G,node=1|1|1|1G|COMPLETED|1
1011|twice|eve|lab|gpu|2026-03-01T08:00:10|2026-03-01T08:00:10|2026-03-01T08:00:11|2026-03-01T08:00:21|00:00:10|10:00|cpu=1,mem=1G,node=1|cpu=1,mem=1G,node=1|1|1|1G|NODE_FAIL|1
1011|twice|eve|lab|gpu|2026-03-01T08:00:10|2026-03-01T08:00:10|2026-03-01T08:00:31|2026-03-01T08:01:01|00:00:30|10:00|cpu=1,mem=1G,node=1|cpu=1,mem=1G,node=1|1|1|1G|COMPLETED|1
1012|lost|eve|lab|gpu|Unknown|Unknown|2026-03-01T08:00:11|2026-03-01T08:00:21|00:00:10|10:00|cpu=1,mem=1G,node=1|cpu=1,mem=1G,node=1|1|1|1G|COMPLETED|1
`

func TestOutputOfSacctIsRead(t *testing.T) {
	jobs, report, err := FromSacct("acct", strings.NewReader(accounting), SacctOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec := func(s job.Spec, r job.Resources) job.Spec {
		d := job.DefaultSpec()
		d.Name, d.Command, d.Project, d.TimeLimit, d.Nodes, d.Resources = s.Name, command, s.Project, s.TimeLimit, s.Nodes, r
		return d
	}
	want := []Job{
		{Name: "1003", User: "ann", Class: "gpu", Runs: 10 * time.Minute, Spec: spec(
			job.Spec{Name: "1003", Project: "nlp", Nodes: 2}, job.Resources{CPUs: 32_500, Memory: 512 << 30, GPUs: 8})},
		{Name: "1001", User: "ann", Class: "gpu", Submit: 90 * time.Second, Runs: 26*time.Hour + time.Second, Spec: spec(
			job.Spec{Name: "1001", Project: "nlp", TimeLimit: job.Duration(48 * time.Hour)}, job.Resources{CPUs: 16_000, Memory: 128 << 30, GPUs: 4, GPUModel: "a100"})},
		{Name: "1004", User: "eve", Class: "cpu", Submit: 95 * time.Second, Runs: 30 * time.Second, Spec: spec(
			job.Spec{Name: "1004", Nodes: 3}, job.Resources{CPUs: 2000, Memory: 2000 << 20})},
		{Name: "1005", User: "eve", Class: "gpu", Submit: 97 * time.Second, Runs: 2 * time.Minute, Spec: spec(
			job.Spec{Name: "1005", TimeLimit: job.Duration(10 * time.Minute)}, job.Resources{CPUs: 3000, Memory: 8 << 30, GPUs: 3})},
		{Name: "1006", User: "eve", Class: "gpu", Submit: 98 * time.Second, Runs: 1500 * time.Millisecond, Spec: spec(
			job.Spec{Name: "1006", Project: "lab", TimeLimit: job.Duration(10 * time.Minute)}, job.Resources{CPUs: 1000, Memory: 1 << 30, GPUShare: 0.3})},
		{Name: "1011", User: "eve", Class: "gpu", Submit: 100 * time.Second, Runs: 30 * time.Second, Spec: spec(
			job.Spec{Name: "1011", Project: "lab", TimeLimit: job.Duration(10 * time.Minute)}, job.Resources{CPUs: 1000, Memory: 1 << 30})},
		{Name: "1002_3", User: "bob", Class: "gpu", Submit: 31*time.Minute + 30*time.Second, Runs: time.Hour + 20*time.Second, Spec: spec(
			job.Spec{Name: "1002_3", Project: "vision", TimeLimit: job.Duration(time.Hour + 20*time.Second)}, job.Resources{CPUs: 4000, Memory: 31 << 29, GPUs: 1})},
	}
	if len(jobs) != len(want) {
		t.Fatalf("%d jobs, want %d: %+v", len(jobs), len(want), jobs)
	}
	for i := range want {
		if !reflect.DeepEqual(jobs[i], want[i]) {
			t.Errorf("read\n%+v, want\n%+v", jobs[i], want[i])
		}
	}
	wantReport := []string{
		"acct: 7 jobs, submitted from 2026-03-01T07:58:30 on for 31m30s; 2 of them on several nodes; 108 GPU hours",
		"acct: 2 lines are steps of jobs",
		`acct: left out: 1 earlier runs of a job that was requeued (such as "1011" in line 16)`,
		`acct: left out: 1 jobs that asked for gres/shard, because the accounting does not tell how large a shard is (such as "1007" in line 11)`,
		`acct: left out: 1 jobs that did not run (CANCELLED) (such as "1008" in line 12)`,
		`acct: left out: 1 jobs that did not run (PENDING) (such as "1002_[4-9%2]" in line 6)`,
		`acct: left out: 1 jobs that had not ended (RUNNING) (such as "1009" in line 13)`,
		`acct: left out: 1 jobs without a time of submission (such as "1012" in line 17)`,
		`acct: left out: 1 lines that do not have 18 fields; is there a | in a name? (such as "1010" in line 14)`,
		`acct: changed: 1 jobs had a different number of GPUs on their nodes; they have as few nodes as can hold them (such as "1005" in line 9)`,
		`acct: changed: 1 jobs have no project, because the account is no name of one (such as "1005" in line 9)`,
		`acct: changed: 1 jobs ran longer than their time limit; it is as long as they ran (such as "1002_3" in line 5)`,
		"acct: Slurm's priorities are not used",
		"acct: columns that are not used: JobName",
	}
	if !slices.Equal(report, wantReport) {
		t.Errorf("report\n%s\nwant\n%s", strings.Join(report, "\n"), strings.Join(wantReport, "\n"))
	}
	// Each line of the file is a job, a step, or counted as left out.
	if lines := strings.Count(accounting, "\n"); 1+len(jobs)+2+7 != lines {
		t.Errorf("%d lines, but %d are accounted for", lines, 1+len(jobs)+2+7)
	}
	var table strings.Builder
	if err := WriteJobs(&table, jobs); err != nil {
		t.Fatal(err)
	}
	if back, _, err := ReadJobs("table", strings.NewReader(table.String()), Options{}); err != nil || !reflect.DeepEqual(back, jobs) {
		t.Errorf("the table reads as %+v: %v, want no error and %v", back, err, jobs)
	}
}

func TestOptionsForSacct(t *testing.T) {
	jobs, _, err := FromSacct("acct", strings.NewReader(accounting), SacctOptions{AnyModel: true, Priorities: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if want := map[string]int{"1001": 100, "1003": 4, "1002_3": 2}[j.Name]; j.Spec.Priority != want || j.Spec.Resources.GPUModel != "" {
			t.Errorf("%s has the priority %d, want %d, and the model %q", j.Name, j.Spec.Priority, want, j.Spec.Resources.GPUModel)
		}
	}
}

// Jobs from elsewhere are fitted to a cluster like those of a table.
func TestJobsAreFittedToACluster(t *testing.T) {
	read := func() []Job {
		jobs, _, err := FromSacct("acct", strings.NewReader(accounting), SacctOptions{AnyModel: true})
		if err != nil {
			t.Fatal(err)
		}
		return jobs
	}
	two, err := ParseMachines("20x2xT4,64cpu,2TiB")
	if err != nil {
		t.Fatal(err)
	}
	jobs := read()
	_, err = Options{Cluster: two}.Fit("acct", jobs)
	if want := `acct: job "1003": the cluster could never run it: it needs 2 machines, each with 8 GPUs, 32.5 CPUs and 524288 MiB; 0 have the GPUs`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	if _, err := (Options{Cluster: two[:1]}).Fit("acct", read()); err == nil || !strings.HasSuffix(err.Error(), "; and 3 more jobs") {
		t.Errorf(`error %v, want an error and suffix "; and 3 more jobs"`, err)
	}
	jobs = read()[1:]
	notes, err := Options{Cluster: two, Known: true, Preemptible: true}.Fit("acct", jobs)
	if err != nil || len(notes) != 1 || !strings.HasSuffix(notes[0], `the first is "1005": 4 GPUs on 2 nodes, and not 3`) {
		t.Errorf(`notes %q: %v, want no error, 1 of them and [0] suffix "the first is \"1005\": 4 GPUs on 2 nodes, and not 3"`, notes, err)
	}
	for i, want := range []job.Spec{
		{Nodes: 2, Resources: job.Resources{CPUs: 8000, Memory: 64 << 30, GPUs: 2}},
		{Nodes: 3, Resources: job.Resources{CPUs: 2000, Memory: 2000 << 20}},
		{Nodes: 2, Resources: job.Resources{CPUs: 1500, Memory: 4 << 30, GPUs: 2}},
	} {
		if s := jobs[i].Spec; s.Nodes != want.Nodes || s.Resources != want.Resources || s.TimeLimit.D() != jobs[i].Runs || !s.Preemptible {
			t.Errorf("%s became %+v, want %+v", jobs[i].Name, s, want)
		}
	}
}

// Older versions of Slurm, other formats of times, and --parsable, which ends each line with a separator.
func TestOutputOfOtherVersionsOfSacctIsRead(t *testing.T) {
	jobs, _, err := FromSacct("acct", strings.NewReader("\ufeffJobID|Submit|ElapsedRaw|TimelimitRaw|NCPUS|NNodes|ReqMem|ReqGRES|State|\r\n"+
		"7|1700000000|3600|90|8|2|4000Mc|gpu:tesla:2|COMPLETED|\r\n"+
		"8+1|1700000060|60|UNLIMITED|8|1|0n|gres:gpu:1|COMPLETED|\r\n"), SacctOptions{})
	if err != nil || len(jobs) != 2 {
		t.Fatalf("%+v: %v, want no error and 2 of them", jobs, err)
	}
	if s := jobs[0].Spec; s.Nodes != 2 || s.TimeLimit.D() != 90*time.Minute ||
		s.Resources != (job.Resources{CPUs: 4000, Memory: 16_000 << 20, GPUs: 2, GPUModel: "tesla"}) {
		t.Errorf("read %+v, want Nodes 2, TimeLimit.D() %v and Resources %v", s, 90*time.Minute, (job.Resources{CPUs: 4000, Memory: 16_000 << 20, GPUs: 2, GPUModel: "tesla"}))
	}
	if j := jobs[1]; j.Submit != time.Minute || j.Name != "8+1" || j.Spec.TimeLimit != 0 || j.Spec.Resources != (job.Resources{CPUs: 8000, GPUs: 1}) {
		t.Errorf("read %+v, want job 8+1 with 8 CPUs and a GPU after a minute", j)
	}
}

func TestSpansOfSacct(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"00:00:05": 5 * time.Second, "05:00": 5 * time.Minute, "1-00:00:00": 24 * time.Hour, "2-03": 51 * time.Hour, "2-03:30": 51*time.Hour + 30*time.Minute,
		"100:00:00": 100 * time.Hour, "00:00.250": 250 * time.Millisecond, "90": 90 * time.Minute,
		"": -1, "UNLIMITED": -1, "-1": -1, "1:2:3:4": -1, "NaN:00": -1, "1-": -1, "00:-5": -1,
	} {
		got, ok := sacctSpan(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

func TestInvalidOutputOfSacctIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":   "acct: it is empty; write it with: sacct --allusers",
		"\n": "acct: it is empty",
		"       JobID    JobName\n------------ ----------\n":        `acct:1: the column "JobID" is missing; write the file with: sacct`,
		"JobID|Elapsed|NCPUS\n":                                     `acct:1: the column "Submit" is missing`,
		"JobID|Submit|Start|NCPUS\n":                                `acct:1: the column "ElapsedRaw" is missing`,
		"JobID|Submit|Elapsed\n":                                    `acct:1: the column "AllocTRES" is missing`,
		"JobID|Submit|Elapsed|JobID\n":                              `acct:1: the column "JobID" is there twice`,
		"JobID|Submit|Elapsed|NCPUS\n1|Unknown|00:00:00|1\n":        `acct: it has no job that ran; left out: 1 jobs that did not run (no state) (such as "1" in line 2)`,
		"JobID|Submit|Elapsed|NCPUS\n" + strings.Repeat("x", 2<<20): "acct:2: a line of more than 1MiB",
	} {
		_, _, err := FromSacct("acct", strings.NewReader(text), SacctOptions{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: error %v, want %q", text, err, want)
		}
	}
}

// The number of reasons with words of the file is bounded.
func TestReasonsOfLeftOutJobsAreBounded(t *testing.T) {
	var text strings.Builder
	text.WriteString("JobID|Submit|Elapsed|NCPUS|State\n0|2026-01-01T00:00:00|00:01:00|1|COMPLETED\n")
	for i := range 10_000 {
		fmt.Fprintf(&text, "%d|2026-01-01T00:00:00|00:00:00|1|STATE%d\n", i+1, i)
	}
	_, report, err := FromSacct("acct", strings.NewReader(text.String()), SacctOptions{})
	if err != nil || len(report) > maxReasons+5 || !strings.Contains(report[1], "left out: 9900 others") {
		t.Errorf("%d lines, %q: %v, want few, with the other 9900 counted", len(report), report[:2], err)
	}
}

func FuzzSacct(f *testing.F) {
	f.Add(accounting)
	f.Add("JobID|Submit|ElapsedRaw|TimelimitRaw|NCPUS|NNodes|ReqMem|ReqGRES|State|\n7|1700000000|3600|90|8|2|4000Mc|gpu:tesla:2|COMPLETED|\n")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, report, err := FromSacct("acct", strings.NewReader(text), SacctOptions{Priorities: true})
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("an error of several lines: %q", err)
			}
			return
		}
		for _, line := range report {
			if strings.ContainsAny(line, "\n\r") {
				t.Errorf("a note of several lines: %q", line)
			}
		}
		var table strings.Builder
		if err := WriteJobs(&table, jobs); err != nil {
			t.Fatal(err)
		}
		if back, _, err := ReadJobs("table", strings.NewReader(table.String()), Options{}); err != nil || len(back) != len(jobs) {
			t.Errorf("the table of %d jobs reads as %d: %v, want the same\n%s", len(jobs), len(back), err, table.String())
		}
	})
}
