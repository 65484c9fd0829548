package page

// A canvas of gonum/plot that writes SVG for a page: colors are classes, so that the page's style sheet decides on light
// and dark, and no element has a style of its own, so that a strict content security policy holds.

import (
	"html"
	"image"
	"image/color"
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/vg"
)

// ink is a color by its name in the style sheet.
type ink string

// RGBA makes an ink a color.Color. Nobody sees what it returns.
func (ink) RGBA() (r, g, b, a uint32) { return 0, 0, 0, 0xffff }

// canvas meets vg.Canvas and vg.CanvasSizer. Lengths are points; one of them is a unit of the SVG.
type canvas struct {
	w, h  vg.Length
	b     strings.Builder
	state state
	stack []state
}

// state is what Push saves. Places are transformed as (a*x+c*y+e, b*x+d*y+f).
type state struct {
	ink              string
	width            vg.Length
	dash             []vg.Length
	a, b, c, d, e, f float64
}

func newCanvas(w, h vg.Length) *canvas {
	return &canvas{w: w, h: h, state: state{ink: "fg", width: 1, a: 1, d: 1}}
}

func (c *canvas) Size() (w, h vg.Length) { return c.w, c.h }

func (c *canvas) SetLineWidth(w vg.Length) { c.state.width = w }

func (c *canvas) SetLineDash(pattern []vg.Length, _ vg.Length) { c.state.dash = pattern }

func (c *canvas) SetColor(k color.Color) {
	c.state.ink = "fg"
	if i, ok := k.(ink); ok {
		c.state.ink = string(i)
	}
}

func (c *canvas) Rotate(rad float64) {
	s := &c.state
	sin, cos := math.Sincos(rad)
	s.a, s.b, s.c, s.d = s.a*cos+s.c*sin, s.b*cos+s.d*sin, s.c*cos-s.a*sin, s.d*cos-s.b*sin
}

func (c *canvas) Translate(p vg.Point) {
	s := &c.state
	s.e, s.f = s.at(p)
}

func (c *canvas) Scale(x, y float64) {
	s := &c.state
	s.a, s.b, s.c, s.d = s.a*x, s.b*x, s.c*y, s.d*y
}

func (c *canvas) Push() { c.stack = append(c.stack, c.state) }

func (c *canvas) Pop() {
	n := len(c.stack) - 1
	c.state, c.stack = c.stack[n], c.stack[:n]
}

func (s *state) at(p vg.Point) (x, y float64) {
	return s.a*float64(p.X) + s.c*float64(p.Y) + s.e, s.b*float64(p.X) + s.d*float64(p.Y) + s.f
}

// number appends a coordinate with at most two digits after the point.
func (c *canvas) number(x float64) {
	t := strconv.FormatFloat(x, 'f', 2, 64)
	t = strings.TrimRight(strings.TrimRight(t, "0"), ".")
	if t == "-0" {
		t = "0"
	}
	c.b.WriteString(t)
}

func (c *canvas) point(p vg.Point) {
	x, y := c.state.at(p)
	c.number(x)
	c.b.WriteByte(' ')
	c.number(float64(c.h) - y)
}

func (c *canvas) Stroke(p vg.Path) {
	if c.state.width <= 0 || len(p) == 0 {
		return
	}
	c.b.WriteString(`<path class="s ` + c.state.ink + `" stroke-width="`)
	c.number(float64(c.state.width))
	if len(c.state.dash) > 0 {
		c.b.WriteString(`" stroke-dasharray="`)
		for i, d := range c.state.dash {
			if i > 0 {
				c.b.WriteByte(' ')
			}
			c.number(float64(d))
		}
	}
	c.path(p)
}

func (c *canvas) Fill(p vg.Path) {
	if len(p) == 0 {
		return
	}
	c.b.WriteString(`<path class="f ` + c.state.ink)
	c.path(p)
}

// path ends an element with a path. Arcs are drawn as short lines.
func (c *canvas) path(p vg.Path) {
	c.b.WriteString(`" d="`)
	for _, x := range p {
		switch x.Type {
		case vg.MoveComp:
			c.b.WriteByte('M')
			c.point(x.Pos)
		case vg.LineComp:
			c.b.WriteByte('L')
			c.point(x.Pos)
		case vg.ArcComp:
			const steps = 24
			for i := range steps + 1 {
				sin, cos := math.Sincos(x.Start + x.Angle*float64(i)/steps)
				c.b.WriteByte('L')
				c.point(x.Pos.Add(vg.Point{X: x.Radius * vg.Length(cos), Y: x.Radius * vg.Length(sin)}))
			}
		case vg.CurveComp:
			c.b.WriteByte([]byte("LQC")[len(x.Control)])
			for _, q := range x.Control {
				c.point(q)
				c.b.WriteByte(' ')
			}
			c.point(x.Pos)
		case vg.CloseComp:
			c.b.WriteByte('Z')
		}
	}
	c.b.WriteString(`"/>`)
}

func (c *canvas) FillString(f font.Face, p vg.Point, text string) {
	if f.Font.Size == 0 || text == "" {
		return
	}
	x, y := c.state.at(p)
	y = float64(c.h) - y
	c.b.WriteString(`<text class="f ` + c.state.ink + `" x="`)
	c.number(x)
	c.b.WriteString(`" y="`)
	c.number(y)
	c.b.WriteString(`" font-size="`)
	c.number(float64(f.Font.Size))
	// as wide as it was measured, so that it is aligned with every font
	c.b.WriteString(`" lengthAdjust="spacingAndGlyphs" textLength="`)
	c.number(float64(f.Width(text)))
	if turn := math.Atan2(c.state.b, c.state.a); turn != 0 {
		c.b.WriteString(`" transform="rotate(`)
		c.number(-turn * 180 / math.Pi)
		c.b.WriteByte(' ')
		c.number(x)
		c.b.WriteByte(' ')
		c.number(y)
		c.b.WriteByte(')')
	}
	c.b.WriteString(`">` + html.EscapeString(text) + `</text>`)
}

// DrawImage draws nothing: no picture of a report has images.
func (c *canvas) DrawImage(vg.Rectangle, image.Image) {}

// svg returns the picture, with a text for those who cannot see it.
func (c *canvas) svg(label string) string {
	size := func(x vg.Length) string { return strconv.FormatFloat(float64(x), 'f', -1, 64) }
	return `<svg viewBox="0 0 ` + size(c.w) + ` ` + size(c.h) + `" role="img" aria-label="` + html.EscapeString(label) + `">` + c.b.String() + `</svg>`
}
