package page

// The pictures of figures.

import (
	"math"
	"slices"

	"github.com/musterhq/muster/internal/sim/report"
)

// steps returns the means of a series as a line with steps.
func steps(s report.Series, end float64, values []float64, scale func(float64) float64) []point {
	var out []point
	for i, v := range values {
		if scale != nil {
			v = scale(v)
		}
		from := float64(i) * s.Step
		if from >= end {
			break
		}
		out = append(out, point{from, v}, point{min(end, from+s.Step), v})
	}
	return out
}

// curve draws a line. Points above the axis are drawn at its end.
func (p *plot) curve(k ink, width float64, at []point) {
	p.line(k, width, p.within(at)...)
}

// area fills the area below a line.
func (p *plot) area(k ink, at []point) {
	if len(at) == 0 {
		return
	}
	from, until := point{at[0].x, p.y.from}, point{at[len(at)-1].x, p.y.from}
	p.fill(k, p.within(slices.Concat([]point{from}, at, []point{until}))...)
}

// within returns the places where points of the data are drawn.
func (p *plot) within(at []point) []point {
	out := make([]point, 0, len(at))
	for _, q := range at {
		out = append(out, p.at(q.x, min(q.y, p.y.to)))
	}
	return out
}

// faultMarks draws marks on the axis of time, one for each fault.
func (p *plot) faultMarks(faults []report.FaultCost) {
	for _, m := range faults {
		if m.At <= p.x.to {
			foot := p.at(m.At, p.y.from)
			p.fill("fault", point{foot.x - 3, foot.y + 1}, point{foot.x + 3, foot.y + 1}, point{foot.x, foot.y - 6})
		}
	}
}

// manyFaults is how many bands are drawn at most.
const manyFaults = 24

// faultBands draws bands for the time of faults that hit several machines. They are drawn below everything else.
func (p *plot) faultBands(faults []report.FaultCost) {
	bands := 0
	for _, m := range faults {
		if m.At > p.x.to || m.Machines < 2 || bands == manyFaults {
			continue
		}
		bands++
		until := p.x.to
		if m.Until > 0 {
			until = min(until, m.Until)
		}
		a, b := p.at(m.At, p.y.to), p.at(until, p.y.from)
		p.box("fault-band", a.x, a.y, b.x-a.x, b.y-a.y)
		p.dashed("fault", point{a.x, a.y}, point{a.x, b.y})
	}
}

// useChart draws what is allocated over time.
func useChart(f *report.Figures) string {
	end := max(f.End, 1e-3)
	p := newPlot(wide, high, left, axis{0, end, times(end)}, axis{0, 1, percents(1)})
	line := func(values []float64) []point { return steps(f.Series, f.End, values, nil) }
	p.faultBands(f.Faults)
	p.area("gpu-area", line(f.Series.GPUs))
	p.curve("mem", 1.2, line(f.Series.Memory))
	p.curve("cpu", 1.2, line(f.Series.CPUs))
	p.curve("frag", 1.2, line(f.Series.Fragments))
	p.curve("gpu", 1.8, line(f.Series.GPUs))
	p.faultMarks(f.Faults)
	return p.svg("GPUs, CPUs and memory in use, and fragments, over time")
}

// runInk returns the color of a run.
func runInk(i int) ink {
	if i == 0 {
		return "run0"
	}
	return ink("run" + string(rune('1'+(i-1)%8)))
}

// runWidth returns the width of a run's line: muster's line is thick.
func runWidth(i int) float64 {
	if i == 0 {
		return 2
	}
	return 1.2
}

// queueChart draws how many jobs wait over time, for each run. It reports whether its scale is logarithmic.
func queueChart(runs []report.Run) (svg string, logarithmic bool) {
	most, least, end := 1.0, math.Inf(1), 0.0
	for _, r := range runs {
		top := slices.Max(append(slices.Clone(r.Figures.Series.Waiting), 1))
		most, least, end = max(most, top), min(least, top), max(end, r.Figures.End)
	}
	m, top := counts(most)
	scale := func(x float64) float64 { return x }
	if logarithmic = most > 4*least && most > 100; logarithmic {
		m, top = decades(most)
		scale = log1
	}
	end = max(end, 1e-3)
	p := newPlot(wide, low, left, axis{0, end, times(end)}, axis{0, top, m})
	p.faultBands(runs[0].Figures.Faults)
	for i, r := range slices.Backward(runs) {
		at := steps(r.Figures.Series, r.Figures.End, r.Figures.Series.Waiting, scale)
		if i == 0 {
			p.area("run0-area", at)
		}
		p.curve(runInk(i), runWidth(i), at)
	}
	p.faultMarks(runs[0].Figures.Faults)
	return p.svg("jobs that wait, over time"), logarithmic
}

// rows returns a vertical axis with names, from the top.
func rows(names []string) axis {
	a := axis{from: -0.6, to: float64(len(names)) - 0.4}
	for i, n := range names {
		a.marks = append(a.marks, mark{float64(len(names) - 1 - i), n})
	}
	return a
}

