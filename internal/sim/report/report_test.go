package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/internal/sim/report"
	"github.com/musterhq/muster/internal/sim/report/reporttest"
)

// The document reads back as it was, and has the same bytes each time.
func TestDocumentReadsBack(t *testing.T) {
	d := reporttest.Document(7)
	var a, b bytes.Buffer
	for _, out := range []*bytes.Buffer{&a, &b} {
		if err := report.Write(out, d); err != nil {
			t.Fatal(err)
		}
		d = reporttest.Document(7)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the same simulation has two documents")
	}
	back, err := report.Read(&a)
	if err != nil {
		t.Fatal(err)
	}
	d.Schema = report.Schema
	if !reflect.DeepEqual(back, d) {
		t.Error("the document reads back as another one")
	}
}

// Programs read these fields: none may be renamed.
func TestFieldsOfTheDocumentKeepTheirNames(t *testing.T) {
	d := reporttest.Document(7)
	d.Network.Switches = []report.Switch{{Name: "leaf-0", Tier: 1}}
	d.Network.Links = []report.Link{{A: report.AtMachine(0), B: report.AtSwitch(0)}}
	d.Runs[1].Placement = &report.Placement{Curve: []report.Point{{}}}
	var b bytes.Buffer
	if err := report.Write(&b, d); err != nil {
		t.Fatal(err)
	}
	var any map[string]any
	if err := json.Unmarshal(b.Bytes(), &any); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var out strings.Builder
	walk(any, "", seen, &out)
	golden(t, "fields.txt", out.String())
}

// walk writes the path of each field once, ordered by name.
func walk(v any, path string, seen map[string]bool, out *strings.Builder) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			p := strings.TrimPrefix(path+"."+name, ".")
			if !seen[p] {
				seen[p] = true
				out.WriteString(p + "\n")
			}
			walk(v[name], p, seen, out)
		}
	case []any:
		for _, x := range v {
			walk(x, path, seen, out)
		}
	}
}

