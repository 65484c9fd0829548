package page

// Axes, which all pictures share: where their marks are, and how they look.

import (
	"math"
	"strconv"
	"time"

	"github.com/musterhq/muster/internal/sim/report/units"
)

// Sizes of pictures, in points. A wide one fills the page, two narrow ones stand side by side.
const (
	wide, narrow = 1120, 548
	low, high    = 190, 250
	left         = 46 // room for the marks of the vertical axis, so that pictures below each other are aligned
)

// mark is a place on an axis with what is written there.
type mark struct {
	at    float64
	label string
}

// axis goes from one value of the data to another.
type axis struct {
	from, to float64
	marks    []mark
}

// plot is a picture with two axes.
type plot struct {
	*picture
	x, y                     axis
	left, right, top, bottom float64 // of what the axes enclose
}

// newPlot returns a plot with quiet axes and no data. room is the width for the marks at its left.
func newPlot(w, h, room float64, x, y axis) *plot {
	p := &plot{picture: newPicture(w, h), x: x, y: y, left: room, right: w - 8, top: 8, bottom: h - 18}
	for _, m := range x.marks {
		if m.at == x.to {
			p.right = min(p.right, w-textWidth(m.label)/2)
		}
	}
	for _, m := range y.marks {
		at := p.at(x.from, m.at)
		p.line("grid", 1, at, point{p.right, at.y})
		p.text("mute", atEnd, point{at.x - 9, at.y}, m.label)
	}
	p.line("axis", 1, point{p.left, p.bottom}, point{p.right, p.bottom})
	for _, m := range x.marks {
		at := p.at(m.at, y.from)
		p.line("axis", 1, at, point{at.x, at.y + 4})
		p.text("mute", atMiddle, point{at.x, at.y + 12}, m.label)
	}
	return p
}

// at returns where a point of the data is drawn.
func (p *plot) at(x, y float64) point {
	return point{
		p.left + (x-p.x.from)/(p.x.to-p.x.from)*(p.right-p.left),
		p.bottom - (y-p.y.from)/(p.y.to-p.y.from)*(p.bottom-p.top),
	}
}

var timeSteps = []time.Duration{
	time.Millisecond, 10 * time.Millisecond, 100 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 5 * day, 10 * day, 20 * day, 50 * day, 100 * day, 200 * day, 500 * day, 1000 * day,
}

const day = 24 * time.Hour

// times returns marks at about a dozen round times, from 0 on.
func times(to float64) []mark {
	const most = 12
	i := 0
	for i < len(timeSteps)-1 && to/timeSteps[i].Seconds() > most {
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
	var out []mark
	for x := 0.0; x <= to && len(out) <= 2*most; x += step {
		out = append(out, mark{x, strconv.FormatFloat(math.Round(x/unit*1000)/1000, 'f', -1, 64) + " " + name})
	}
	return out
}

// percents returns marks at parts of a whole up to most, in steps of 25 % or larger ones.
func percents(most float64) []mark {
	step := 0.25
	for most/step > 8 {
		step *= 2
	}
	var m []mark
	for x := 0.0; x <= most+1e-9; x += step {
		m = append(m, mark{x, strconv.Itoa(int(math.Round(100*x))) + "%"})
	}
	return m
}

// counts returns marks at round numbers from 0 to beyond most.
func counts(most float64) (m []mark, top float64) {
	step := 1.0
	for i := 0; most/step > 5; i++ {
		step *= []float64{2, 2.5, 2}[i%3]
	}
	for x := 0.0; ; x += step {
		m = append(m, mark{x, units.Count(int64(math.Round(x)))})
		if x >= most {
			return m, max(x, step)
		}
	}
}

// decades returns marks at powers of ten on the scale of log1.
func decades(most float64) (m []mark, top float64) {
	m = []mark{{0, "0"}}
	for x := 1.0; ; x *= 10 {
		m = append(m, mark{log1(x), units.Count(int64(x))})
		if x >= most {
			return m, log1(x)
		}
	}
}

// log1 maps a value to a logarithmic scale that has a 0.
func log1(x float64) float64 { return math.Log10(1 + max(0, x)) }

// spans returns marks at spans of time on the scale of log1, in seconds.
func spans(most float64) (m []mark, top float64) {
	m = []mark{{0, "0"}}
	for _, x := range []float64{1, 10, 60, 600, 3600, 6 * 3600, 86400, 10 * 86400, 100 * 86400, 1000 * 86400} {
		m = append(m, mark{log1(x), roundSpan(x)})
		if x >= most {
			break
		}
	}
	return m, m[len(m)-1].at
}

// roundSpan writes a span without the parts that are 0.
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
