package report_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/musterhq/muster/sim/report"
)

var update = flag.Bool("update", false, "write the expected texts anew")

// golden compares text with the one in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test ./sim/report -update writes it anew):\n%s", path, got)
	}
}

// sample is a document of three runs of one load, with faults, a network and gates.
func sample(t *testing.T, seed uint64) *report.Document {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	l := randomLoad(r, 16, 600)
	d := &report.Document{
		Command: "muster simulate --machines m.csv --jobs j.csv --policy frag --fail 1%/h --seed 7", Seed: seed, Cluster: report.ClusterOf(l.Machines),
		Settings: []report.Setting{{Name: "policy", Value: "frag"}, {Name: "candidates", Value: "64"}, {Name: "durations", Value: "unknown"}, {Name: "topology", Value: "leaf-spine 4 x 16 x 32"}, {Name: "fail", Value: "1%/h"}},
	}
	var faults []report.Fault
	for i := range 3 {
		at := time.Duration(20+70*i) * time.Minute
		faults = append(faults, report.Fault{At: at, Until: at + 10*time.Minute, Kind: "host", What: l.Machines[5*i+1].Name, Machines: []int{5*i + 1}})
	}
	for i, name := range []string{"muster", "greedy", "FIFO", "EASY"} {
		run := report.Run{Name: name}
		if i < 2 {
			run.Policy = "frag"
		}
		marks := faults
		if i > 0 {
			marks = nil
		}
		run.Figures = tally(t, l, legalRun(rand.New(rand.NewPCG(seed, uint64(i))), l, 0.05*float64(3-i)), 0, marks...)
		d.Runs = append(d.Runs, run)
	}
	d.Network = &report.Network{
		Topology: "leaf-spine", Messages: 41_234, Bytes: 9_876_543, Dropped: 3, Copied: 5 << 30, Copies: 1234, CopyTime: 1500,
		Paths: []report.PathUse{{Path: "leaf-1 spine-1 leaf-2", Flows: 1203, Bytes: 3 << 20}, {Path: "leaf-1", Flows: 903, Bytes: 1 << 20}},
	}
	d.Information = &report.Information{Way: "gossip-random", Messages: 120_000, Bytes: 7 << 20, LinkBytes: 40_000, AgeMean: 0.8, AgeP99: 2.5, Reach99: 1.9}
	d.Gates = report.Judge(d, report.Aims{Greedy: "greedy", EASY: "EASY", Class: "LS", ClassWait: 100, Burst: true, Racks: true})
	return d
}

func TestSummary(t *testing.T) {
	d := sample(t, 7)
	var b bytes.Buffer
	report.Summary(&b, d)
	golden(t, "summary.txt", b.String())
	for i, line := range strings.Split(b.String(), "\n") {
		if utf8.RuneCountInString(line) > report.Width {
			t.Errorf("line %d has %d characters: %s", i+1, utf8.RuneCountInString(line), line)
		}
		if strings.HasSuffix(line, " ") {
			t.Errorf("line %d ends with a space", i+1)
		}
	}
}

func TestCompare(t *testing.T) {
	var b bytes.Buffer
	report.Compare(&b, []report.Named{{Name: "a.json", Doc: sample(t, 7)}, {Name: "runs/without-backfill.json", Doc: sample(t, 8)}, {Name: "c.json", Doc: sample(t, 9)}, {Name: "d.json", Doc: sample(t, 10)}})
	golden(t, "compare.txt", b.String())
	for i, line := range strings.Split(b.String(), "\n") {
		if utf8.RuneCountInString(line) > report.Width {
			t.Errorf("line %d has %d characters: %s", i+1, utf8.RuneCountInString(line), line)
		}
	}
}