func TestErrorsOfReadSayWhatIsWrong(t *testing.T) {
	for text, want := range map[string]string{
		`{"schema":`:                                                 "not a document of muster simulate --json",
		`{"schema":"muster.job/1"`:                                   "not a document",
		`{"schema":"muster.jobs/v1","runs":[]}`:                      `schema "muster.jobs/v1": want muster.simulation/v1`,
		`{"schema":"muster.simulation/v1","runs":[]}`:                "has no figures",
		`{"schema":"muster.simulation/v1","runs":[{"name":"x"}]}`:    "has no figures",
		`{"schema":"muster.simulation/v1","runs":[{"figures":"x"}]}`: "not a document",
	} {
		if _, err := report.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := report.Read(strings.NewReader(`{"schema":"muster.simulation/v1","new":1,"runs":[{"figures":{}}]}`)); err != nil {
		t.Errorf("a document with a newer field: %v", err)
	}
}

func TestVerdictOfAComparison(t *testing.T) {
	figures := func(completion, wait, makespan float64) *report.Figures {
		f := &report.Figures{Makespan: makespan, Jobs: report.Jobs{Submitted: 2, Finished: 2}, Gangs: report.Gangs{Starts: 1, Racks: 0.7}}
		f.Completion.Mean, f.Wait.Max = completion, wait
		f.Classes = []report.Group{{Name: "LS", Wait: report.Spread{Mean: wait}}}
		return f
	}
	d := &report.Document{Runs: []report.Run{
		{Name: "muster", Figures: figures(110, 100, 1000)},
		{Name: "greedy", Figures: figures(100, 60, 900)},
		{Name: "SRPT", Figures: figures(95, 1, 1)},
		{Name: "EASY", Figures: figures(1, 67, 1)},
	}}
	all := report.Aims{Greedy: "greedy", Best: "SRPT", BestFactor: 1.15, EASY: "EASY", Burst: true, Class: "LS", ClassWait: 100, Racks: true}
	known := all
	known.Known = true
	check := func(a report.Aims, want ...string) {
		t.Helper()
		var got []string
		for _, g := range report.Judge(d, a) {
			met := "missed "
			if g.Met {
				met = "met "
			}
			got = append(got, met+g.Name+": "+g.Got+" "+g.Want)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("gates:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	rest := []string{
		"missed makespan of a burst: 1,000 s <= 1.1 x greedy = 990 s",
		"met longest wait: 100 s <= 1.5 x EASY = 100.5 s",
		"met mean wait of class LS: 100 s <= 100 s",
		"missed extra racks of a gang, mean: 0.70 <= 0.65",
	}
	check(all, append([]string{"met completion, durations unknown: 110 s <= 1.1 x greedy = 110 s"}, rest...)...)
	check(known, append(append([]string{"missed completion, durations known: 110 s <= 1.15 x SRPT = 109.2 s"}, rest...), "met completion with gangs: 110 s <= 1.1 x greedy = 110 s")...)
	check(report.Aims{Greedy: "none"}, "missed completion, durations unknown: 110 s <= 1.1 x none, which was not run")
	check(report.Aims{Class: "BE"}, "missed mean wait of class BE: the load has no such class <= 0 s")
	d.Runs[0].Figures.Jobs.Submitted = 5
	check(report.Aims{EASY: "EASY"}, "missed longest wait: 100 s, and 3 jobs have not finished <= 1.5 x EASY = 100.5 s")
}

func TestProgressIsShownOnATerminal(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	p := report.NewProgress(&b, true, now)
	p.Show(now.Add(time.Millisecond), time.Hour, 10, 0, 100)
	if b.Len() > 0 {
		t.Errorf("written too early: %q", b.String())
	}
	p.Show(now.Add(2*time.Second), 90*time.Minute, 2_400_000, 25, 100)
	if want := "\rsimulated 1h30m · 1.20M events/s · 25 of 100 jobs · 6.00s left"; b.String() != want {
		t.Errorf("the line is %q, want %q", b.String(), want)
	}
	b.Reset()
	p.Show(now.Add(4*time.Second), 91*time.Minute, 4_000_000, 0, 0)
	if want := "\rsimulated 1h31m · 1.00M events/s                              "; b.String() != want {
		t.Errorf("the line is %q, want %q", b.String(), want)
	}
	b.Reset()
	p.Clear()
	if got := b.String(); strings.TrimLeft(got, "\r ") != "" || !strings.HasSuffix(got, "\r") || len(got) < 30 {
		t.Errorf("clear writes %q, want spaces on the whole line", got)
	}
	if got := p.Speed(now.Add(4 * time.Second)); got != "4.00M events in 4.00s, 1.00M a second" {
		t.Errorf(`got %v, want "4.00M events in 4.00s, 1.00M a second"`, got)
	}
	b.Reset()
	quiet := report.NewProgress(&b, false, now)
	quiet.Show(now.Add(time.Hour), 0, 1, 1, 2)
	quiet.Clear()
	if b.Len() > 0 {
		t.Errorf("without a terminal it writes %q", b.String())
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestErrorOfTheLogIsReturned(t *testing.T) {
	l := reporttest.Load(rand.New(rand.NewPCG(1, 1)), 4, 1)
	g := report.NewLog(full{}, l)
	for range 10_000 {
		g.Take(record.Record{Kind: record.Reject})
	}
	if err := g.Close(); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf(`Close = %v, want an error and "no space" in it`, err)
	}
}

// A run in which nothing happens has figures and a summary without NaN.
func TestEmptyRunHasFigures(t *testing.T) {
	for _, l := range []*load.Load{{}, {Machines: []load.Machine{{Name: "a"}}}, {Jobs: []load.Job{{Name: "x", Submit: time.Hour}}}} {
		d := &report.Document{Cluster: report.ClusterOf(l.Machines), Runs: []report.Run{{Name: "muster", Figures: tally(t, l, nil, 0)}}}
		var b bytes.Buffer
		report.Summary(&b, d)
		if err := report.Write(&b, d); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
			t.Errorf("NaN or Inf in %s", b.String())
		}
	}
}

// Each document that Read accepts can be printed and compared.
func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"schema":"muster.simulation/v1","runs":[{"figures":{"series":{"step_s":1,"gpus":[1,-1]},"faults":[{"hit":1,"at_s":1e300}]}},{"placement":{"allocated_at_100":0.5}}],"network":{"paths":[{}]},"gates":[{"met":true}]}`))
	f.Add([]byte(`{"schema":"muster.simulation/v1","runs":[{"placement":{"allocated_at_100":0.5}}],"information":{}}`))
	own := reporttest.Document(7)
	f.Fuzz(func(_ *testing.T, text []byte) {
		d, err := report.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		report.Summary(io.Discard, d)
		report.Compare(io.Discard, []report.Named{{Name: "a", Doc: own}, {Name: "b", Doc: d}})
	})
}
