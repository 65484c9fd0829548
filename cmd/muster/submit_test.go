package main

// From a command line, a script or a job file to the submitted job.

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testkit/exetest"
	"github.com/musterhq/muster/job"
)

// acceptAll returns a daemon that accepts every job and keeps the last one.
func acceptAll(t *testing.T) (f *fake, last func() job.Spec) {
	var got []byte
	f = newFake(t, map[string]http.HandlerFunc{
		"POST /v1/jobs": func(w http.ResponseWriter, r *http.Request) {
			got, _ = io.ReadAll(r.Body)
			answer(http.StatusCreated, jobDoc(idA, "PENDING", ""))(w, r)
		},
	})
	return f, func() job.Spec {
		spec := job.Spec{}
		if err := json.Unmarshal(got, &spec); err != nil {
			t.Fatalf("%v in %s", err, got)
		}
		return spec
	}
}

func TestSubmitReadsCommandLinesScriptsAndFiles(t *testing.T) {
	f, last := acceptAll(t)
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FROM_HERE", "a,b")
	for name, text := range map[string]string{
		"script": "#!/bin/sh\n#MUSTER --gpus=H100:2 --name \"my job\" # two\n#MUSTER -t 1h\necho\n#MUSTER --cpus=9\n",
		"plain":  "echo no hash bang\n",
		"gang":   "command: [x]\nnodes: 2\nntasks_per_node: 8\nkeep_on_bad_exit: true\nresources: {gpus: 4}\n",
		"env":    "# comment\nA=file\nB=x=y\n\nFROM_HERE\r\n",
		"job":    "name: f\ncommand: [python, '{lr}']\nparams: {lr: '1'}\nresources: {gpus: 4}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("script")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		in    string
		build func(*job.Spec)
	}{
		{[]string{"echo", "-n", "x"}, "", func(s *job.Spec) { s.Command, s.Name = []string{"echo", "-n", "x"}, "echo" }},
		{[]string{"--upload-limit", "1MB", "--workdir", here, "./plain", "a"}, "", func(s *job.Spec) { s.Command, s.Name, s.Workdir = []string{"./plain", "a"}, "plain", here }},
		{[]string{here}, "", func(s *job.Spec) { s.Command, s.Name = []string{here}, filepath.Base(here) }},
		{[]string{"./script", "arg"}, "", func(s *job.Spec) {
			s.Script, s.Args, s.Name, s.TimeLimit = string(script), []string{"arg"}, "my job", job.Duration(time.Hour)
			s.Resources.GPUs, s.Resources.GPUModel = 2, "H100"
		}},
		{[]string{"--", "script"}, "", func(s *job.Spec) { s.Command, s.Name = []string{"script"}, "script" }},
		{[]string{"./script"}, "", func(s *job.Spec) {
			s.Script, s.Name, s.TimeLimit = string(script), "my job", job.Duration(time.Hour)
			s.Resources.GPUs, s.Resources.GPUModel = 2, "H100"
		}},
		{[]string{"-G4", "-J", "mine", "script"}, "", func(s *job.Spec) { // the command line overrides directives
			s.Script, s.Name, s.TimeLimit = string(script), "mine", job.Duration(time.Hour)
			s.Resources.GPUs = 4
		}},
		{[]string{"-"}, "echo in\n", func(s *job.Spec) { s.Script = "echo in\n" }},
		{[]string{"-F", "job"}, "", func(s *job.Spec) {
			s.Name, s.Command, s.Params = "f", []string{"python", "{lr}"}, map[string]string{"lr": "1"}
			s.Resources.GPUs, s.Resources.CPUs = 4, 1
		}},
		{[]string{"-F-", "--param", "lr=2,3", "--name=g"}, `{"command": ["x"], "params": {"a": "b"}}`, func(s *job.Spec) {
			s.Name, s.Command, s.Params = "g", []string{"x"}, map[string]string{"a": "b", "lr": "2,3"}
		}},
		{[]string{"--env", "A=1,2", "--env", "FROM_HERE", "--env-file", "env", "--env=C=", "x"}, "", func(s *job.Spec) {
			s.Command, s.Name = []string{"x"}, "x"
			s.Env = map[string]string{"A": "1,2", "B": "x=y", "C": "", "FROM_HERE": "a,b"}
		}},
		{[]string{"-w", "n1,n2", "-x", "n3", "-C", "rack=r1&nvlink", "-D", "sub", "--no-requeue", "--hold=false", "x"}, "", func(s *job.Spec) {
			s.Command, s.Name = []string{"x"}, "x"
			s.NodeList, s.Exclude, s.Constraint = []string{"n1", "n2"}, []string{"n3"}, "rack=r1&nvlink"
			s.Workdir, s.Requeue = filepath.Join(here, "sub"), false
		}},
		{[]string{"-w", "n[1-3,5],gpu*,r[a-c]", "-x", "n[2,3]", "--prefer", "rack=r1:5,nvlink", "--prefer=!old", "--exclusive", "--begin", "2026-12-01T08:00:00Z", "x"}, "", func(s *job.Spec) {
			s.Command, s.Name = []string{"x"}, "x"
			s.NodeList, s.Exclude = []string{"n[1-3,5]", "gpu*", "r[a-c]"}, []string{"n[2,3]"}
			at := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
			s.Prefer, s.Exclusive, s.Begin = "rack=r1:5,nvlink,!old", true, &at
		}},
		{[]string{"--mem", "8GiB", "--gpu-share", "0.5", "--gpu-mem=80GB", "--priority", "60", "--retries=2", "--grace", "1m", "--hold", "x"}, "", func(s *job.Spec) {
			s.Command, s.Name, s.Hold = []string{"x"}, "x", true
			s.Resources.Memory, s.Resources.GPUShare, s.Resources.GPUMemory = 8<<30, 0.5, 80e9
			s.Priority, s.Retries, s.Grace = 60, 2, job.Duration(time.Minute)
		}},
		{[]string{"-N", "4", "-G", "H100:8", "--ntasks-per-node", "2", "--kill-on-bad-exit=no", "-a", "0-3", "x"}, "", func(s *job.Spec) {
			s.Command, s.Name, s.Nodes, s.TasksPerNode, s.KeepOnBadExit, s.Array = []string{"x"}, "x", 4, 2, true, "0-3"
			s.Resources.GPUs, s.Resources.GPUModel = 2, "H100"
		}},
		{[]string{"--nodes", "4", "--gpus-per-node", "8", "x"}, "", func(s *job.Spec) {
			s.Command, s.Name, s.Nodes, s.Resources.GPUs = []string{"x"}, "x", 4, 8
		}},
		{[]string{"-F", "gang"}, "", func(s *job.Spec) { // the GPUs of a file are those of one task
			s.Command, s.Nodes, s.TasksPerNode, s.KeepOnBadExit = []string{"x"}, 2, 8, true
			s.Resources.GPUs = 4
		}},
		{[]string{"-F", "gang", "--gpus", "2"}, "", func(s *job.Spec) {
			s.Command, s.Nodes, s.TasksPerNode, s.KeepOnBadExit = []string{"x"}, 2, 8, true
			s.Resources.GPUs = 1
		}},
		{[]string{"-N2", "./script"}, "", func(s *job.Spec) { // the GPUs of a directive are those of the whole job
			s.Script, s.Name, s.TimeLimit = string(script), "my job", job.Duration(time.Hour)
			s.Resources.GPUs, s.Resources.GPUModel, s.Nodes = 1, "H100", 2
		}},
		{[]string{"--on-partition", "fence", "--lease", "90s", "x"}, "", func(s *job.Spec) {
			s.Command, s.Name, s.Partition, s.Lease = []string{"x"}, "x", job.PartitionFence, job.Duration(90*time.Second)
		}},
		{[]string{"--max-failures", "7", "-a", "0-9", "x"}, "", func(s *job.Spec) {
			s.Command, s.Name, s.MaxFailures, s.Array = []string{"x"}, "x", 7, "0-9"
		}},
		{[]string{"--retries", "3", "--retry-on", "75, 137", "--checkpoint-exit-code", "85", "x"}, "", func(s *job.Spec) {
			s.Command, s.Name, s.Retries, s.RetryOn, s.CheckpointExitCode = []string{"x"}, "x", 3, []int{75, 137}, 85
		}},
	} {
		want := job.DefaultSpec()
		c.build(&want)
		r := f.musterIn(t.Context(), c.in, append([]string{"submit"}, c.args...)...)
		if r.code != 0 || r.err != "" || r.stdout != idA+"\n" {
			t.Errorf("submit %q: exit %d, stdout %q, stderr %q, want 0 and the id", c.args, r.code, r.stdout, r.err)
		} else if got := last(); !reflect.DeepEqual(got, want) {
			t.Errorf("submit %q\n got %+v\nwant %+v", c.args, got, want)
		}
	}
}

