package main

// Errors are one line, and have no prefix twice.

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// checkError checks the error that a failing command line prints.
func checkError(t *testing.T, line, text string) {
	t.Helper()
	if !strings.HasPrefix(text, "muster: ") || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
		t.Errorf("muster %s: got %q, want one line of muster", line, text)
	}
	if word := doubled(text); word != "" {
		t.Errorf("muster %s: the prefix %q is there twice: got %q, want an empty text", line, word, text)
	}
}

// doubled returns a prefix that an error has twice. Its prefixes are the texts before its colons, up to a quoted text.
func doubled(text string) string {
	for part := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "; ") {
		seen, words := map[string]bool{}, strings.Split(part, ": ")
		for _, w := range words[:len(words)-1] {
			if strings.ContainsAny(w, "\"`") {
				break
			}
			if seen[w] {
				return w
			}
			seen[w] = true
		}
	}
	return ""
}

func TestDoubledPrefixIsFound(t *testing.T) {
	for text, want := range map[string]string{
		"muster: submit: submit: no": "submit", "muster: api: muster: no": "muster", "muster: job a: not found": "", "muster: no": "",
		"muster: want name: x; see name: y": "", "muster: not found: job 1: not found: gone": "not found", "muster: \"a: a: b\": no": "",
	} {
		if got := doubled(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// failing are command lines that fail for reasons of this host, or at a daemon that refuses everything.
var failing = []string{
	"jobs", "jobs --all", "jobs -w", "jobs --jsonl", "nodes", "nodes -w", "gpus", "peers", "users", "audit", "show ID", "why ID", "wait ID", "logs ID", "logs -f ID", "logs ID.3",
	"cancel ID", "cancel ID ID", "hold ID", "release ID", "requeue ID --failed", "requeue ID.3", "cp ID:x .", "exec ID -- true", "exec ID.3 -- true",
	"submit -- true", "submit -W -- true", "submit -F job.yaml", "submit -F two.yaml", "submit --upload job.yaml -- true", "submit -d afterok:ID -- true", "submit --array 0-9 -- true", "submit -- a b c",
	"run -- true", "run --in ID -- true", "alloc", "offers", "offers -G 1", "submit --dry-run -- true",
	"node show n1", "node drain n1", "node resume n1", "node declare-dead n1", "node forget-claim ID", "invite", "join /ip4/10.0.0.1/tcp/1 --token T --insecure-token", "peers --revoke n1", "peers --restore n1",
	"submit -F nosuch.yaml", "submit -F broken.yaml", "submit -F type.yaml", "submit nosuch.sh", "submit --env-file nosuch -- true", "submit --each-line nosuch -- true", "submit --upload nosuch -- true",
	"daemon --config nosuch.yaml", "daemon --config type.yaml", "daemon --gpus 0,9x --data-dir d --socket s1",
	"daemon --memory lots", "daemon --cpus many", "daemon --token-file nosuch", "config validate nosuch.yaml", "config validate type.yaml", "config show --config nosuch.yaml",
	"simulate nosuch.json", "simulate --compare nosuch.json nosuch.json", "doctor --config nosuch.yaml", "dev --nodes 0", "completion csh", "help nosuch", "nosuch", "node nosuch", "--nosuch", "jobs --nosuch", "jobs --since soon", "jobs --state X",
}

func TestErrorsAreOneLine(t *testing.T) {
	daemons := map[string]http.HandlerFunc{
		"refuses":    problem(http.StatusForbidden, "denied", `"detail": "not allowed here: this host is a guest"`),
		"finds none": problem(http.StatusNotFound, "not-found", `"detail": "not found: there is none"`),
		"is busy":    problem(http.StatusConflict, "conflict", `"detail": "conflict: it runs\nand runs"`),
		"is broken":  func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no\nway", http.StatusInternalServerError) },
		"is foreign": answer(http.StatusOK, "<html>\nhello"),
	}
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"job.yaml": "command: [x]\n", "two.yaml": "name: a\ncommand: [x]\n---\nname: b\ncommand: [x]\ndependency: [afterok:a]\n", "broken.yaml": "command: [x\n", "type.yaml": "command: {a: 1}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, handler := range daemons {
		f := newFake(t, map[string]http.HandlerFunc{"/v1/": handler})
		for _, line := range failing {
			line = strings.ReplaceAll(line, "ID", idA)
			r := f.muster(strings.Fields(line)...)
			if r.code == 0 {
				t.Errorf("muster %s: a daemon that %s: exit 0, want another: %q, %q", line, name, r.stdout, r.err)
				continue
			}
			text := r.err
			if first, rest, two := strings.Cut(text, "\n"); two && strings.HasPrefix(first, "muster: warning: ") {
				text = rest
			}
			checkError(t, line, text)
		}
	}
}

// An error that several arguments have in common is printed once.
func TestSameErrorIsPrintedOnce(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"GET /v1/jobs/" + idA: problem(http.StatusForbidden, "denied", `"detail": "not allowed here"`)})
	if r := f.muster("cancel", idA, idA); r.code != 1 || r.err != "muster: not allowed here\n" {
		t.Errorf("exit %d, %q, want 1 and one line", r.code, r.err)
	}
}
