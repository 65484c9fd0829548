package page

// The pictures of figures.

import (
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/musterhq/muster/sim/report"
)

// curve is one line of a picture.
type curve struct {
	ink   ink
	width vg.Length
	at    plotter.XYs
}

// steps returns the means of a series as a line with steps.
func steps(s report.Series, end float64, values []float64, scale func(float64) float64) plotter.XYs {
	var out plotter.XYs
	for i, v := range values {
		if scale != nil {
			v = scale(v)
		}
		from := float64(i) * s.Step
		if from >= end {
			break
		}
		out = append(out, plotter.XY{X: from, Y: v}, plotter.XY{X: min(end, from+s.Step), Y: v})
	}
	return out
}

// Plot draws the line. What is above the axis is drawn at its end.
func (l curve) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	points := make([]vg.Point, 0, len(l.at))
	for _, q := range l.at {
		points = append(points, vg.Point{X: x(q.X), Y: y(min(q.Y, p.Y.Max))})
	}
	c.StrokeLines(draw.LineStyle{Color: l.ink, Width: l.width}, points)
}

// area is what is below a line.
type area struct {
	ink ink
	at  plotter.XYs
}

func (a area) Plot(c draw.Canvas, p *plot.Plot) {
	if len(a.at) == 0 {
		return
	}
	x, y := p.Transforms(&c)
	points := []vg.Point{{X: x(a.at[0].X), Y: y(p.Y.Min)}}
	for _, q := range a.at {
		points = append(points, vg.Point{X: x(q.X), Y: y(min(q.Y, p.Y.Max))})
	}
	points = append(points, vg.Point{X: x(a.at[len(a.at)-1].X), Y: y(p.Y.Min)})
	c.FillPolygon(a.ink, points)
}

// faultMarks are marks on the axis of time, one for each fault.
type faultMarks []report.FaultCost

func (f faultMarks) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	for _, m := range f {
		if m.At <= p.X.Max {
			at := x(m.At)
			c.FillPolygon(ink("fault"), []vg.Point{{X: at - 3, Y: c.Min.Y - 1}, {X: at + 3, Y: c.Min.Y - 1}, {X: at, Y: c.Min.Y + 6}})
		}
	}
}

// faultBands are bands for the time of faults that hit several machines. They are drawn below everything else.
type faultBands []report.FaultCost

// manyFaults is how many bands are drawn at most.
const manyFaults = 24

func (f faultBands) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	bands := 0
	for _, m := range f {
		if m.At > p.X.Max || m.Machines < 2 || bands == manyFaults {
			continue
		}
		bands++
		at, until := x(m.At), x(p.X.Max)
		if m.Until > 0 {
			until = x(min(p.X.Max, m.Until))
		}
		c.FillPolygon(ink("fault-band"), []vg.Point{{X: at, Y: c.Min.Y}, {X: until, Y: c.Min.Y}, {X: until, Y: c.Max.Y}, {X: at, Y: c.Max.Y}})
		c.StrokeLine2(draw.LineStyle{Color: ink("fault"), Width: 1, Dashes: []vg.Length{3, 3}}, at, c.Min.Y, at, c.Max.Y)
	}
}

// useChart draws what is allocated over time.
func useChart(f *report.Figures) string {
	p := newPlot(timeTicks{12}, percents(1))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, max(f.End, 1e-3), 0, 1
	line := func(values []float64) plotter.XYs { return steps(f.Series, f.End, values, nil) }
	p.Add(faultBands(f.Faults), area{"gpu-area", line(f.Series.GPUs)}, curve{"mem", 1.2, line(f.Series.Memory)}, curve{"cpu", 1.2, line(f.Series.CPUs)},
		curve{"frag", 1.2, line(f.Series.Fragments)}, curve{"gpu", 1.8, line(f.Series.GPUs)}, faultMarks(f.Faults))
	return drawPlot(p, wide, high, left, "GPUs, CPUs and memory in use, and fragments, over time")
}

// runInk is the color of a run.
func runInk(i int) ink {
	if i == 0 {
		return "run0"
	}
	return ink("run" + string(rune('1'+(i-1)%8)))
}

// runWidth is the width of a run's line: muster's is the thick one.
func runWidth(i int) vg.Length {
	if i == 0 {
		return 2
	}
	return 1.2
}

