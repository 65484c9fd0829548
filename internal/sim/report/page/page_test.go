package page_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/sim/report"
	"github.com/musterhq/muster/internal/sim/report/page"
	"github.com/musterhq/muster/internal/sim/report/reporttest"
)

func write(t *testing.T, d *report.Document, others ...report.Named) string {
	t.Helper()
	var b bytes.Buffer
	if err := page.Write(&b, d, others...); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func full(t *testing.T) string {
	return write(t, reporttest.Document(7), report.Named{Name: "before.json", Doc: reporttest.Document(8)})
}

func TestSameDocumentGivesTheSameBytes(t *testing.T) {
	first := full(t)
	if full(t) != first {
		t.Error("the page of a document has other bytes the second time")
	}
}

// Nothing in the page could load anything or run, and no element has its own style.
func TestPageLoadsNothing(t *testing.T) {
	text := full(t)
	for _, bad := range []string{"<script", "http:", "https:", "//", "url(", "@import", " style=", "onload", "<img", "<iframe", "<object", "NaN", "Inf"} {
		if i := strings.Index(text, bad); i >= 0 {
			t.Errorf("the page contains %q: %s", bad, text[max(0, i-60):min(len(text), i+60)])
		}
	}
	if !strings.Contains(text, `content="default-src &#39;none&#39;`) && !strings.Contains(text, `content="default-src 'none'`) {
		t.Error("the page has no policy that forbids all requests")
	}
}

// Each picture exists, is well-formed, and draws only in colors of the style sheet.
func TestPicturesAreWellFormed(t *testing.T) {
	text := full(t)
	style := text[strings.Index(text, "<style>"):strings.Index(text, "</style>")]
	pictures := regexp.MustCompile(`(?s)<svg [^>]*aria-label="([^"]*)".*?</svg>`).FindAllStringSubmatch(text, -1)
	var names []string
	for _, m := range pictures {
		names = append(names, m[1])
		d := xml.NewDecoder(strings.NewReader(m[0]))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", m[1], err)
			}
		}
		inks := regexp.MustCompile(`class="([sf]) ([a-z0-9-]+)"`).FindAllStringSubmatch(m[0], -1)
		if len(inks) < 5 {
			t.Errorf("%s: only %d elements, want at least 5", m[1], len(inks))
		}
		for _, k := range inks {
			if !strings.Contains(style, "."+k[1]+"."+k[2]+" {") {
				t.Errorf("%s: the style sheet has no color %s %s", m[1], k[1], k[2])
			}
		}
	}
	for _, want := range []string{
		"GPUs, CPUs and memory in use, and fragments, over time", "jobs that wait, over time", "waiting by size of the job", "waiting by class",
		"GPUs allocated against GPUs asked for", "wait, mean of each run", "the network: switches, hosts, and the use of each link",
	} {
		if !strings.Contains(strings.Join(names, "\n"), want) {
			t.Errorf("there is no picture of %s, only %q", want, names)
		}
	}
}

// Names that others chose cannot become part of the page's code.
func TestNamesAreEscaped(t *testing.T) {
	const evil = `<script>alert(1)</script>"'>`
	d := reporttest.Document(7)
	d.Command = evil
	d.Settings = []report.Setting{{Name: evil, Value: evil}}
	d.Runs[1].Name = evil
	d.Runs[0].Figures.Classes[0].Name = evil
	d.Runs[0].Figures.Sizes[0].Name = evil
	d.Runs[0].Figures.Users[0].Name = evil
	d.Runs[0].Figures.Faults[0].What = evil
	d.Network.Topology = evil
	d.Network.Switches[0].Name = "<b>"
	d.Network.Paths[0].Path = evil
	d.Gates[0].Name, d.Gates[0].Want = evil, evil
	d.Information.Way = evil
	text := write(t, d)
	if strings.Contains(text, "<script") || strings.Contains(text, "<b></text>") || strings.Contains(text, `"'>`) {
		t.Error("a name is not escaped")
	}
	if n := strings.Count(text, "alert(1)"); n < 12 {
		t.Errorf("the name is there %d times, want at least 12", n)
	}
}

