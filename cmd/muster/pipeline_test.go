package main

// Jobs that depend on others, and job files with several jobs.

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster/job"
)

// intake is a daemon that accepts jobs under the ids idOf(1), idOf(2), … and knows the job idA.
type intake struct {
	*fake

	mu     sync.Mutex
	specs  []job.Spec // guarded by mu
	keys   []string   // guarded by mu
	refuse string     // guarded by mu: the name of a job that is refused
}

func idOf(n int) string { return string(job.NewID(3, uint64(n))) }

func newIntake(t *testing.T) *intake {
	in := &intake{}
	in.fake = newFake(t, map[string]http.HandlerFunc{
		"POST /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			spec := job.DefaultSpec()
			if err := json.Unmarshal(text, &spec); err != nil {
				t.Errorf("%v in %s", err, text)
			}
			if err := spec.Validate(); err != nil {
				t.Errorf("got an invalid job: %v", err)
			}
			in.mu.Lock()
			defer in.mu.Unlock()
			if spec.Name == in.refuse {
				problem(http.StatusUnprocessableEntity, "bad-request", `"detail":"too bad"`)(w, r)
				return
			}
			in.specs, in.keys = append(in.specs, spec), append(in.keys, r.Header.Get("Idempotency-Key"))
			answer(http.StatusCreated, jobDoc(idOf(len(in.specs)), "PENDING", ""))(w, r)
		},
		"GET /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			if q := r.URL.Query(); q.Get("last") == "true" || q.Get("prefix") == "1268" {
				answer(http.StatusOK, jobsDoc(jobDoc(idA, "RUNNING", "")))(w, r)
				return
			}
			answer(http.StatusOK, jobsDoc())(w, r)
		},
	})
	return in
}

func TestSubmitAcceptsDependencies(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"-d", "afterok:" + idA}, []string{"afterok:" + idA}},
		{[]string{"--dependency=afterok:last:1268,after:" + idB + "+10"}, []string{"afterok:" + idA, "afterok:" + idA, "after:" + idB + "+10"}},
		{[]string{"-d", "afterany:1268?afternotok:" + idB}, []string{"afterany:" + idA + "?afternotok:" + idB}},
	} {
		in := newIntake(t)
		r := in.muster(append(append([]string{"submit", "--kill-on-invalid-dep"}, c.args...), "true")...)
		if r.code != 0 || r.stdout != idOf(1)+"\n" {
			t.Fatalf("%v: got %+v, want exit 0 and the id", c.args, r)
		}
		if s := in.specs[0]; !slices.Equal(s.Dependency, c.want) || !s.KillOnInvalidDep {
			t.Errorf("%v: got %v, want %v", c.args, s.Dependency, c.want)
		}
	}
	for arg, want := range map[string]string{
		"afterok:zzzz":    `job "zzzz": not found`,
		"afterok:all":     "a dependency is on one job",
		"afterok:1268.3":  "names tasks",
		"singleton":       "singleton is not supported",
		"afterok":         "want afterok:ID",
		"":                "want afterok:ID",
		"aftercorr:1268":  "only for an array",
		"afterok:what ??": "want afterok:ID",
	} {
		in := newIntake(t)
		r := in.muster("submit", "-d", arg, "true")
		if r.code != exitUsage || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 || len(in.specs) > 0 {
			t.Errorf("-d %q: got %+v, want %q", arg, r, want)
		}
	}
}

