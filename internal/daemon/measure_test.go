package daemon

// Metrics of GPUs, and the files of the jobs that hold them.

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/meter"
)

// Old measurements count as unknown, and so do values that were never measured.
func TestOldUseIsUnknown(t *testing.T) {
	now := time.Now()
	values := usage.Values{usage.CPU: 1.5, usage.PIDs: 7}
	a, b := job.Attempt{Job: "a", N: 1}, job.Attempt{Job: "b", N: 1}
	u := useOf(meter.Snapshot{
		Host:  usage.Sample{At: now.Add(-time.Second), Values: values},
		Tasks: []meter.TaskSample{{Task: meter.Task{Attempt: a}, CPUSeconds: 42, Sample: usage.Sample{At: now, Values: values}}, {Task: meter.Task{Attempt: b}, Sample: usage.Sample{At: now.Add(-statusOld)}}},
	}, now)
	if _, old := u.Tasks[b]; old || u.Host.CPUs != 1.5 || u.Tasks[a].CPUSeconds != 42 || u.Tasks[a].Processes != 7 {
		t.Errorf("got %+v, want the recent values alone", u)
	}
	if u := useOf(meter.Snapshot{}, now); !math.IsNaN(u.Host.CPUs) || !math.IsNaN(u.Host.Sent) || len(u.Tasks) != 0 {
		t.Errorf("without measurements: got %+v, want unknown values", u)
	}
}

// The status of a GPU is reported while it is current: not after the driver has hung for a minute, and not for a host
// that has released its GPUs.
func TestOldStatusIsNotReported(t *testing.T) {
	for name, c := range map[string]struct {
		age      time.Duration
		released bool
		want     bool
	}{"new": {0, false, true}, "old": {2 * statusOld, false, false}, "released": {0, true, false}} {
		info := api.NodeInfo{
			Profile: contract.Profile{GPUs: []gpu.Device{{UUID: "a"}, {UUID: "b"}}}, Free: contract.Free{GPUs: []contract.FreeGPU{{UUID: "a", Milli: 250}}},
			Status: []gpu.Status{{UUID: "a", Health: gpu.Healthy, Utilization: 7}}, Read: time.Now().Add(-c.age), Released: c.released,
			Quarantined: map[string]string{"b": "xid"},
		}
		got := gpusOf(&info)
		if len(got) != 2 || (got[0].Status != nil) != c.want || got[0].Allocated != 0.75 || got[0].SetAside || got[1].Status != nil || got[1].Allocated != 1 || !got[1].SetAside {
			t.Errorf("%s: got %+v, want a status: %v", name, got, c.want)
		}
	}
}

// Tasks have the numbers that people use: the index in the array, else the rank.
func TestTasksAreNumberedByIndexOrRank(t *testing.T) {
	r := contract.Record{Attempt: job.Attempt{Job: "j", Task: 3, N: 1}, Element: contract.Element{Array: true, Index: 70}}
	if got := taskOf(&r); got.Task != "70" {
		t.Errorf("a task of an array: got %s, want 70", got.Task)
	}
	r.Element = contract.Element{}
	if got := taskOf(&r); got.Task != "3" {
		t.Errorf("a task of a gang: got %s, want 3", got.Task)
	}
}

// holdsNow is a worker whose GPUs are held as v says.
type holdsNow struct {
	v   worker.View
	err error
}

func (h *holdsNow) View(context.Context) (worker.View, error) { return h.v, h.err }

func TestJobFilesFollowTheHoldersOfGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j1, j2, j3 := job.NewID(7, 1), job.NewID(7, 2), job.NewID(7, 3)
		one, two := string(j1)+"\n", string(min(j2, j3))+"\n"+string(max(j2, j3))+"\n"
		dir := t.TempDir()
		for _, name := range []string{"0", "5"} { // from an earlier run of the daemon
			if err := os.WriteFile(filepath.Join(dir, name), []byte(one), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		names := func() (list []string) {
			there, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range there {
				text, _ := os.ReadFile(filepath.Join(dir, e.Name()))
				list = append(list, e.Name()+"="+string(text))
			}
			return list
		}
		w := &holdsNow{v: worker.View{Holders: map[string][]string{"a": {job.Attempt{Job: j1, N: 1}.String()}}}}
		f := &jobFiles{dir: dir, work: w, log: slog.New(slog.DiscardHandler), began: time.Now()}
		steps := []struct {
			what   string
			change func()
			want   []string
		}{
			{"the driver has not listed the GPUs yet", func() {}, []string{"0=" + one, "5=" + one}},
			{"the worker does not answer", func() { w.err = errors.New("busy") }, []string{"0=" + one, "5=" + one}},
			{"both do", func() { w.err, w.v.Profile.GPUs = nil, []gpu.Device{{UUID: "a"}, {UUID: "b", Index: 1}} }, []string{"0=" + one}},
			{"somebody removes a file", func() { os.Remove(filepath.Join(dir, "0")); time.Sleep(2 * jobFilesAgain) }, []string{"0=" + one}},
			{"a share for two attempts of two jobs", func() {
				w.v.Holders = map[string][]string{"b": {job.Attempt{Job: j3, N: 1}.String(), job.Attempt{Job: j2, N: 1}.String(), job.Attempt{Job: j3, Task: 1, N: 1}.String()}}
			}, []string{"1=" + two}},
			{"nobody holds any", func() { w.v.Holders = nil }, nil},
		}
		for _, s := range steps {
			s.change()
			f.look(t.Context())
			if got := names(); !slices.Equal(got, s.want) {
				t.Errorf("%s: got %q, want %q", s.what, got, s.want)
			}
		}
	})
}