// Documents that lack parts, or are large, have a page.
func TestUnusualDocumentsHaveAPage(t *testing.T) {
	l := reporttest.Load(rand.New(rand.NewPCG(1, 1)), 8, 3)
	empty := reporttest.Figures(l, nil, nil)
	large := &report.Network{Topology: "fat-tree"}
	for tier, n := range []int{400, 40, 4} {
		for range n {
			large.Switches = append(large.Switches, report.Switch{Name: "s", Tier: tier + 1})
		}
	}
	for i := range 400 {
		for range 25 {
			large.Racks = append(large.Racks, i)
		}
		large.Links = append(large.Links, report.Link{A: report.AtSwitch(i), B: report.AtSwitch(400 + i%40), Used: 0.5})
	}
	odd := &report.Network{Topology: "file", Switches: []report.Switch{{Name: "only"}}, Racks: []int{-1, 0, 7}, Links: []report.Link{{A: report.AtSwitch(9), B: report.AtSwitch(0)}}}
	for name, d := range map[string]*report.Document{
		"no run":      {},
		"nothing ran": {Runs: []report.Run{{Name: "muster", Figures: empty}}},
		"no figures":  {Runs: []report.Run{{Name: "muster"}}},
		"placement":   {Runs: []report.Run{{Name: "frag", Placement: &report.Placement{Placed: 3, At100: 0.95, Curve: []report.Point{{Asked: 0.5, Allocated: 0.5}, {Asked: 1, Allocated: 0.95}}}}, {Name: "FGD", Placement: &report.Placement{At100: 0.94}}}},
		"many hosts":  {Runs: []report.Run{{Name: "muster", Figures: empty}}, Network: large},
		"odd links":   {Runs: []report.Run{{Name: "muster", Figures: empty}}, Network: odd},
		"no switches": {Runs: []report.Run{{Name: "muster", Figures: empty}}, Network: &report.Network{Topology: "constant"}},
	} {
		text := write(t, d)
		if strings.Contains(text, "NaN") || !strings.Contains(text, "</html>") {
			t.Errorf("%s: the page is broken", name)
		}
		if len(text) > 4<<20 {
			t.Errorf("%s: the page has %d bytes, want at most %v", name, len(text), 4<<20)
		}
	}
}

// Figures that cannot be drawn are drawn outside, and never at a coordinate that is not a number or has hundreds of
// digits.
func TestHugeFiguresAreDrawn(t *testing.T) {
	d, err := report.Read(strings.NewReader(`{"schema":"muster.simulation/v1","runs":[{"name":"a","figures":{"end_s":9,"series":{"step_s":1,"gpus":[1e300,-1e300],"cpus":[0,1e9],"memory":[],"fragments":[],"waiting":[1e300]},
		"sizes":[{"name":"x","wait_s":{"n":1,"p50":-5,"p95":1e300,"p99":1e300,"mean":1e308}}],"curve":[{"asked":1e300,"allocated":1e300,"for_s":1e308},{"asked":0.5,"allocated":1e308,"for_s":1e308}]}}],
		"network":{"switches":[{"name":"s","tier":1},{"name":"t","tier":2}],"racks":[0],"links":[{"a":{"switch":0,"machine":-1},"b":{"switch":1,"machine":-1},"used":1e308}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	text := write(t, d)
	if strings.Count(text, "<svg") < 4 {
		t.Errorf("%d pictures, want at least 4", strings.Count(text, "<svg"))
	}
	if bad := regexp.MustCompile(` (?:d|x|y|cx|cy|r|viewBox)="[^"]*(?:NaN|Inf|[0-9]{7})[^"]*"`).FindString(text); bad != "" {
		t.Errorf("a coordinate is no number, or far outside: %.200s, want none", bad)
	}
}

func BenchmarkPage(b *testing.B) {
	d := reporttest.Document(7)
	for b.Loop() {
		if err := page.Write(io.Discard, d); err != nil {
			b.Fatal(err)
		}
	}
}

// Each document that Read accepts has a page.
func FuzzPage(f *testing.F) {
	f.Add([]byte(`{"schema":"muster.simulation/v1","runs":[{"name":"a","figures":{"end_s":9,"series":{"step_s":1,"gpus":[1,-1],"waiting":[1e300]},"sizes":[{"wait_s":{"n":1,"p99":1e300}}],"curve":[{"asked":-1}]}},{"placement":{"allocated_at_100":0.5,"curve":[{"asked":0.5}]}}]}`))
	f.Add([]byte(`{"schema":"muster.simulation/v1","runs":[{"figures":{}}],"network":{"switches":[{"tier":-1},{"tier":9000000000}],"racks":[0,5,-3],"links":[{"a":{"switch":1},"b":{"switch":7,"machine":-2},"used":-1}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if d, err := report.Read(bytes.NewReader(text)); err == nil {
			if err := page.Write(io.Discard, d); err != nil {
				t.Fatal(err)
			}
		}
	})
}
