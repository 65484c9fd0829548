package report_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/sim/report"
	"github.com/musterhq/muster/internal/sim/report/reporttest"
)

var update = flag.Bool("update", false, "write the expected texts anew")

// golden compares text with a file in testdata.
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
		t.Errorf("%s differs (go test ./internal/sim/report -update writes it anew):\n%s, want %v", path, got, string(want))
	}
}

func TestSummaryHasItsText(t *testing.T) {
	d := reporttest.Document(7)
	var b bytes.Buffer
	report.Summary(&b, d)
	golden(t, "summary.txt", b.String())
	for i, line := range strings.Split(b.String(), "\n") {
		if utf8.RuneCountInString(line) > report.Width {
			t.Errorf("line %d has %d characters: %s, want at most %v", i+1, utf8.RuneCountInString(line), line, report.Width)
		}
		if strings.HasSuffix(line, " ") {
			t.Errorf("line %d ends with a space", i+1)
		}
	}
}

func TestComparisonHasItsText(t *testing.T) {
	var b bytes.Buffer
	report.Compare(&b, []report.Named{{Name: "a.json", Doc: reporttest.Document(7)}, {Name: "runs/without-backfill.json", Doc: reporttest.Document(8)}, {Name: "c.json", Doc: reporttest.Document(9)}, {Name: "d.json", Doc: reporttest.Document(10)}})
	golden(t, "compare.txt", b.String())
	for i, line := range strings.Split(b.String(), "\n") {
		if utf8.RuneCountInString(line) > report.Width {
			t.Errorf("line %d has %d characters: %s, want at most %v", i+1, utf8.RuneCountInString(line), line, report.Width)
		}
	}
}