func TestScriptsMayHaveDependencies(t *testing.T) {
	in := newIntake(t)
	t.Chdir(t.TempDir())
	script := "#!/bin/sh\n#SBATCH --dependency=afterok:1268 --kill-on-invalid-dep=yes\ntrue\n"
	if err := os.WriteFile("script", []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := in.muster("submit", "script"); r.code != 0 || !slices.Equal(in.specs[0].Dependency, []string{"afterok:" + idA}) || !in.specs[0].KillOnInvalidDep {
		t.Errorf("got %+v, want the dependency of the script", r)
	}
	for text, want := range map[string]string{
		"#SBATCH -d singleton":              "singleton is not supported",
		"#SBATCH --kill-on-invalid-dep=may": "want yes or no",
		"#MUSTER --dependency=afterok":      `script:2: dependency "afterok": want afterok:ID`,
	} {
		if err := os.WriteFile("script", []byte("#!/bin/sh\n"+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := in.muster("submit", "script"); r.code != exitUsage || !strings.Contains(r.err, want) {
			t.Errorf("%s: got %+v, want exit %v and stderr with %q", text, r, exitUsage, want)
		}
	}
}

const pipeline = `name: report
command: [report]
dependency: ["afterany:train", "afterok:last"]
---
name: prepare
command: [prepare]
---
name: train
command: [train]
dependency: ["afterok:prepare"]
`

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The jobs of a file are submitted after those that they depend on, and printed in the order of the file.
func TestSubmitOfSeveralJobsFollowsDependencies(t *testing.T) {
	in := newIntake(t)
	r := in.muster("submit", "-F", writeFile(t, pipeline), "--priority=70", "--idempotency-key=k")
	if want := idOf(3) + "\n" + idOf(1) + "\n" + idOf(2) + "\n"; r.code != 0 || r.stdout != want {
		t.Fatalf("got %+v, want %q", r, want)
	}
	var got []string
	for i, s := range in.specs {
		got = append(got, fmt.Sprintf("%s %v %d %s", s.Name, s.Dependency, s.Priority, in.keys[i]))
	}
	want := []string{
		"prepare [] 70 k/2", "train [afterok:" + idOf(1) + "] 70 k/3", "report [afterany:" + idOf(2) + " afterok:" + idA + "] 70 k/1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("submitted %q, want %q", got, want)
	}
	in = newIntake(t)
	if r := in.muster("submit", "--json", "-F", writeFile(t, pipeline)); r.code != 0 || !strings.Contains(r.stdout, `"schema": "muster.jobs/v1"`) || strings.Count(r.stdout, `"muster.job/v1"`) != 3 || in.keys[0] != "" {
		t.Errorf("--json: got %+v, want 3 jobs without keys", r)
	}
}

// If one is refused, the error says which were accepted.
func TestSubmitOfSeveralJobsNamesTheAccepted(t *testing.T) {
	in := newIntake(t)
	in.refuse = "train"
	r := in.muster("submit", "-F", writeFile(t, pipeline), "--idempotency-key=k")
	want := `"train" in line 8: too bad; 1 of 3 jobs were accepted, their ids are on the standard output: "prepare" in line 5; the same command again submits only the others`
	if r.code != exitUsage || r.stdout != idOf(1)+"\n" || !strings.Contains(r.err, want) {
		t.Errorf("got %+v, want %q", r, want)
	}
	in = newIntake(t)
	in.refuse = "prepare"
	if r := in.muster("submit", "-F", writeFile(t, pipeline)); r.stdout != "" || !strings.Contains(r.err, "nothing was submitted") {
		t.Errorf("the first is refused: got %+v, want that nothing was submitted", r)
	}
}

// Nothing is submitted if the file or the command line is invalid.
func TestSubmitOfSeveralJobsIsCheckedFirst(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		args       []string
	}{
		"an unknown name": {"name: a\ncommand: [x]\n---\nname: b\ncommand: [x]\ndependency:\n  - afterok:a\n  - afterok:aa\n", `:8: dependency afterok: "aa" is neither the name of a job in the file nor the id of a job: job "aa": not`, nil},
		"a circle":        {"name: a\ncommand: [x]\ndependency: [afterok:b]\n---\nname: b\ncommand: [x]\ndependency: [afterok:a]\n", ":7: these jobs wait for each other", nil},
		"one name":        {pipeline, "--name: job file", []string{"--name=x"}},
		"a dependency":    {pipeline, "--dependency: job file", []string{"-d", "afterok:" + idA}},
		"follow":          {pipeline, "--follow: job file", []string{"-f"}},
		"a long key":      {pipeline, "--idempotency-key: too long", []string{"--idempotency-key=" + strings.Repeat("k", 127)}},
		"a bad flag":      {pipeline, "priority 101", []string{"--priority=101"}},
	} {
		in := newIntake(t)
		r := in.muster(append([]string{"submit", "-F", writeFile(t, c.text)}, c.args...)...)
		if r.code != exitUsage || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 || len(in.specs) > 0 {
			t.Errorf("%s: got %+v, %d submitted; want %q", name, r, len(in.specs), c.want)
		}
	}
	in := newIntake(t)
	for _, verb := range []string{"run", "offers"} {
		if r := in.muster(verb, "-F", writeFile(t, pipeline)); r.code != exitUsage || !strings.Contains(r.err, "has 3 jobs") {
			t.Errorf("%s: got %+v, want exit %v and stderr with %q", verb, r, exitUsage, "has 3 jobs")
		}
	}
}

// show and why print the jobs that a job waits for.
func TestShowAndWhyPrintDependencies(t *testing.T) {
	doc := strings.Replace(jobDoc(idA, "PENDING", ""), `"spec":{`, `"dependencies":[
		{"condition":"afterok","job":"`+idB+`","state":"waiting","job_state":"RUNNING"},
		{"condition":"after","job":"`+idB+`","delay":600,"state":"met","job_state":"RUNNING","detail":"d"},
		{"condition":"afterany","job":"`+idB+`","state":"never"}],"spec":{`, 1)
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/jobs/" + idA:          answer(http.StatusOK, doc),
		"GET /v1/jobs/" + idA + "/why": answer(http.StatusOK, `{"job":"`+idA+`","state":"PENDING","reason":"Dependency","reason_detail":"x","clauses":[],"now":[],"later":[]}`),
	})
	for _, verb := range []string{"show", "why"} {
		r := f.muster(verb, idA)
		for _, want := range []string{"depends on", "afterok:" + idB + " waiting: RUNNING", "after:" + idB + "+10 met: RUNNING, d", "afterany:" + idB + " never\n"} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("%s: want %q, got\n%s%s", verb, want, r.stdout, r.err)
			}
		}
	}
}