func TestDirectivesAreOptions(t *testing.T) {
	f, last := acceptAll(t)
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	head := "#!/bin/bash\n"
	r := f.musterIn(t.Context(), head+"#\n# don't mind\n#SBATCH --job-name='a b' -c 4\n#SBATCH -t 90 --mem=100 # both bare\n#SBATCH --gres=gpu:H100:2\n"+
		"#SBATCH -N 1\n#SBATCH --partition gpu --no-requeue\n#SBATCH -o out.log\n##SBATCH --hold\n\n#SBATCH -wn1,n2\n", "submit", "-")
	want := job.DefaultSpec()
	want.Script, want.Name, want.TimeLimit, want.Requeue, want.NodeList = last().Script, "a b", job.Duration(90*time.Minute), false, []string{"n1", "n2"}
	want.SlurmEnv, want.SubmitDir, want.Output = true, here, "out.log"
	want.Nodes, want.Resources = 1, job.Resources{CPUs: 4, Memory: 100 << 20, GPUs: 2, GPUModel: "H100"}
	if got := last(); r.code != 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("exit %d\n got %+v\nwant %+v", r.code, got, want)
	}
	if want := "muster: -:8: warning: #SBATCH --partition gpu: has no meaning here and is ignored; use a --constraint with labels of the nodes\n"; r.err != want {
		t.Errorf("got warnings %q, want %q", r.err, want)
	}
	for line, want := range map[string]string{
		"#MUSTER --frob":                         "-:2: no such flag: --frob",
		"#MUSTER --mem=8":                        "-:2: --mem: size",
		"#MUSTER --mem":                          "-:2: --mem needs a value",
		"#MUSTER --on-partition=":                `-:2: --on-partition: "": want hold or fence`,
		"#MUSTER --on-partition x":               `-:2: --on-partition: "x": want hold or fence`,
		"#MUSTER --lease 1s":                     "lease 1s: want 30s to 1d",
		"#MUSTER --lease 25h":                    "lease 1d1h: want 30s to 1d",
		"#MUSTER --mem 1B":                       "resources.memory 1B: no process starts with less than 1MiB",
		"#MUSTER --lease 1m --on-partition hold": "lease 1m: with partition hold no lease ends a task",
		"#MUSTER gpus":                           `-:2: "gpus": want a flag`,
		"#MUSTER --array=2-1":                    "array \"2-1\"",
		"#MUSTER --array=":                       "--array: it names no index",
		"#SBATCH --array=":                       "--array: it names no index",
		"#MUSTER --name='a":                      "-:2: a ' is not closed",
		"#MUSTER --each-line f":                  "-:2: --each-line: only on the command line",
		"#SBATCH --array=x":                      "array \"x\"",
		"#SBATCH -N x":                           `-:2: -N: "x": want a whole number`,
		"#SBATCH -N 0":                           `-:2: -N: "0": want 1 to 1000000`,
		"#SBATCH -n 0":                           `-:2: -n: "0": want 1 to 1000000`,
		"#MUSTER -N2 -G3":                        "--gpus 3 is for the whole job and must be a multiple of --nodes 2",
		"#SBATCH --time=1:2:3:4":                 "want minutes",
		"#SBATCH --gres=fpga:1":                  "only gpu",
		"#SBATCH --mem=x":                        "want a number and a unit",
		"#SBATCH -C [a|b]":                       "-:2: -C: \"[a|b]\": [a|b], the same feature on all nodes of a job, is not supported",
		"#SBATCH -C 'a*2&b'":                     "numbers of nodes (a*2) are not supported",
		"#SBATCH --prefer=a*2":                   "numbers of nodes (a*2) are not supported",
		"#SBATCH -C a&&&b":                       "constraint \"a&&&b\": at character 4",
		"#SBATCH --begin=soon":                   "-:2: --begin: \"soon\": want a time such as 16:00",
		"#SBATCH -w n[3-1]":                      "the range 3-1 ends before it begins",
		"#SBATCH -=":                             "warning: #SBATCH -=: has no meaning",
	} {
		r := f.musterIn(t.Context(), head+line+"\n", "submit", "-")
		if bad := !strings.HasPrefix(want, "warning"); (r.code == 2) != bad || !strings.Contains(r.err, want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: exit %d, %q; want %q", line, r.code, r.err, want)
		}
	}
}

