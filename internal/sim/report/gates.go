package report

// Gates of queueing: how much worse muster may be than a scheduler that sees everything.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/sim/report/units"
)

// Aims name the runs of a document against which muster's run is judged. A gate whose run has no name is left out.
type Aims struct {
	Known      bool    // the scheduler is told how long jobs run
	Greedy     string  // the central greedy scheduler with the same policy
	Best       string  // the all-knowing shortest remaining work; used if Known
	BestFactor float64 // how much longer than Best the mean completion may be: 1.15 for openb, 1.3 for Philly
	EASY       string  // EASY backfill
	Burst      bool    // all jobs come at once: the makespan is judged
	Class      string  // of jobs that must start soon, such as LS; empty: none
	ClassWait  float64 // how long they may wait on average, in seconds
	Racks      bool    // machines have racks, and gangs should take few of them
}

// How much worse than its yardsticks muster may be.
const (
	greedyFactor   = 1.1
	makespanFactor = 1.1
	longestFactor  = 1.5
	mostRacks      = 0.65
)

// Judge returns the gates of the document's first run.
func Judge(d *Document, a Aims) []Gate {
	if len(d.Runs) == 0 || d.Runs[0].Figures == nil {
		return nil
	}
	j := judge{doc: d, own: d.Runs[0].Figures}
	mean := func(f *Figures) float64 { return f.Completion.Mean }
	if a.Known {
		j.factor("completion, durations known", a.Best, a.BestFactor, mean)
	} else {
		j.factor("completion, durations unknown", a.Greedy, greedyFactor, mean)
	}
	if a.Burst {
		j.factor("makespan of a burst", a.Greedy, makespanFactor, func(f *Figures) float64 { return f.Makespan })
	}
	j.factor("longest wait", a.EASY, longestFactor, func(f *Figures) float64 { return f.Wait.Max })
	if a.Class != "" {
		wait, known := 0.0, false
		if i := slices.IndexFunc(j.own.Classes, func(g Group) bool { return g.Name == a.Class }); i >= 0 {
			wait, known = j.own.Classes[i].Wait.Mean, true
		}
		got := exact(wait)
		if !known {
			got = "the load has no such class"
		}
		j.add(Gate{Name: "mean wait of class " + a.Class, Want: "<= " + exact(a.ClassWait), Got: got, Met: known && wait <= a.ClassWait})
	}
	if a.Racks && j.own.Gangs.Starts > 0 {
		x := j.own.Gangs.Racks
		j.add(Gate{Name: "extra racks of a gang, mean", Want: fmt.Sprintf("<= %.2f", mostRacks), Got: fmt.Sprintf("%.2f", x), Met: x <= mostRacks})
		if a.Known {
			j.factor("completion with gangs", a.Greedy, greedyFactor, mean)
		}
	}
	return j.gates
}

type judge struct {
	doc   *Document
	own   *Figures
	gates []Gate
}

// add adds a gate. No gate is met if jobs have not ended.
func (j *judge) add(g Gate) {
	if left := j.own.Jobs.Submitted - j.own.Jobs.Finished; left > 0 {
		g.Got, g.Met = fmt.Sprintf("%s, and %s jobs have not finished", g.Got, units.Count(left)), false
	}
	j.gates = append(j.gates, g)
}

// factor adds a gate: the figure may be at most this many times that of a yardstick.
func (j *judge) factor(name, run string, most float64, figure func(*Figures) float64) {
	if run == "" {
		return
	}
	i := slices.IndexFunc(j.doc.Runs, func(r Run) bool { return r.Name == run })
	got := figure(j.own)
	g := Gate{Name: name, Got: exact(got)}
	if i < 0 || j.doc.Runs[i].Figures == nil {
		g.Want = fmt.Sprintf("<= %.4g x %s, which was not run", most, run)
		j.add(g)
		return
	}
	limit := most * figure(j.doc.Runs[i].Figures)
	g.Want = fmt.Sprintf("<= %.4g x %s = %s", most, run, exact(limit))
	g.Met = got <= limit
	j.add(g)
}

// exact writes seconds without rounding them much.
func exact(s float64) string {
	if s >= 1000 {
		return units.Count(int64(s+0.5)) + " s"
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.1f", s), "0"), ".") + " s"
}
