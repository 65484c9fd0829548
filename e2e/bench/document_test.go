package main

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestTableOfBenchmarksIsUpToDate checks that the table in docs/benchmarks.md has the names, descriptions and aims of
// table.go.
func TestTableOfBenchmarksIsUpToDate(t *testing.T) {
	text, err := os.ReadFile("../../docs/benchmarks.md")
	if err != nil {
		t.Fatal(err)
	}
	got, err := document(string(text), &report{})
	if err != nil {
		t.Fatal(err)
	}
	if got != string(text) {
		t.Errorf("run `go run ./e2e/bench -only version -write docs/benchmarks.md`; want the table\n%s", got)
	}
}

// TestMeasuredFigureReplacesItsRow checks that a measured figure replaces its row. A row that is missing is added in
// its place.
func TestMeasuredFigureReplacesItsRow(t *testing.T) {
	r := newReport("a machine")
	r.Date = time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC)
	r.value("start", "p50", 2.84)
	r.value("start", "p50", 4.26)
	r.value("start", "max", 22)
	r.value("rate", "", 333.3)
	r.raw("rate", "fork-exec-wait", 1349.2)
	r.dropEmpty()
	text := "Before.\n\n" + header +
		"| start | old words | p50 9 ms | | old aim | 2026-11-21 |\n" +
		"| version | old words | p50 14 ms | | old aim | 2026-11-21 |\n" +
		"\nAfter | it.\n"
	want := "Before.\n\n" + header +
		"| start | submit → process started, idle, 3 daemons, 300 jobs one at a time | p50 2.84 to 4.26, max 22 ms |  | p50 ≤ 15 ms, p99 ≤ 60 ms | 2026-11-22, a machine |\n" +
		"| rate | 1,500 jobs of `/bin/true`, 32 in flight, durable, 3 daemons with a CPU for each job in flight | 333 a second | fork-exec-wait 1,349 a second | ≥ 300 a second | 2026-11-22, a machine |\n" +
		"| version | `muster version` | p50 14 ms |  | ≤ 60 ms | 2026-11-21 |\n" +
		"\nAfter | it.\n"
	got, err := document(text, r)
	if err != nil || got != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
	if _, err := document(header+"| other | | | | | |\n", r); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("a row that no benchmark measures: got %v, want an error with it", err)
	}

	encoded, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back report
	if err := json.Unmarshal(encoded, &back); err != nil || !reflect.DeepEqual(back, *r) {
		t.Errorf("read back %+v, %v, want %+v", back, err, r)
	}
}

// TestFiguresAreCompleteAndUnique checks that each figure is complete and belongs to one benchmark, and that the output
// of Go benchmarks can be read.
func TestFiguresAreCompleteAndUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range figures() {
		if seen[f.Name] || f.Name == "" || f.What == "" || f.Unit == "" {
			t.Errorf("figure %+v: want a complete figure with a unique name", f)
		}
		seen[f.Name] = true
	}
	got, err := parse("goos: linux\nBenchmarkRaw   \t 100\t 678.5 ns/op\t 1474 syncs/s\nBenchmarkCommit/inflight=1 \t 1\t 2 ns/op\nPASS\n")
	want := map[string]map[string]float64{"Raw": {"ns/op": 678.5, "syncs/s": 1474}, "Commit/inflight=1": {"ns/op": 2}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestNumbersAreRounded(t *testing.T) {
	for v, want := range map[float64]string{0.07: "0.07", 2.84: "2.84", 14.76: "14.8", 99.96: "100", 333.4: "333", 18257.6: "18,258", 1234567: "1,234,567", -7.42: "-7.42", -1234: "-1,234", 0: "0"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}
