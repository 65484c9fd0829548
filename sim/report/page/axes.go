package page

// Axes that all pictures share: where their marks are, and how they look.

import (
	"math"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/musterhq/muster/sim/report/units"
)

// Sizes of pictures, in points. A wide one fills the page, two narrow ones stand side by side.
const (
	wide, narrow = 1120, 548
	low, high    = 190, 250
	textSize     = 11
	left         = 46 // room for the marks of the vertical axis, so that pictures below each other are aligned
)

var sans = font.Font{Typeface: "Liberation", Variant: "Sans", Size: textSize}

// newPlot returns an empty plot with quiet axes. Its marks are those that the tickers say.
func newPlot(x, y plot.Ticker) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Tick.Label.Font = sans
		a.Tick.Label.Color = ink("mute")
		a.Label.TextStyle.Font = sans
		a.Label.TextStyle.Color = ink("mute")
		a.Color = ink("axis")
		a.Width = 1
		a.Tick.Color = ink("axis")
		a.Tick.Width = 1
		a.Tick.Length = 4
		a.Padding = 0
	}
	p.Y.Width, p.Y.Tick.Width, p.Y.Tick.Length = 0, 0, 0
	p.X.Tick.Marker, p.Y.Tick.Marker = x, y
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color, grid.Horizontal.Width = ink("grid"), 1
	p.Add(grid)
	return p
}

// drawPlot draws a plot with its data from the same place on as every other one.
func drawPlot(p *plot.Plot, w, h, room vg.Length, label string) string {
	widest := vg.Length(0)
	for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
		if !t.IsMinor() {
			widest = max(widest, p.Y.Tick.Label.Width(t.Label))
		}
	}
	p.Y.Padding = 7
	c := newCanvas(w, h)
	p.Draw(draw.Crop(draw.New(c), max(0, room-widest-p.Y.Label.TextStyle.Width(" ")-p.Y.Padding), -8, 0, -4))
	return c.svg(label)
}

// timeTicks marks round times, at most so many.
type timeTicks struct{ most int }

var timeSteps = []time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 5 * day, 10 * day, 20 * day, 50 * day, 100 * day, 200 * day, 500 * day, 1000 * day,
}

const day = 24 * time.Hour

func (t timeTicks) Ticks(from, to float64) []plot.Tick {
	i := 0
	for i < len(timeSteps)-1 && (to-from)/timeSteps[i].Seconds() > float64(t.most) {
		i++
	}
	step := timeSteps[i].Seconds()
	unit, name := 1.0, "s"
	switch {
	case timeSteps[i] >= 12*time.Hour && to > 2*day.Seconds():
		unit, name = day.Seconds(), "d"
	case timeSteps[i] >= 30*time.Minute && to > 2*3600:
		unit, name = 3600, "h"
	case timeSteps[i] >= time.Minute:
		unit, name = 60, "min"
	}
	var out []plot.Tick
	for x := math.Ceil(from/step) * step; x <= to && len(out) <= 2*t.most; x += step {
		out = append(out, plot.Tick{Value: x, Label: strconv.FormatFloat(math.Round(x/unit*1000)/1000, 'f', -1, 64) + " " + name})
	}
	return out
}

// marks are fixed ones.
type marks []plot.Tick

func (m marks) Ticks(float64, float64) []plot.Tick { return m }

// percents marks parts of a whole up to most, in steps of 25 %, or larger ones.
func percents(most float64) marks {
	step := 0.25
	for most/step > 8 {
		step *= 2
	}
	var m marks
	for x := 0.0; x <= most+1e-9; x += step {
		m = append(m, plot.Tick{Value: x, Label: strconv.Itoa(int(math.Round(100*x))) + "%"})
	}
	return m
}

// counts marks round numbers from 0 to beyond most.
func counts(most float64) (m marks, top float64) {
	step := 1.0
	for i := 0; most/step > 5; i++ {
		step *= []float64{2, 2.5, 2}[i%3]
	}
	for x := 0.0; ; x += step {
		m = append(m, plot.Tick{Value: x, Label: units.Count(int64(math.Round(x)))})
		if x >= most {
			return m, max(x, step)
		}
	}
}

// decades marks powers of ten on the scale of log1.
func decades(most float64) (m marks, top float64) {
	m = marks{{Value: 0, Label: "0"}}
	for x := 1.0; ; x *= 10 {
		m = append(m, plot.Tick{Value: log1(x), Label: units.Count(int64(x))})
		if x >= most {
			return m, log1(x)
		}
	}
}

// log1 is a logarithmic scale that has a 0.
func log1(x float64) float64 { return math.Log10(1 + max(0, x)) }

// spans marks spans of time on the scale of log1, in seconds.
func spans(most float64) (m marks, top float64) {
	m = marks{{Value: 0, Label: "0"}}
	for _, x := range []float64{1, 10, 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400, 1000 * 86400} {
		m = append(m, plot.Tick{Value: log1(x), Label: roundSpan(x)})
		if x >= most {
			break
		}
	}
	return m, m[len(m)-1].Value
}

// roundSpan says a span without the parts that are 0.
func roundSpan(x float64) string {
	for _, u := range []struct {
		name string
		s    float64
	}{{" d", 86400}, {" h", 3600}, {" min", 60}} {
		if x >= u.s {
			return strconv.Itoa(int(x/u.s)) + u.name
		}
	}
	return strconv.Itoa(int(x)) + " s"
}