func TestSlurmTimeIsParsed(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Minute, "5:30": 5*time.Minute + 30*time.Second, "1:00:00": time.Hour, "2-0": 48 * time.Hour, "1-2:30": 26*time.Hour + 30*time.Minute, "1-0:0:5": 24*time.Hour + 5*time.Second, "0": 0,
	} {
		var s job.Spec
		if err := slurmTime(&s, text); err != nil || s.TimeLimit.D() != want {
			t.Errorf("--time=%s: got %s, %v; want %s", text, s.TimeLimit, err, want)
		}
	}
	for _, text := range []string{"", "x", "-5", "1:2:3:4", "1-", "1:-2", "9999999"} {
		if err := slurmTime(&job.Spec{}, text); err == nil {
			t.Errorf("--time=%s was accepted, want an error", text)
		}
	}
}

// FuzzDirectives checks that no script crashes the program.
func FuzzDirectives(f *testing.F) {
	f.Add("#!/bin/sh\n#MUSTER --gpus=2 -c 3\n#SBATCH -t 5 --x y\necho\n")
	f.Add("#SBATCH - -= --= 'a\n#MUSTER \"\" -\n")
	f.Fuzz(func(_ *testing.T, text string) {
		spec := job.DefaultSpec()
		late, err := specReader{streams{err: io.Discard}}.directives("script", text, &spec)
		if err == nil {
			_, _ = late.finish(func(string) bool { return false }, &spec)
		}
	})
}

