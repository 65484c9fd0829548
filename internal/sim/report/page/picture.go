package page

// A picture of lines, areas and texts, written as SVG for a page: colors are classes, so that the page's style sheet decides
// on light and dark, and no element has a style of its own, so that a strict content security policy holds.
//
// gonum/plot, which drew the axes before, made the program 7 MB larger and gave each verb 4 MB more memory. go-echarts needs
// 1 MB of script in each page, which the policy refuses.

import (
	"html"
	"strconv"
	"strings"
)

// ink is a color by its name in the style sheet.
type ink string

// point is a place: in a picture x grows to the right and y downwards, in points; in data both are values.
type point struct{ x, y float64 }

// picture is an SVG that is being written.
type picture struct {
	w, h float64
	b    strings.Builder
}

func newPicture(w, h float64) *picture { return &picture{w: w, h: h} }

// path is what one element draws.
type path struct{ b strings.Builder }

// line adds a line from point to point.
func (d *path) line(points ...point) {
	for i, p := range points {
		d.b.WriteByte([]byte("ML")[min(i, 1)])
		d.b.WriteString(number(p.x) + " " + number(p.y))
	}
}

// box adds a rectangle.
func (d *path) box(x, y, w, h float64) {
	d.line(point{x, y}, point{x + w, y}, point{x + w, y + h}, point{x, y + h})
	d.b.WriteByte('Z')
}

// number returns a coordinate with at most two digits after the point. A coordinate that is far outside the picture is
// limited.
func number(x float64) string {
	const far = 1e5
	if !(x > -far) { // also if it is not a number
		x = -far
	}
	t := strconv.FormatFloat(min(x, far), 'f', 2, 64)
	t = strings.TrimRight(strings.TrimRight(t, "0"), ".")
	if t == "-0" {
		return "0"
	}
	return t
}

// stroke draws a path as a line.
func (p *picture) stroke(k ink, width float64, d *path) {
	if d.b.Len() > 0 {
		p.b.WriteString(`<path class="s ` + string(k) + `" stroke-width="` + number(width) + `" d="` + d.b.String() + `"/>`)
	}
}

// fillPath fills what a path encloses.
func (p *picture) fillPath(k ink, d *path) {
	if d.b.Len() > 0 {
		p.b.WriteString(`<path class="f ` + string(k) + `" d="` + d.b.String() + `"/>`)
	}
}

func (p *picture) line(k ink, width float64, points ...point) {
	var d path
	d.line(points...)
	p.stroke(k, width, &d)
}

func (p *picture) dashed(k ink, from, to point) {
	p.b.WriteString(`<path class="s ` + string(k) + `" stroke-width="1" stroke-dasharray="3 3" d="M` + number(from.x) + " " + number(from.y) +
		"L" + number(to.x) + " " + number(to.y) + `"/>`)
}

func (p *picture) fill(k ink, points ...point) {
	var d path
	d.line(points...)
	p.fillPath(k, &d)
}

func (p *picture) box(k ink, x, y, w, h float64) {
	var d path
	d.box(x, y, w, h)
	p.fillPath(k, &d)
}

func (p *picture) disc(k ink, radius float64, at point) {
	p.b.WriteString(`<circle class="f ` + string(k) + `" cx="` + number(at.x) + `" cy="` + number(at.y) + `" r="` + number(radius) + `"/>`)
}

// textSize is the size of all texts, in points.
const textSize = 11

// textWidth returns about how wide a text is drawn, because fonts differ.
func textWidth(text string) float64 { return 0.58 * textSize * float64(len([]rune(text))) }

// Where a text is, from the point that is given for it.
const (
	atMiddle = "middle"
	atEnd    = "end"
)

// text draws a text whose height is in the middle at a point.
func (p *picture) text(k ink, anchor string, at point, text string) {
	if text == "" {
		return
	}
	const baseline = 0.36 * textSize
	p.b.WriteString(`<text class="f ` + string(k) + `" x="` + number(at.x) + `" y="` + number(at.y+baseline) + `" font-size="` + strconv.Itoa(textSize) +
		`" text-anchor="` + anchor + `">` + html.EscapeString(text) + `</text>`)
}

// svg returns the picture, with a text for those who cannot see it.
func (p *picture) svg(label string) string {
	return `<svg viewBox="0 0 ` + number(p.w) + ` ` + number(p.h) + `" role="img" aria-label="` + html.EscapeString(label) + `">` + p.b.String() + `</svg>`
}
