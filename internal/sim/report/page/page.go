// Package page draws the report of a simulation: one HTML file without a script, which needs nothing from the network.
// Its pictures are SVG. It follows the reader's choice of light or dark.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/musterhq/muster/internal/sim/report"
	"github.com/musterhq/muster/internal/sim/report/units"
)

//go:embed page.html
var pageText string

//go:embed page.css
var styleText string

// Write writes the page of a document. The first runs of other documents are compared with it, under the names that are
// given for them. The same documents give the same bytes.
func Write(out io.Writer, d *report.Document, others ...report.Named) error {
	sum := sha256.Sum256([]byte(styleText))
	v := view{
		Doc: d, Style: template.CSS(styleText), //nolint:gosec // ours
		Policy: "default-src 'none'; img-src data:; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
	}
	for _, r := range d.Runs {
		v.Runs = append(v.Runs, namedRun{r, r.Name})
	}
	for _, o := range others {
		if len(o.Doc.Runs) > 0 {
			r := o.Doc.Runs[0]
			r.Name = o.Name
			v.Runs = append(v.Runs, namedRun{r, o.Name})
		}
	}
	v.Drawn, v.Tight = chosen(v.Runs, len(v.Runs)-len(d.Runs)), len(v.Runs) > mostWide
	v.draw()
	return pageTemplate().Execute(out, v)
}

// namedRun is a run with the name under which it is shown.
type namedRun struct {
	report.Run
	Shown string
}

// view is what the template shows.
type view struct {
	Doc    *report.Document
	Style  template.CSS
	Policy string
	Runs   []namedRun
	Own    *report.Figures // of the first run; nil for an experiment without queueing
	Pictures
	Compared []comparedRow
	Drawn    []namedRun // the runs that are lines of pictures
	Tight    bool       // many runs: their columns must be narrow
}

// Bounds of what fits on the page.
const (
	mostLines = 5
	mostWide  = 5 // columns of runs with a difference beside each figure
)

// chosen returns the runs that are drawn as lines: the first ones, and as many of the other documents as fit.
func chosen(runs []namedRun, others int) []namedRun {
	if len(runs) <= mostLines {
		return runs
	}
	others = min(others, mostLines-2)
	return slices.Concat(runs[:mostLines-others], runs[len(runs)-others:])
}

// Pictures are the SVGs of the page; an empty one is left out.
type Pictures struct {
	Use, Queue, Sizes, Classes, Load, Fabric template.HTML
	QueueIsLog                               bool
	Bars                                     []barPicture
	HeatMost                                 string
}

type barPicture struct {
	Name    string
	Picture template.HTML
	Cut     bool // the longest bar is cut
}

type comparedRow struct {
	Name  string
	Cells []comparedCell
}

type comparedCell struct{ Text, Difference string }

// svg marks a picture as HTML: everything in it is escaped by the canvas.
func svg(s string) template.HTML { return template.HTML(s) } //nolint:gosec // see above

func (v *view) draw() {
	var lines, queueing, all []report.Run
	for _, r := range v.Runs {
		all = append(all, r.Run)
	}
	for _, r := range v.Drawn {
		lines = append(lines, r.Run)
		if r.Figures != nil {
			queueing = append(queueing, r.Run)
		}
	}
	if len(all) == 0 {
		return
	}
	v.Own = all[0].Figures
	beside := float64(high) // as high as the pictures to its left
	if f := v.Own; f != nil {
		beside = max(beside, spreadHigh(f.Sizes))
		if len(f.Classes) > 0 {
			const heading = 40
			beside = max(beside, spreadHigh(f.Sizes)+heading+spreadHigh(f.Classes))
		}
		v.Use = svg(useChart(f))
		v.Sizes = svg(spreadChart(f.Sizes, "waiting by size of the job"))
		v.Classes = svg(spreadChart(f.Classes, "waiting by class"))
		queue, logarithmic := queueChart(queueing)
		v.Queue, v.QueueIsLog = svg(queue), logarithmic
	}
	if slices.ContainsFunc(all, func(r report.Run) bool { return len(pointsOf(r)) > 0 }) {
		v.Load = svg(loadChart(lines, beside))
	}
	if n := v.Doc.Network; n != nil {
		v.Fabric = svg(fabricChart(n))
		v.HeatMost = busiest(n)
	}
	v.compare(all)
}

// busiest returns how much of the busiest link was used: as a part of its capacity, or in bytes if that part is tiny.
func busiest(n *report.Network) string {
	most, bytes := 0.0, int64(0)
	for _, l := range n.Links {
		most, bytes = max(most, l.Used), max(bytes, l.Bytes)
	}
	if most < 0.001 {
		return units.Bytes(float64(bytes))
	}
	return units.Percent(most)
}

// barred are the figures that are also drawn, if they differ from 0.
var barred = []string{"wait, mean", "wait, p99", "completion, mean", "GPUs used", "allocated at 100%", "fragments at 100%"}

func (v *view) compare(all []report.Run) {
	for _, f := range report.Compared {
		row := comparedRow{Name: f.Name}
		first, known := f.Of(all[0])
		some := false
		for i, r := range all {
			x, has := f.Of(r)
			cell := comparedCell{Text: "–"}
			if has {
				cell.Text = f.Say(x)
				some = some || x != 0
			}
			if has && known && i > 0 {
				cell.Difference = report.Difference(first, x)
			}
			row.Cells = append(row.Cells, cell)
		}
		if !some {
			continue
		}
		v.Compared = append(v.Compared, row)
		if len(all) > 1 && len(v.Bars) < 4 && slices.Contains(barred, f.Name) {
			picture, cut := barChart(all, f)
			v.Bars = append(v.Bars, barPicture{f.Name, svg(picture), cut})
		}
	}
}

// pageTemplate is parsed when the first page is written.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"span": units.Span, "percent": units.Percent, "digits": units.Digits,
		"count":   func(n int) string { return units.Count(n) },
		"count64": func(n int64) string { return units.Count(n) },
		"bytes":   func(n any) string { return units.Bytes(asFloat(n)) },
		"gpuh":    func(s float64) string { return units.Digits(s / 3600) },
		"ink":     func(i int) string { return string(runInk(i)) },
		"fine":    func(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) },
		"whole":   func(x float64) string { return units.Count(int64(x + 0.5)) },
		"orNone": func(s string) string {
			if s == "" {
				return "(none)"
			}
			return s
		},
		"per":   func(n int64, jobs int) string { return units.Digits(float64(n) / float64(max(1, jobs))) },
		"each":  func(all float64, n int64) float64 { return all / float64(max(1, n)) },
		"hits":  report.Hits,
		"head":  func(n int, all []report.FaultCost) []report.FaultCost { return all[:min(n, len(all))] },
		"part":  func(a, b int) string { return units.Percent(float64(a) / float64(max(1, b))) },
		"heats": func() []int { return []int{0, 1, 2, 3, 4, 5, 6, 7} },
		"top":   func(n int, all []report.Group) []report.Group { return all[:min(n, len(all))] },
		"title": func(s string) string { return strings.ToUpper(s[:1]) + s[1:] },
		"paths": func(all []report.PathUse) []report.PathUse { return all[:min(10, len(all))] },
	}).Parse(pageText))
})

func asFloat(n any) float64 {
	switch n := n.(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}