func TestRefusalsHaveExitCodesAndReasons(t *testing.T) {
	explained := `"explanation": {"clauses": [{"clause": "cpus: 1", "meets": 2, "of": 2},
		{"clause": "gpus: 3", "meets": 0, "of": 2, "fails": [{"node": "n1", "reason": "has 2"}, {"node": "n2", "reason": "has none"}]}]}`
	f := newFake(t, map[string]http.HandlerFunc{
		"POST /v1/jobs":   problem(http.StatusUnprocessableEntity, "no-match", explained),
		"POST /v1/offers": answer(http.StatusOK, `{"reason": "NoMatch", "clauses": [], "now": [], "later": []}`),
	})
	want := "muster: nothing in the cluster could ever run this; gpus: 3: met by 0 of 2 nodes (n1: has 2, n2: has none); ask for less, or submit it with --hold\n"
	for _, verb := range []string{"submit", "run"} {
		if r := f.muster(verb, "-G", "3", "x"); r.code != 3 || r.err != want || r.stdout != "" {
			t.Errorf("%s: exit %d, %q; want 3, %q", verb, r.code, r.err, want)
		}
		if r := f.muster(verb, "--dry-run", "-G", "3", "x"); r.code != 3 || !strings.Contains(r.stdout, "NoMatch") {
			t.Errorf("%s --dry-run: exit %d, %q, want 3 with NoMatch", verb, r.code, r.stdout)
		}
	}
	if r := f.muster("offers", "-G", "3"); r.code != 0 || r.stdout != "reason  NoMatch\nnow     no node\n" {
		t.Errorf("offers: exit %d, %q, want 0 with NoMatch", r.code, r.stdout)
	}
	// Some nodes could run a member of the gang, but fewer than it has members.
	few := newFake(t, map[string]http.HandlerFunc{
		"POST /v1/offers": answer(http.StatusOK, `{"reason": "NoMatch", "clauses": [], "now": [{"node": "n1", "why": "room"}], "later": []}`),
	})
	if r := few.muster("submit", "--dry-run", "-N", "2", "x"); r.code != 3 || !strings.Contains(r.stdout, "n1: room") {
		t.Errorf("submit --dry-run of a gang that is too large: exit %d, %q, want 3 with n1", r.code, r.stdout)
	}
	noEngine := `"explanation": {"clauses": [{"clause": "driver: docker", "meets": 0, "of": 1, "fails": [{"node": "n1", "reason": "no Docker engine"}], "advice": "start an engine"}]}`
	f = newFake(t, map[string]http.HandlerFunc{"POST /v1/jobs": problem(http.StatusUnprocessableEntity, "no-match", noEngine)})
	if r := f.muster("run", "--image", "a", "x"); r.code != 3 || !strings.HasSuffix(r.err, "(n1: no Docker engine); start an engine, or submit it with --hold\n") {
		t.Errorf("exit %d, %q, want 3 and the hint about an engine", r.code, r.err)
	}
	f = newFake(t, map[string]http.HandlerFunc{"POST /v1/jobs": problem(http.StatusUnprocessableEntity, "bad-request", `"detail": "line one\nline two \u001b[31m"`)})
	if r := f.muster("submit", "x"); r.code != 2 || r.err != "muster: line one; line two ·[31m\n" {
		t.Errorf("exit %d, %q, want 2 and one line without control characters", r.code, r.err)
	}
	f = newFake(t, map[string]http.HandlerFunc{"POST /v1/jobs": problem(http.StatusServiceUnavailable, "unavailable", `"detail": "not now"`)})
	for verb, code := range map[string]int{"submit": 1, "run": 125} {
		if r := f.muster(verb, "x"); r.code != code || r.err != "muster: not now\n" {
			t.Errorf("%s: exit %d, %q; want %d", verb, r.code, r.err, code)
		}
	}
}

