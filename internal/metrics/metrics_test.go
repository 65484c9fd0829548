package metrics

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// full is a sample in which every value is known: a host with some GPUs and tasks.
func full(gpus, tasks int) *Sample {
	s := &Sample{
		Node:    &Node{ID: "12D3", Name: "amy", Version: "1", Arch: "amd64", OS: "linux", Ready: true, CPUs: 64, Memory: 1 << 40, Disk: 1 << 40, DiskFree: 1 << 39, Running: tasks},
		Members: map[string]int{"ready": 3, "suspect": 0, "lost": 1}, CredentialEnd: time.Unix(1e9, 0), InvitersEnd: time.Unix(2e9, 0),
		Jobs: map[job.State]int{}, Use: &Use{Host: HostUse{CPUs: 1, Memory: 2, Read: 3, Written: 4, Received: 5, Sent: 6}, Tasks: map[job.Attempt]TaskUse{}},
	}
	for _, state := range job.States() {
		s.Jobs[state] = 1
	}
	h := Histogram{Bounds: make([]float64, 19), Counts: make([]uint64, 20)}
	for i := range h.Bounds {
		h.Bounds[i], h.Counts[i] = float64(i+1), 1
	}
	s.Totals = &Totals{Offers: map[string]uint64{"committed": 1, "declined": 2, "unanswered": 3, "withdrawn": 4}, Ended: map[job.State]uint64{job.Succeeded: 1, job.Failed: 2}, Queued: h, Started: h}
	for i := range gpus {
		d := gpu.Device{UUID: fmt.Sprintf("GPU-%d", i), Index: i, Class: "h100-80gb", Model: "NVIDIA H100", Memory: 80 << 30, Driver: "550"}
		s.GPUs = append(s.GPUs, GPU{Device: d, Allocated: 1, Status: &gpu.Status{UUID: d.UUID, Health: gpu.Healthy, MemoryUsed: 1, Utilization: 50, Temperature: 40, PowerMilli: 350_000}})
	}
	for i := range tasks {
		a := job.Attempt{Job: job.ID(fmt.Sprintf("job%d", i)), N: 1}
		t := Task{Attempt: a, Task: "0", User: "bob", Started: time.Unix(1e9, 0), CPUs: 1, Memory: 1}
		if gpus > 0 {
			t.GPUs = []string{s.GPUs[i%gpus].UUID}
		}
		s.Tasks = append(s.Tasks, t)
		s.Use.Tasks[a] = TaskUse{CPUSeconds: 1, Memory: 2, Read: 3, Written: 4, Processes: 5}
	}
	return s
}

type sampled struct{ *Sample }

func (sampled) Describe(chan<- *prometheus.Desc) {}

func gather(t testing.TB, s *Sample) []*dto.MetricFamily {
	t.Helper()
	reg := NewRegistry("1")
	reg.MustRegister(NewJournalSeconds(), sampled{s})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// series returns the series as lines, without their values.
func series(t testing.TB, families []*dto.MetricFamily) (lines []string) {
	t.Helper()
	var text strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			t.Fatal(err)
		}
	}
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line[:strings.LastIndexByte(line, ' ')])
		}
	}
	return lines
}

// Names, units and help follow the rules of Prometheus.
func TestMetricsFollowPrometheusRules(t *testing.T) {
	problems, err := promlint.NewWithMetricFamilies(gather(t, full(2, 2))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "muster_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// Unknown values have no series, and no 0.
func TestUnknownValuesHaveNoSeries(t *testing.T) {
	lines := series(t, gather(t, &Sample{GPUs: []GPU{
		{Device: gpu.Device{UUID: "u"}, Status: &gpu.Status{UUID: "u", Health: gpu.Unknown, Utilization: -1}},
		{Device: gpu.Device{UUID: "v", Memory: 1}, Status: nil},
		{Device: gpu.Device{UUID: "w", Memory: 1}, Status: &gpu.Status{UUID: "w", Health: gpu.Unhealthy, Unread: true, Utilization: -1}},
	}, Tasks: []Task{{Attempt: job.Attempt{Job: "j", N: 1}}}, Use: &Use{
		Host: HostUse{CPUs: 1, Memory: math.NaN(), Read: math.NaN(), Written: math.NaN(), Received: math.NaN(), Sent: math.NaN()},
	}}))
	for _, line := range lines {
		for _, bad := range []string{"muster_node_ready", "_node_memory", "muster_jobs", "muster_offers", "_credential_", "utilization", "temperature", "watts", "memory_used", "memory_errors", "start_time_seconds{", "cpu_seconds_total{", `memory_bytes{uuid="u"}`, `healthy{uuid="u"}`, `healthy{uuid="v"}`} {
			if strings.Contains(line, bad) && strings.HasPrefix(line, "muster_") {
				t.Errorf("got a series for an unknown value: %s", line)
			}
		}
	}
	for _, want := range []string{`muster_gpu_healthy{uuid="w"}`, `muster_gpu_memory_bytes{uuid="v"}`, "muster_node_cpus_used"} {
		if !slices.Contains(lines, want) {
			t.Errorf("got no series for a known value, want %s", want)
		}
	}
}

// Only the series of tasks name a job. The number of all series stays within its bound.
func TestSeriesAreBounded(t *testing.T) {
	lines := series(t, gather(t, full(8, 100)))
	t.Logf("%d series with 100 tasks and 8 GPUs", len(lines))
	if len(lines) > 3000 {
		t.Errorf("got %d series with 100 tasks, want at most 3000", len(lines))
	}
	for _, line := range lines {
		named := strings.HasPrefix(line, "muster_task_") || strings.HasPrefix(line, "muster_gpu_task_info")
		if !named && strings.Contains(line, "job") && !strings.HasPrefix(line, "muster_jobs{") {
			t.Errorf("%s names a job, want none", line)
		}
	}
	if ten := series(t, gather(t, full(8, 1000))); len(ten)-len(lines) > 900*10 {
		t.Errorf("got %d series with 1000 tasks, want at most 10 more for each", len(ten))
	}
}

// A name that is not UTF-8 does not make a scrape fail.
func TestNameWithoutUTF8DoesNotFailTheScrape(t *testing.T) {
	s := full(1, 1)
	s.Tasks[0].User = "b\xffb"
	if lines := series(t, gather(t, s)); !slices.Contains(lines, `muster_task_cpus{job="job0",task="0",user="b`+"\uFFFD"+`b"}`) {
		t.Errorf("got %q, want the name with U+FFFD", lines)
	}
}

func BenchmarkScrape(b *testing.B) {
	s := full(8, 100)
	for b.Loop() {
		series(b, gather(b, s))
	}
}

// The series of a task share their labels, which are made once.
func TestSeriesOfATaskShareTheirLabels(t *testing.T) {
	collected := func(tasks int) float64 {
		s := full(8, tasks)
		ch := make(chan prometheus.Metric, 10_000)
		return testing.AllocsPerRun(10, func() {
			s.Collect(ch)
			for len(ch) > 0 {
				<-ch
			}
		})
	}
	if per := (collected(200) - collected(100)) / 100; per > 50 { // a task has 10 series
		t.Errorf("got %.1f allocations for a task, want at most 50", per)
	} else {
		t.Logf("%.1f allocations for a task", per)
	}
}
