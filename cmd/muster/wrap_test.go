package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/cmd/muster/table"
)

// On a terminal the text of verbs that explain is wrapped at words within 80 columns, and nothing is lost. With --wide,
// and without a terminal, nothing is wrapped.
func TestExplanationsFit80Columns(t *testing.T) {
	const words = "n2: has 2 × h100-80gb, none of them A100, and all of its 64 CPUs are taken by tasks of other users until tomorrow"
	attempts := `,"attempt":2,"stderr_tail":"` + words + `","attempts":[
		{"attempt":1,"state":"NODE_FAIL","reason":"` + words + `","node":"a-node-with-a-name","exit_code":null,"ended_at":"2026-01-02T03:02:00Z"},
		{"attempt":2,"state":"FAILED","node":"n1","exit_code":137,"signal":9,"started_at":"2026-01-02T03:03:00Z","ended_at":"2026-01-02T03:03:01Z"}]`
	job := strings.NewReplacer(`"reason":""`, `"reason":"`+words+`"`, `"python","train.py"`, `"`+strings.ReplaceAll(words, " ", `","`)+`"`).Replace(jobDoc(idA, "FAILED", attempts))
	node := strings.NewReplacer("silent for 7s", words, `"zone":"b"`, `"zone":"b","purpose":"`+words+`"`, "fell off\\nthe bus", words).Replace(nodeDoc)
	why := `{"job":"` + idA + `","state":"PENDING","reason":"Resources","reason_detail":"` + words + `","clauses":[
		{"clause":"constraint: rack=r1 & (zone=north | zone=south) & nvlink","meets":1,"of":2,"fails":[{"node":"n2","reason":"` + words + `"}]}],
		"now":[{"node":"n1","why":"` + words + `"}],"later":[{"node":"n3","why":"` + words + `"}]}`
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA:          answer(http.StatusOK, job),
		"GET /v1/nodes/n1":             answer(http.StatusOK, node),
		"GET /v1/jobs/" + idA + "/why": answer(http.StatusOK, why),
		"POST /v1/offers":              answer(http.StatusOK, why),
		"GET /v1/daemon":               answer(http.StatusOK, `{"name":"n1","facts":[{"name":"cgroup","state":"warn","detail":"`+words+`","advice":"`+words+`"},{"name":"clock","state":"ok","detail":"fine"}]}`),
	})
	for _, line := range []string{
		"show --wide " + idA, "why --wide " + idA, "offers --wide", "node show --wide n1", "doctor --wide", "submit --dry-run --wide -- true", "run --wide --dry-run -- true",
	} {
		all := strings.Fields(line)
		args := slices.DeleteFunc(slices.Clone(all), func(word string) bool { return word == "--wide" })
		plain := f.muster(args...)
		on, wide := f.musterOn(&tty{columns: 80, lines: 24}, args...), f.musterOn(&tty{columns: 80, lines: 24}, all...)
		if plain.code != 0 || on.code != 0 || !strings.Contains(plain.stdout, words) {
			t.Fatalf("%s: exit %d and %d, %s, want 0\n%s", line, plain.code, on.code, plain.err, plain.stdout)
		}
		if wide.stdout != plain.stdout {
			t.Errorf("%s: --wide prints\n%s\nwant the text without a terminal\n%s", line, wide.stdout, plain.stdout)
		}
		for row := range strings.Lines(on.stdout) {
			if n := table.Width(strings.TrimSuffix(row, "\n")); n > 80 {
				t.Errorf("%s: got %d columns, want at most 80: %s", line, n, row)
			}
		}
		said := func(text string) []string { return slices.Sorted(slices.Values(strings.Fields(text))) }
		if !slices.Equal(said(on.stdout), said(plain.stdout)) {
			t.Errorf("%s: got these words on a terminal:\n%s\nwant\n%s", line, on.stdout, plain.stdout)
		}
	}
}