// queueChart draws how many jobs wait over time, for each run. It says whether its scale is logarithmic.
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
	p := newPlot(timeTicks{12}, m)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, max(end, 1e-3), 0, top
	p.Add(faultBands(runs[0].Figures.Faults))
	for i, r := range slices.Backward(runs) {
		at := steps(r.Figures.Series, r.Figures.End, r.Figures.Series.Waiting, scale)
		if i == 0 {
			p.Add(area{"run0-area", at})
		}
		p.Add(curve{runInk(i), runWidth(i), at})
	}
	p.Add(faultMarks(runs[0].Figures.Faults))
	return drawPlot(p, wide, low, left, "jobs that wait, over time"), logarithmic
}

// rows are names on a vertical axis, from the top.
func rows(names []string) marks {
	var m marks
	for i, n := range names {
		m = append(m, plot.Tick{Value: float64(len(names) - 1 - i), Label: n})
	}
	return m
}

// dots are the quantiles of one row: a line from p50 to p99, and dots for p50, p95 and p99 and the mean.
type dots struct {
	y      float64
	spread report.Spread
}

func (d dots) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := func(v float64) vg.Point { return vg.Point{X: x(min(log1(v), p.X.Max)), Y: y(d.y)} }
	s := d.spread
	c.StrokeLines(draw.LineStyle{Color: ink("gpu-area"), Width: 7}, []vg.Point{at(s.P50), at(s.P99)})
	disc := func(v float64, k ink, r vg.Length) {
		c.DrawGlyph(draw.GlyphStyle{Color: k, Radius: r, Shape: draw.CircleGlyph{}}, at(v))
	}
	disc(s.P99, "gpu-light", 3.5)
	disc(s.P95, "gpu-mid", 3.5)
	disc(s.P50, "gpu", 3.5)
	mean := at(s.Mean)
	c.StrokeLine2(draw.LineStyle{Color: ink("fg"), Width: 1.5}, mean.X, mean.Y-6, mean.X, mean.Y+6)
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
	p := newPlot(m, rows(names))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, top, -0.6, float64(len(groups))-0.4
	for i, g := range groups {
		p.Add(dots{float64(len(groups) - 1 - i), g.Wait})
	}
	return drawPlot(p, narrow, spreadHigh(groups), 96, label)
}

// spreadHigh is how high the picture of groups is.
func spreadHigh(groups []report.Group) vg.Length { return vg.Length(40 + 22*len(groups)) }

func nameOf(g report.Group) string {
	if g.Name == "" {
		return "(none)"
	}
	return g.Name
}

// loadChart draws what is allocated while so much is asked for.
func loadChart(runs []report.Run, high vg.Length) string {
	const most = 1.3
	p := newPlot(percents(most), percents(1))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, most, 0, 1
	p.Add(curve{"ideal", 1, plotter.XYs{{X: 0, Y: 0}, {X: 1, Y: 1}, {X: most, Y: 1}}})
	for i, r := range slices.Backward(runs) {
		p.Add(curve{runInk(i), runWidth(i), coarse(pointsOf(r), most)})
	}
	return drawPlot(p, narrow, high, left, "GPUs allocated against GPUs asked for")
}

// coarse returns the means over steps of a few percent, weighted by the time that each point was so. What was so for
// hardly any time is left out.
func coarse(points []report.Point, most float64) plotter.XYs {
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
	var out plotter.XYs
	for _, b := range bins {
		if b.weight > hardly*all {
			out = append(out, plotter.XY{X: b.asked / b.weight, Y: b.allocated / b.weight})
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

// bar is a bar of one row. One that is longer than the axis has a gap near its end.
type bar struct {
	y, x float64
	ink  ink
}

func (b bar) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := y(b.y)
	from := func(a, b vg.Length, k ink) {
		c.FillPolygon(k, []vg.Point{{X: a, Y: at - 5}, {X: b, Y: at - 5}, {X: b, Y: at + 5}, {X: a, Y: at + 5}})
	}
	end := x(min(b.x, p.X.Max))
	if b.x <= p.X.Max {
		from(x(p.X.Min), end, b.ink)
		return
	}
	from(x(p.X.Min), end-9, b.ink)
	from(end-6, end, b.ink)
}

// farther is how many times as long as the next one a bar must be to be cut.
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
	p := newPlot(marks{{Value: 0, Label: "0"}, {Value: most, Label: f.Say(most)}}, rows(names))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, most, -0.6, float64(len(runs))-0.4
	for i, v := range values {
		k := ink("bar")
		if i == 0 {
			k = "run0"
		}
		p.Add(bar{float64(len(runs) - 1 - i), v, k})
	}
	return drawPlot(p, 272, vg.Length(34+18*len(runs)), 82, f.Name+" of each run"), cut
}
