package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The same seed prints the same bytes: summary, JSON and log. A log has the lines of the published format.
func TestSimulationIsDeterministic(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	line := func(more ...string) []string {
		return append([]string{
			"simulate", "--topology", "leaf-spine", "--spines", "2", "--leaves", "2", "--hosts", "4", "--machine", "4xH100-80GB,64cpu,512GiB",
			"--synthetic", "jobs: 60; load: 0.8; durations: lognormal(median=5m,sigma=1,max=1h); gpus: 1:0.7,4:0.2,8:0.1; files: 1MiB",
			"--fail", "10%/h", "--seed", "7", "--yardsticks", "greedy,easy",
		}, more...)
	}
	var outs, logs [2]string
	for i := range outs {
		log := filepath.Join(dir, "log.jsonl")
		r := program(t.Context(), "", line("--out", log, "--report", filepath.Join(dir, "r.html"))...)
		if r.code != 0 || r.err != "" {
			t.Fatalf("exit %d, %s, want 0", r.code, r.err)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		outs[i], logs[i] = r.stdout, string(text)
	}
	if outs[0] != outs[1] || logs[0] != logs[1] {
		t.Error("the second run differs from the first")
	}
	for _, want := range []string{"8 machines", "32 GPUs", "60 jobs", "muster, frag", "greedy, best-fit", "easy, best-fit", "leaf-spine of 2 spines and 2 leaves"} {
		if !strings.Contains(outs[0], want) {
			t.Errorf("want %q, got\n%s", want, outs[0])
		}
	}
	for l := range strings.Lines(outs[0]) {
		if len([]rune(l)) > 81 {
			t.Errorf("got a line of %d characters, want at most 81: %s", len([]rune(l)), l)
		}
	}
	starts, ends := strings.Count(logs[0], `"event":"start"`), strings.Count(logs[0], `"event":"finish"`)
	if starts < 60 || ends != 60 {
		t.Errorf("got %d starts and %d ends of 60 jobs, want at least 60 and 60", starts, ends)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "r.html")); err != nil || !strings.Contains(string(page), "<svg") {
		t.Errorf("the page has no picture: got %v, want string(page) with %q", err, "<svg")
	}
	r := program(t.Context(), "", line("--json", "--gates")...)
	var doc struct {
		Schema string            `json:"schema"`
		Runs   []json.RawMessage `json:"runs"`
		Gates  []json.RawMessage `json:"gates"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || doc.Schema != "muster.simulation/v1" || len(doc.Runs) != 3 || len(doc.Gates) == 0 {
		t.Errorf("got %v: %.200s, want 3 runs with gates", err, r.stdout)
	}
	for _, name := range []string{"a.json", "b.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(r.stdout), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r = program(t.Context(), "", "simulate", "--compare", filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json"))
	if r.code != 0 || !strings.Contains(r.stdout, "mean wait") && !strings.Contains(r.stdout, "wait, mean") {
		t.Errorf("exit %d: got %s%s, want 0 and the mean wait", r.code, r.stdout, r.err)
	}
}

// The way in which schedulers learn of free capacity is in the summary and in the JSON. An unknown way is refused in
// one line.
func TestSimulationReportsHowNewsTravels(t *testing.T) {
	clearEnvironment(t)
	line := func(more ...string) []string {
		return append([]string{
			"simulate", "--topology", "leaf-spine", "--spines", "2", "--leaves", "2", "--hosts", "4", "--machine", "4xH100-80GB,64cpu,512GiB",
			"--synthetic", "jobs: 40; load: 0.8; durations: 1m; gpus: 1:0.7,4:0.3", "--yardsticks", "none",
		}, more...)
	}
	r := program(t.Context(), "", line("--information", "mst", "--stale", "1s")...)
	for _, want := range []string{"information mst · stale 1s", "news by gossip-mst", "on each link", "what is believed is", "99% of the hosts know after", "offers were declined"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("exit %d, want %q, got\n%s%s", r.code, want, r.stdout, r.err)
		}
	}
	r = program(t.Context(), "", line("--information", "dht", "--json")...)
	var doc struct {
		Information map[string]any `json:"information"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil || doc.Information["way"] != "dht" || doc.Information["offers"] == nil || doc.Information["bytes_per_link"] == 0.0 {
		t.Errorf("got %v: %v, want the figures of dht", err, doc.Information)
	}
	r = program(t.Context(), "", line("--json")...)
	if !strings.Contains(r.stdout, `"way":"sessions"`) || strings.Contains(r.stdout, `"offers"`) {
		t.Errorf("without a flag: got %.300s, want no figures of news", r.stdout)
	}
	r = program(t.Context(), "", "simulate", "--machines", "1x8xT4,64cpu,256GiB", "--arrivals", "a.csv", "--stale", "1s")
	if r.code != 2 || !strings.Contains(r.err, "--stale: the placement experiment") {
		t.Errorf("exit %d: got %s, want exit 2 and stderr with %q", r.code, r.err, "--stale: the placement experiment")
	}
	for want, more := range map[string][]string{
		`simulate: --information "pigeons": want sessions, random, mst, optimised or dht`: {"--information", "pigeons"},
		"simulate: --stale -1s: a time cannot be negative":                                {"--stale", "-1s"},
	} {
		r := program(t.Context(), "", line(more...)...)
		if r.code != 2 || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("exit %d: got %s, want exit 2, stderr with %q and one line on stderr", r.code, r.err, want)
		}
	}
}

