package report

// Documents side by side.

import (
	"fmt"
	"io"
	"math"

	"github.com/musterhq/muster/internal/sim/report/units"
)

// Named is a document with the name under which it is compared, such as the name of its file.
type Named struct {
	Name string
	Doc  *Document
}

// Figure is one row of a comparison.
type Figure struct {
	Name string
	Say  func(float64) string
	// Of returns the figure of a run, and whether the run has it.
	Of func(Run) (float64, bool)
}

// Compared lists the figures in which runs are compared.
var Compared = compared()

func compared() []Figure {
	count := func(x float64) string { return units.Count(int64(math.Round(x))) }
	some := func(of func(*Figures) (float64, bool)) func(Run) (float64, bool) {
		return func(r Run) (float64, bool) {
			if r.Figures == nil {
				return 0, false
			}
			return of(r.Figures)
		}
	}
	figure := func(of func(*Figures) float64) func(Run) (float64, bool) {
		return some(func(f *Figures) (float64, bool) { return of(f), true })
	}
	placed := func(of func(*Placement) float64) func(Run) (float64, bool) {
		return func(r Run) (float64, bool) {
			if r.Placement == nil {
				return 0, false
			}
			return of(r.Placement), true
		}
	}
	return []Figure{
		{"jobs finished", count, figure(func(f *Figures) float64 { return float64(f.Jobs.Finished) })},
		{"GPUs used", units.Percent, figure(func(f *Figures) float64 { return f.Use.GPUs })},
		{"CPUs used", units.Percent, figure(func(f *Figures) float64 { return f.Use.CPUs })},
		{"memory used", units.Percent, figure(func(f *Figures) float64 { return f.Use.Memory })},
		{"fragments of GPUs", units.Percent, figure(func(f *Figures) float64 { return f.Use.Fragments })},
		{"wait, mean", units.Span, figure(func(f *Figures) float64 { return f.Wait.Mean })},
		{"wait, p50", units.Span, figure(func(f *Figures) float64 { return f.Wait.P50 })},
		{"wait, p95", units.Span, figure(func(f *Figures) float64 { return f.Wait.P95 })},
		{"wait, p99", units.Span, figure(func(f *Figures) float64 { return f.Wait.P99 })},
		{"wait, longest", units.Span, figure(func(f *Figures) float64 { return f.Wait.Max })},
		{"completion, mean", units.Span, figure(func(f *Figures) float64 { return f.Completion.Mean })},
		{"completion, p99", units.Span, figure(func(f *Figures) float64 { return f.Completion.P99 })},
		{"slowdown, mean", units.Digits, figure(func(f *Figures) float64 { return f.Slowdown.Mean })},
		{"makespan", units.Span, figure(func(f *Figures) float64 { return f.Makespan })},
		{"fairness (Jain)", units.Digits, some(func(f *Figures) (float64, bool) { return f.Fairness, f.UserCount > 1 })},
		{"preemptions", count, figure(func(f *Figures) float64 { return float64(f.Again.Preemptions) })},
		{"runs ended by faults", count, figure(func(f *Figures) float64 { return float64(f.Again.Lost) })},
		{"GPU-hours lost", units.Digits, figure(func(f *Figures) float64 { return f.Again.LostGPU / 3600 })},
		{"starts elsewhere", count, some(func(f *Figures) (float64, bool) { return float64(f.Remote.Away), f.Remote.Away > 0 })},
		{"hops of a task", units.Digits, some(func(f *Figures) (float64, bool) { return f.Remote.Hops, f.Remote.Away > 0 })},
		{"allocated at 100%", fine, placed(func(p *Placement) float64 { return p.At100 })},
		{"allocated at 130%", fine, placed(func(p *Placement) float64 { return p.At130 })},
		{"fragments at 100%", fine, placed(func(p *Placement) float64 { return p.Fragments })},
		{"rejected", count, placed(func(p *Placement) float64 { return float64(p.Rejected) })},
	}
}

// Difference returns by how much b differs from a, in percent of a: +4.2%. It is = if they are equal, and empty if a is
// 0.
func Difference(a, b float64) string {
	switch a {
	case b:
		return "="
	case 0:
		return ""
	}
	x := 100 * (b - a) / a
	switch {
	case math.Abs(x) < 0.05:
		return "0.0%"
	case math.Abs(x) >= 999.5:
		return fmt.Sprintf("%+.0f%%", x)
	}
	return fmt.Sprintf("%+.1f%%", x)
}

// Compare prints the first runs of documents side by side, with the differences from the first document. Figures that
// no document has, or that are 0 in all, are left out.
func Compare(out io.Writer, docs []Named) {
	if len(docs) == 0 {
		return
	}
	const label, value, difference = 22, 10, 9
	const most = (Width - label - value) / (value + difference) // further documents are printed below
	for rest := docs[1:]; ; rest = rest[most:] {
		n := min(most, len(rest))
		compareSome(out, docs[0], rest[:n], label, value, difference)
		if len(rest) <= most {
			return
		}
		fmt.Fprintln(out)
	}
}

func compareSome(out io.Writer, first Named, others []Named, label, value, difference int) {
	widths := []int{label, value}
	cells := []string{"", clip(first.Name, value-1)}
	for _, o := range others {
		widths = append(widths, value+difference)
		cells = append(cells, clip(o.Name, value+difference-2))
	}
	columns{out, widths}.row(cells...)
	widths = []int{label, value}
	for range others {
		widths = append(widths, value, difference)
	}
	c := columns{out, widths}
	for _, f := range Compared {
		a, known := f.Of(first.Doc.Runs[0])
		some := known && a != 0
		cells := []string{f.Name, "-"}
		if known {
			cells[1] = f.Say(a)
		}
		for _, o := range others {
			b, has := f.Of(o.Doc.Runs[0])
			some = some || has && b != 0
			switch {
			case !has:
				cells = append(cells, "-", "")
			case !known:
				cells = append(cells, f.Say(b), "")
			default:
				cells = append(cells, f.Say(b), Difference(a, b))
			}
		}
		if some {
			c.row(cells...)
		}
	}
}