// dots draws the quantiles of one row: a line from p50 to p99, and dots for p50, p95 and p99 and the mean.
func (p *plot) dots(y float64, s report.Spread) {
	at := func(v float64) point { return p.at(min(log1(v), p.x.to), y) }
	p.line("gpu-area", 7, at(s.P50), at(s.P99))
	p.disc("gpu-light", 3.5, at(s.P99))
	p.disc("gpu-mid", 3.5, at(s.P95))
	p.disc("gpu", 3.5, at(s.P50))
	mean := at(s.Mean)
	p.line("fg", 1.5, point{mean.x, mean.y - 6}, point{mean.x, mean.y + 6})
}

// spreadChart draws how long groups of jobs wait.
func spreadChart(groups []report.Group, label string) string {
	groups = slices.DeleteFunc(slices.Clone(groups), func(g report.Group) bool { return g.Wait.N == 0 })
	if len(groups) == 0 {
		return ""
	}
	var names []string
	most := 1.0
	for _, g := range groups {
		names = append(names, nameOf(g))
		most = max(most, g.Wait.P99, g.Wait.Mean)
	}
	m, top := spans(most)
	p := newPlot(narrow, spreadHigh(groups), 96, axis{0, top, m}, rows(names))
	for i, g := range groups {
		p.dots(float64(len(groups)-1-i), g.Wait)
	}
	return p.svg(label)
}

// spreadHigh returns the height of the picture of groups.
func spreadHigh(groups []report.Group) float64 { return float64(40 + 22*len(groups)) }

func nameOf(g report.Group) string {
	if g.Name == "" {
		return "(none)"
	}
	return g.Name
}

// loadChart draws how much is allocated, by how much is asked for.
func loadChart(runs []report.Run, high float64) string {
	const most = 1.3
	p := newPlot(narrow, high, left, axis{0, most, percents(most)}, axis{0, 1, percents(1)})
	p.curve("ideal", 1, []point{{0, 0}, {1, 1}, {most, 1}})
	for i, r := range slices.Backward(runs) {
		p.curve(runInk(i), runWidth(i), coarse(pointsOf(r), most))
	}
	return p.svg("GPUs allocated against GPUs asked for")
}

// coarse returns the means over steps of a few percent, weighted by the duration of each point. Steps with hardly any
// time are left out.
func coarse(points []report.Point, most float64) []point {
	const step, hardly = 0.025, 1e-4
	type sum struct{ asked, allocated, weight float64 }
	bins := make([]sum, int(most/step)+1)
	all := 0.0
	for _, q := range points {
		weight := q.For
		if weight == 0 {
			weight = 1
		}
		all += weight
		if i := int(q.Asked/step + 1e-6); i >= 0 && i < len(bins) {
			bins[i].asked += q.Asked * weight
			bins[i].allocated += q.Allocated * weight
			bins[i].weight += weight
		}
	}
	var out []point
	for _, b := range bins {
		if b.weight > hardly*all {
			out = append(out, point{b.asked / b.weight, b.allocated / b.weight})
		}
	}
	return out
}

func pointsOf(r report.Run) []report.Point {
	if r.Placement != nil {
		return r.Placement.Curve
	}
	if r.Figures != nil {
		return r.Figures.Curve
	}
	return nil
}

// bar draws the bar of one row. A bar that is longer than the axis has a gap near its end.
func (p *plot) bar(y, x float64, k ink) {
	from, end := p.at(p.x.from, y), p.at(min(x, p.x.to), y)
	if x <= p.x.to {
		p.box(k, from.x, from.y-5, end.x-from.x, 10)
		return
	}
	p.box(k, from.x, from.y-5, end.x-9-from.x, 10)
	p.box(k, end.x-6, from.y-5, 6, 10)
}

// farther says how many times longer than the next one a bar must be to be cut.
const farther = 4

// barChart draws one figure of all runs, each as a bar from 0. It reports whether the longest bar is cut, because all
// others would be too short to compare.
func barChart(runs []report.Run, f report.Figure) (svg string, cut bool) {
	var names []string
	var values []float64
	for _, r := range runs {
		v, _ := f.Of(r)
		values = append(values, v)
		names = append(names, r.Name)
	}
	sorted := slices.Sorted(slices.Values(values))
	most := sorted[len(sorted)-1]
	if most <= 0 {
		return "", false
	}
	if n := len(sorted); n > 2 && sorted[n-2] > 0 && most > farther*sorted[n-2] {
		most, cut = 1.25*sorted[n-2], true
	}
	p := newPlot(272, float64(34+18*len(runs)), 82, axis{0, most, []mark{{0, "0"}, {most, f.Say(most)}}}, rows(names))
	for i, v := range values {
		k := ink("bar")
		if i == 0 {
			k = "run0"
		}
		p.bar(float64(len(runs)-1-i), v, k)
	}
	return p.svg(f.Name + " of each run"), cut
}