// The placement experiment writes a line for each arrival.
func TestPlacementExperimentWritesALinePerArrival(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	arrivals := filepath.Join(dir, "arrivals.csv")
	text := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1000,1024,1,500,\nb,1000,1024,1,1000,\nc,1000,1024,8,1000,\n"
	if err := os.WriteFile(arrivals, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log.jsonl")
	r := program(t.Context(), "", "simulate", "--machines", "1x8xT4,64cpu,256GiB", "--arrivals", arrivals, "--out", log)
	if r.code != 0 || !strings.Contains(r.stdout, "FGD") {
		t.Fatalf("exit %d: got %s%s, want exit 0 and stdout with %q", r.code, r.stdout, r.err, "FGD")
	}
	got, err := os.ReadFile(log)
	want := `{"pod":"a","node":"host-00000","gpus":[0],"milli":500}` + "\n" + `{"pod":"b","node":"host-00000","gpus":[1],"milli":1000}` + "\n" + `{"pod":"c","rejected":true}` + "\n"
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, got, want)
	}
	r = program(t.Context(), "", "simulate", "--machines", "1x8xT4,64cpu,256GiB", "--arrivals", arrivals, "--fail", "1%/h")
	if r.code != 2 || !strings.Contains(r.err, "--fail: the placement experiment") {
		t.Errorf("exit %d: got %s, want exit 2 and stderr with %q", r.code, r.err, "--fail: the placement experiment")
	}
}

// With tables as arguments each gate of placement is printed with its name, as met or missed. The same seeds print the
// same.
func TestPlacementExperimentPrintsItsGates(t *testing.T) {
	clearEnvironment(t)
	dir := t.TempDir()
	write := func(name string, shares int) string {
		text := "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
		for i := range 60 {
			gpus, milli, model := 1, 1000, ""
			switch {
			case i < shares:
				milli = 100 + 50*(i%15)
			case i%5 == 0:
				gpus = 4
			case i%3 == 0:
				model = "T4"
			}
			text += fmt.Sprintf("%s-%02d,%d,1024,%d,%d,%s\n", name, i, 1000*(1+i%12), gpus, milli, model)
		}
		file := filepath.Join(dir, "openb_pod_list_"+name+".csv")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	args := []string{
		"simulate", "--machines", "4x8xT4,96cpu,384GiB+4x4xP100,32cpu,128GiB", "--seeds", "2", "--seed", "42", "--gates",
		write("many", 40), write("few", 10),
	}
	r := program(t.Context(), "", args...)
	if r.code != 0 {
		t.Fatalf("exit %d, want 0: %s", r.code, r.err)
	}
	for _, name := range []string{
		"frag on every table", "frag in the mean", "frag in the mean, stretch", "frag where a third is pinned to models", "pack on every table",
		"balanced of 64 candidates", "frag of 64 candidates", "pack of 64 candidates", "simple of 64 candidates", "spread of 64 candidates",
		"topology of 64 candidates",
	} {
		if !regexp.MustCompile(`(?m)^(met   |MISSED)  ` + regexp.QuoteMeta(name) + ` .*points.*aim: `).MatchString(r.stdout) {
			t.Errorf("want a line for the gate %q, got\n%s", name, r.stdout)
		}
	}
	for _, table := range []string{"few", "many", "few-pinned", "many-pinned"} {
		if !strings.Contains(r.stdout, "\n| "+table+" |") {
			t.Errorf("want a row for the table %s, got\n%s", table, r.stdout)
		}
	}
	if again := program(t.Context(), "", args...); again.stdout != r.stdout {
		t.Errorf("the second time: got\n%s\nwant\n%s", again.stdout, r.stdout)
	}
	for _, c := range [][2]string{{"--policy=frag", "--policy: with tables"}, {"--seeds=0", "--seeds 0"}, {"--gates=true", "none.csv"}} {
		r := program(t.Context(), "", "simulate", "--machines", "4x8xT4,96cpu,384GiB", "--gates", c[0], filepath.Join(dir, "none.csv"))
		if r.code != 2 || !strings.Contains(r.err, c[1]) {
			t.Errorf("%s: exit %d, want 2 with %q: %s", c[0], r.code, c[1], r.err)
		}
	}
}