// A job that was accepted but most likely is not what its user meant: the warning is not part of the output.
func TestWarningsAreNotOutput(t *testing.T) {
	id := job.NewID(1, 2)
	f := newFake(t, map[string]http.HandlerFunc{"POST /v1/jobs": answer(http.StatusCreated, `{"id": "`+string(id)+`", "warnings": ["exclude: no node goes by \"n9\u001b\""]}`)})
	want := "muster: warning: job " + string(id) + ": exclude: no node goes by \"n9·\"\n"
	if r := f.muster("submit", "-x", "n9", "x"); r.code != 0 || r.stdout != string(id)+"\n" || r.err != want {
		t.Errorf("exit %d, %q, %q; want %q", r.code, r.stdout, r.err, want)
	}
}

// Constraints of sbatch in a script.
func TestSlurmConstraintsBecomeOptions(t *testing.T) {
	f, last := acceptAll(t)
	r := f.musterIn(t.Context(), "#!/bin/sh\n#SBATCH -C 'rack1&(a100|h100)' --prefer=nvlink --exclusive -w n[1-3,5],m1 -x n2\n#SBATCH -b now+60\n#SBATCH --exclusive=user\n", "submit", "-")
	got := last()
	want := job.DefaultSpec()
	want.Script, want.Constraint, want.Prefer, want.Exclusive = got.Script, "rack1&(a100|h100)", "nvlink", true
	want.NodeList, want.Exclude, want.Begin = []string{"n[1-3,5]", "m1"}, []string{"n2"}, got.Begin
	want.SlurmEnv, want.SubmitDir = true, got.SubmitDir
	if r.code != 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("exit %d\n got %+v\nwant %+v", r.code, got, want)
	}
	if got.Begin == nil || time.Until(*got.Begin) > time.Minute || time.Until(*got.Begin) < 50*time.Second {
		t.Errorf("begin: got %v, want in about a minute", got.Begin)
	}
	if want := "muster: -:4: warning: #SBATCH --exclusive: =user has no meaning here and is ignored; --exclusive alone is a whole node for each task\n"; r.err != want {
		t.Errorf("got stderr %q, want %q", r.err, want)
	}
}

// A command that is a file of this directory is not found in the scratch directory of a task, unless the job brings it
// there.
func TestSubmitWarnsOfALocalFile(t *testing.T) {
	t.Chdir(t.TempDir())
	f, _ := acceptAll(t)
	if err := exetest.Write("work.sh", []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	const warning = "muster: warning: ./work.sh is in this directory, but a task starts in a new scratch directory; use --upload . or, if nodes have this directory, -D .\n"
	for line, want := range map[string]string{
		"submit -- ./work.sh":             warning,
		"submit --array 0-9 -- ./work.sh": warning,
		"submit -D . -- ./work.sh":        "",
		"submit --image img -- ./work.sh": "",
		"submit -- ./none.sh":             "",
		"submit -- work.sh":               "",
		"submit ./work.sh":                "", // the script is read here
		"submit -- /bin/sh ./work.sh":     "",
	} {
		if r := f.muster(strings.Fields(line)...); r.code != 0 || r.err != want {
			t.Errorf("%s: exit %d, stderr %q, want %q", line, r.code, r.err, want)
		}
	}
}
