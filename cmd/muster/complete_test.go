package main

// Completion with names that the daemon knows.

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// suggestedBy returns the suggestions for a line, each with its description.
func suggestedBy(t *testing.T, line string) (lines []string, code int) {
	t.Helper()
	r := program(t.Context(), "", append(strings.Split(line, " "), askDescribed)...)
	if r.err != "" {
		t.Errorf("%q: got stderr %s, want none", line, r.err)
	}
	if r.stdout == "" {
		return nil, r.code
	}
	return strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n"), r.code
}

func TestCompletionOfNamesOfTheDaemon(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			jobs := []string{jobDoc(idA, "RUNNING", ""), jobDoc(idB, "HELD", "")}
			switch r.URL.Query().Get("state") {
			case "HELD":
				jobs = jobs[1:]
			case "RUNNING":
				jobs = jobs[:1]
			case "PENDING":
				jobs = nil
			}
			answer(http.StatusOK, jobsDoc(jobs...))(w, r)
		},
		"GET /v1/nodes": answer(http.StatusOK, `{"items":[{"name":"n1","state":"ready","gpus":[{"class":"h100-80gb"}]},{"name":"n2","state":"draining"},{"name":"odd name","state":"ready"}]}`),
		"GET /v1/users": answer(http.StatusOK, `{"items":[{"user":"","project":"vision"},{"user":"amy","project":"vision"},{"user":"amy","project":""},{"user":"$(reboot)","project":"x y"},{"user":"ada","project":""}]}`),
	})
	a, b, last := idA+"\ttrain, RUNNING of amy", idB+"\ttrain, HELD of amy", "last\tthe job that you submitted last"
	for line, want := range map[string][]string{
		"show ":                {a, b, last},
		"show " + idB[:3]:      {b},
		"show " + idA + " ":    nil, // only one job
		"cancel " + idA + " ":  {a, b, last},
		"release ":             {b, last},
		"hold ":                nil,
		"exec ":                {a, last},
		"exec " + idA + " ":    nil, // followed by a command of the task
		"logs -f ":             {a, b, last},
		"run --in ":            {a, last},
		"node drain ":          {"n1\tready, 1 h100-80gb", "n2\tdraining, -"},
		"node drain n1 ":       nil,
		"submit -w n1,n2,":     {"n1,n2,n1\tready, 1 h100-80gb", "n1,n2,n2\tdraining, -"},
		"submit --exclude=n2":  {"--exclude=n2\tdraining, -"},
		"submit --exclude = n": {"n1\tready, 1 h100-80gb", "n2\tdraining, -"},
		"submit -d ":           {"after:\t", "afterok:\t", "afternotok:\t", "afterany:\t", "aftercorr:\t"},
		"submit -d afterok:":   {"afterok:" + a, "afterok:" + b},
		"submit --dependency=afterok:" + idA + ",afterany:" + idB[:3]: {"--dependency=afterok:" + idA + ",afterany:" + b},
		"jobs -u a":                {"ada\t", "amy\t"},
		"users ada am":             {"amy\t"},
		"events --user am":         {"amy\t"},
		"submit --project ":        {"vision\t"},
		"audit --action dec":       {"declare-dead\ta node was declared dead"},
		"events --kind g":          {"gpu\t", "gone\t"},
		"jobs --state SUCC":        {"SUCCEEDED\tIts exit code was 0."},
		"submit --kill-on-invalid": {"--kill-on-invalid-dep\tcancel the job if a dependency can never be met"},
	} {
		for _, at := range []string{"--socket " + f.socket + " " + line, "--socket=" + f.socket + " " + line} {
			if got, _ := suggestedBy(t, at); strings.Join(got, "|") != strings.Join(want, "|") {
				t.Errorf("%q: got %q, want %q", line, got, want)
			}
		}
		t.Setenv("MUSTER_SOCKET", f.socket)
		if got, _ := suggestedBy(t, line); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q with the socket in the environment: got %q, want %q", line, got, want)
		}
	}
}

// Where only a job or a node is allowed the shell must not suggest files. A daemon that is missing, refuses or sends
// nonsense gives no suggestions.
func TestCompletionWithoutADaemonIsEmpty(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs":  problem(http.StatusServiceUnavailable, "unavailable", `"detail": "later"`),
		"GET /v1/nodes": answer(http.StatusOK, "<html>"),
	})
	for _, socket := range []string{f.socket, filepath.Join(t.TempDir(), "none"), "/" + strings.Repeat("s", 200)} {
		for line, code := range map[string]int{
			"show ": exitFailed, "node drain ": exitFailed, "submit -w ": exitFailed, "submit ": exitDone, "cp x ": exitDone, "submit -F ": exitDone, "nosuch x": exitDone,
		} {
			if got, exit := suggestedBy(t, "--socket "+socket+" "+line); got != nil || exit != code {
				t.Errorf("%q on %.40q: got %q, exit %d, want nothing and %d", line, socket, got, exit, code)
			}
		}
	}
}

// A hostile name of a job or a node cannot put control characters or another line into the command line.
func TestCompletionIsPrintable(t *testing.T) {
	evil := strings.Replace(jobDoc(idA, "RUNNING", ""), `"name":"train"`, `"name":"a\u001b[31m\nrm -rf"`, 1)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs":  answer(http.StatusOK, jobsDoc(evil)),
		"GET /v1/nodes": answer(http.StatusOK, `{"items":[{"name":"n1\n$(rm -rf /)","state":"ready"},{"name":"$(reboot)","state":"ready"},{"name":"n2","state":"re\u001bady"}]}`),
	})
	t.Setenv("MUSTER_SOCKET", f.socket)
	if got, _ := suggestedBy(t, "show 1"); len(got) != 1 || strings.ContainsAny(got[0], "\x1b\n") {
		t.Errorf("jobs: got %q, want one line without control characters", got)
	}
	if got, _ := suggestedBy(t, "node show "); len(got) != 1 || !strings.HasPrefix(got[0], "n2\t") || strings.Contains(got[0], "\x1b") {
		t.Errorf("nodes: got %q, want n2 without control characters", got)
	}
}

// Bash splits words at colons, and replaces only the part after the last one.
func TestCompletionAfterColonsOfBash(t *testing.T) {
	f := newFake(t, map[string]http.HandlerFunc{"GET /v1/jobs": answer(http.StatusOK, jobsDoc(jobDoc(idA, "RUNNING", ""), jobDoc(idB, "HELD", "")))})
	t.Setenv("MUSTER_SOCKET", f.socket)
	for line, want := range map[string]string{
		"submit -d afterok :":                               idA + "\n" + idB + "\n",
		"submit -d afterok : " + idB[:4]:                    idB + "\n",
		"submit -d afterok : " + idA + ",afterany : " + idB: idB + "\n",
		"submit -d afterok:" + idB[:4]:                      "afterok:" + idB + "\n",
		"submit -d aftero":                                  "afterok:\n",
		"submit --addr 127.0.0.1 : 4702 -d aftero":          "afterok:\n",
	} {
		if r := program(t.Context(), "", append(strings.Split(line, " "), askCompletion)...); r.code != 0 || r.stdout != want {
			t.Errorf("%q: exit %d, %q, want %q", line, r.code, r.stdout, want)
		}
	}
}
