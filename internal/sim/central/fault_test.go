package central

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/job"
)

// two is two machines with one GPU each, and jobs that use a GPU for 100 s.
func two(jobs int) *load.Load {
	l := &load.Load{}
	for i := range 2 {
		l.Machines = append(l.Machines, load.Machine{Name: fmt.Sprint("m", i), CPUs: 8000, Memory: 64 << 30, GPUs: 1, Model: "H100"})
	}
	for i := range jobs {
		l.Jobs = append(l.Jobs, load.Job{Name: fmt.Sprint("j", i), Runs: 100 * time.Second, Spec: job.Spec{Resources: job.Resources{CPUs: 1000, GPUs: 1}}})
	}
	return l
}

// story writes records as "start j0 on 0 at 1m40s".
func story(log record.Log) string {
	var lines []string
	for _, r := range log {
		line := fmt.Sprintf("%s j%d", r.Kind, r.Job)
		for _, a := range r.Alloc {
			line += fmt.Sprint(" on ", a.Machine)
		}
		lines = append(lines, fmt.Sprintf("%s at %s", line, r.At))
	}
	return strings.Join(lines, "\n")
}

// The effect of each kind of fault on one job of 100 s that starts on machine 0.
func TestEffectOfEachFault(t *testing.T) {
	const s = time.Second
	zero := []int{0}
	for name, c := range map[string]struct {
		options Options
		jobs    int
		want    string
	}{
		"off and back": {
			Options{Faults: []Fault{{At: 50 * s, For: 60 * s, Kind: Off, Machines: zero}}},
			1,
			"start j0 on 0 at 0s\nlost j0 at 50s\nstart j0 on 0 at 1m50s\nfinish j0 at 3m30s",
		},
		"off for good: its lease must have run out": {
			Options{Faults: []Fault{{At: 50 * s, Kind: Off, Machines: zero}}},
			1,
			"start j0 on 0 at 0s\nlost j0 at 50s\nstart j0 on 1 at 6m0s\nfinish j0 at 7m40s",
		},
		"off, with what was saved": {
			Options{Checkpoint: 20 * s, Restart: 7 * s, Faults: []Fault{{At: 50 * s, For: 60 * s, Kind: Off, Machines: zero}}},
			1,
			"start j0 on 0 at 0s\nlost j0 at 50s\nstart j0 on 0 at 1m50s\nfinish j0 at 2m57s",
		},
		"cut for less than the lease": {
			Options{Faults: []Fault{{At: 50 * s, For: 200 * s, Kind: Cut, Machines: zero}}},
			3,
			"start j0 on 0 at 0s\nstart j1 on 1 at 0s\nfinish j0 at 1m40s\nfinish j1 at 1m40s\nstart j2 on 1 at 1m40s\nfinish j2 at 3m20s",
		},
		"closed": {
			Options{Faults: []Fault{{At: 50 * s, For: 300 * s, Kind: Closed, Machines: []int{0, 1}}}},
			3,
			"start j0 on 0 at 0s\nstart j1 on 1 at 0s\nfinish j0 at 1m40s\nfinish j1 at 1m40s\nstart j2 on 0 at 5m50s\nfinish j2 at 7m30s",
		},
		"gpu": {
			Options{Faults: []Fault{{At: 50 * s, Kind: DeviceOut, Machines: zero}}},
			1,
			"start j0 on 0 at 0s\nlost j0 at 50s\nstart j0 on 1 at 50s\nfinish j0 at 2m30s",
		},
		"slow": {
			Options{Faults: []Fault{{At: 50 * s, For: 40 * s, Kind: Slow, Machines: zero, Speed: 0.5}}},
			1,
			"start j0 on 0 at 0s\nfinish j0 at 2m0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range Orders {
				var log record.Log
				o := c.options
				o.Order, o.Place = order, BestFit
				if err := Run(t.Context(), two(c.jobs), o, &log); err != nil {
					t.Fatal(err)
				}
				if got := story(log); got != c.want {
					t.Errorf("%s:\n%s\nwant\n%s", order, got, c.want)
				}
			}
		})
	}
}

// With a policy of muster, too, a machine that is off gets no task, and gets tasks again when it is back.
func TestMachineThatIsOffGetsNoTaskFromAPolicy(t *testing.T) {
	var log record.Log
	o := Options{Order: Centre, Place: "pack", Faults: []Fault{{At: 10 * time.Second, For: time.Minute, Kind: Off, Machines: []int{0, 1}}}}
	if err := Run(t.Context(), two(4), o, &log); err != nil {
		t.Fatal(err)
	}
	lost, finished := 0, 0
	for _, r := range log {
		switch {
		case r.Kind == record.Start && r.At > 0 && r.At < 70*time.Second:
			t.Errorf("a start at %s, while both machines are off", r.At)
		case r.Kind == record.Lost:
			lost++
		case r.Kind == record.Finish:
			finished++
		}
	}
	if lost != 2 || finished != 4 {
		t.Errorf("%d lost, %d finished\n%s, want 2 and 4", lost, finished, story(log))
	}
}
