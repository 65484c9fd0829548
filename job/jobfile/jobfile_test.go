package jobfile

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

const example = `
name: finetune
command: [python, train.py, --lr, "{lr}"]
params: {lr: "0.001"}
env: {NCCL_DEBUG: INFO}
resources: {cpus: 8, memory: 64GiB, gpus: 4, gpu_model: H100, gpu_memory: 80GB}
time_limit: 4h
priority: 60
retries: 2
constraint: rack=r1
`

// one reads a file with one job.
func one(name string, text []byte) (job.Spec, error) {
	f, err := Parse(name, text)
	if err != nil {
		return job.Spec{}, err
	}
	if len(f.Jobs) != 1 {
		return job.Spec{}, fmt.Errorf("%d jobs", len(f.Jobs))
	}
	return f.Jobs[0].Spec, nil
}

func TestYAMLAndJSONMeanTheSame(t *testing.T) {
	got, err := one("job.yaml", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	want := job.DefaultSpec()
	want.Name, want.Command = "finetune", []string{"python", "train.py", "--lr", "{lr}"}
	want.Params, want.Env = map[string]string{"lr": "0.001"}, map[string]string{"NCCL_DEBUG": "INFO"}
	want.Resources = job.Resources{CPUs: 8, Memory: 64 << 30, GPUs: 4, GPUModel: "H100", GPUMemory: 80e9}
	want.TimeLimit, want.Priority, want.Retries, want.Constraint = job.Duration(4*time.Hour), 60, 2, "rack=r1"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
	json := `{"name":"finetune","command":["python","train.py","--lr","{lr}"],"params":{"lr":"0.001"},"env":{"NCCL_DEBUG":"INFO"},
"resources":{"cpus":8,"memory":"64GiB","gpus":4,"gpu_model":"H100","gpu_memory":"80GB"},"time_limit":"4h","priority":60,"retries":2,"constraint":"rack=r1"}`
	if got, err = one("job.json", []byte(json)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("JSON: read %+v, %v, want no error and %v", got, err, want)
	}
}

func TestMissingFieldsHaveTheirDefaults(t *testing.T) {
	s, err := one("j", []byte("command: [a]\nresources: {gpus: 1}\n"))
	if err != nil || s.Priority != 50 || !s.Requeue || s.Resources.CPUs != 1 {
		t.Errorf("%+v, %v, want no error, priority 50, a requeue and 1 CPU", s, err)
	}
	if s, err = one("j", []byte("command: [a]\npriority: 0\nrequeue: false\n")); err != nil || s.Priority != 0 || s.Requeue {
		t.Errorf("%+v, %v, want no error, priority 0 and no requeue", s, err)
	}
}

func TestBeginTimesAreParsed(t *testing.T) {
	at := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	for _, text := range []string{"2026-12-01T08:00:00Z", "'2026-12-01T08:00:00Z'", `"2026-12-01T10:00:00+02:00"`, "2026-12-01T10:00:00+02:00"} {
		for _, format := range []string{"command: [a]\nbegin: %s\n", "{command: [a], begin: %s}"} {
			s, err := one("j", fmt.Appendf(nil, format, text))
			if err != nil || s.Begin == nil || !s.Begin.Equal(at) {
				t.Errorf("%s: %v, %v, want the time", text, s.Begin, err)
			}
		}
	}
}

func TestWholeNumbersAreRequired(t *testing.T) {
	for text, want := range map[string]int{"2": 2, "2.0": 2, "0x10": 16, "1e2": 100, "'3'": 3, "&x 4": 4} {
		if s, err := one("j", []byte("command: [a]\nretries: "+text+"\n")); err != nil || s.Retries != want {
			t.Errorf("retries: %s: %d, %v, want no error and %v", text, s.Retries, err, want)
		}
	}
}

func TestByteOrderMarkIsSkipped(t *testing.T) {
	if s, err := one("j", []byte("\ufeffcommand: [a]\r\npriority: 7\r\n")); err != nil || s.Priority != 7 {
		t.Errorf("%+v, %v, want no error and Priority 7", s, err)
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"command: [a]\nfoo: 1\n":                                      `j:2: unknown field "foo"`,
		"command: [a]\nresources:\n  gpu: 1\n":                        `j:3: unknown field "gpu"`,
		"command: [a]\nresources:\n  memory: 64\n":                    "a number needs a unit",
		"command: [a]\ntime_limit: 90\n":                              `j:2: time_limit: duration "90": a number needs a unit`,
		"command: [a]\nretries: 1.5\n":                                "j:2: retries: want a whole number, not 1.5",
		"command: [a]\nretries: -1.5\n":                               "j:2: retries: want a whole number, not -1.5",
		"command: [a]\nretries: '1.5'\n":                              "j:2: retries: want a",
		"command: [a]\nretries: 1e300\n":                              "j:2: retries: want a",
		"command: [a]\nretries: .nan\n":                               "j:2: retries: want a whole number",
		"command: [a]\nretry_on: [75, 1.5]\n":                         "j:2: retry_on: want a whole number, not 1.5",
		"{\"command\": [\"a\"],\n \"nodes\": 2.5}":                    "j:2: nodes: want a whole number, not 2.5",
		"command: [a]\nresources: {cpus: 1.5}\n":                      "j:2: resources.cpus: want a whole number, not 1.5",
		"command: [a]\nresources: {gpu_share: &x 0.5}\nretries: *x\n": "j:3: retries: ",
		"command: [a]\npriority: high\n":                              "j:2: priority: want a number, not text",
		"name: a\ncommand: python x.py\n":                             "j:2: command: want a list of words, such as [python, train.py]; a line for a shell goes in `script: python x.py`",
		"command: [a]\nresources: 4\n":                                "j:2: resources: want a mapping such as {cpus: 4}, not a number",
		"command: [a]\nresources: {cpus: [1]}\n":                      "j:2: resources.cpus: want a number, not a list",
		"command: [a]\nenv: [A=1]\n":                                  "j:2: env: want a mapping such as {name: value}, not a list",
		"command: [[a]]\n":                                            "j:1: command: want a list of other things",
		"command: [a]\nhold: perhaps\n":                               "j:2: hold: want true or false, not text",
		"command: [a]\nmemroy: 3GiB\nretry: 1\n":                      `j:2: unknown field "memroy"`,
		"command: [a]\nretrys: 1\n":                                   `j:2: unknown field "retrys"; did you mean retries?`,
		"command: [a]\ncommand: [b]\n":                                "j:2:",
		"command: [a\n":                                               "j:1:",
		"":                                                            "empty",
		"command: [a]\n---\ncommand: [b]\nfoo: 1\n":                   `j:4: unknown field "foo"`,
		"---\n---\n":                                                  "empty",
		"{\"command\": [\"a\"],\n \"foo\": 1}":                        `j:2: unknown field "foo"`,
		"command: [a]\nname: \"x\\u001b[31m\"\n":                      "printable",
		"command: [a]\nimage: i\noutput: o\n":                         "want an absolute path of the node",
		"command: [a]\nnodes: -2\n":                                   "nodes -2: want 1 to 512",
		"[1, 2]":                                                      "j:1:",
		"command: [a]\nbegin: 16:00\n":                                `j:2: begin: "16:00": want RFC 3339`,
		"command: [a]\nbegin: 2026-12-01\n":                           `j:2: begin: "2026-12-01": want RFC 3339`,
	} {
		_, err := Parse("j", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one line with %q", text, err, want)
		}
	}
	if _, err := Parse("j", []byte(strings.Repeat("#", 10<<20))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("10 MiB: %v, want ErrTooLarge", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"command": ["a"], "resources": {"memory": "1GiB"}}`))
	f.Add([]byte("name: a\ncommand: [x]\n---\nname: b\ncommand: [y]\ndependency: ['afterok:a', afterany:last]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse("j", text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want one line", err)
			}
			return
		}
		order, err := file.Order()
		if err != nil || len(order) != len(file.Jobs) || len(order) == 0 {
			t.Errorf("%d jobs, order %v, %v, want all of them in order", len(file.Jobs), order, err)
		}
		for i, j := range file.Jobs {
			if err := j.Spec.ValidateDraft(); err != nil {
				t.Errorf("accepted a spec that is not valid: %v", err)
			}
			for k := range j.Depends.Terms {
				_ = file.LineOf(i, k)
			}
		}
	})
}

const pipeline = `# a comment
name: report
command: [report]
dependency:
  - afterany:train
  - afterok:prepare:k3v
---
name: prepare
command: [prepare]

---
name: train
command: [train]
array: 0-9
dependency: ["afterok:prepare,afterany:last"]
`

func TestSeveralJobsInOneFile(t *testing.T) {
	f, err := Parse("p", []byte(pipeline))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, j := range f.Jobs {
		names = append(names, fmt.Sprintf("%s:%d", j.Spec.Name, j.Line))
	}
	if got := strings.Join(names, " "); got != "report:2 prepare:8 train:12" {
		t.Errorf(`jobs %s, want "report:2 prepare:8 train:12"`, got)
	}
	order, err := f.Order()
	if err != nil || !slices.Equal(order, []int{1, 2, 0}) {
		t.Errorf("order %v, %v, want no error and %v", order, err, []int{1, 2, 0})
	}
	if got := f.LineOf(0, 0) + " " + f.LineOf(0, 2) + " " + f.LineOf(2, 1); got != "job file p:5 job file p:6 job file p:15" {
		t.Errorf(`lines %s, want "job file p:5 job file p:6 job file p:15"`, got)
	}
	if i, there := f.Named("train"); i != 2 || !there {
		t.Errorf("train is %d, %v, want 2", i, there)
	}
	if _, there := f.Named(""); there {
		t.Error("a job without a name was found")
	}
}

func TestSeveralJobsAreChecked(t *testing.T) {
	doc := func(name, dependency string) string {
		text := "command: [x]\n"
		if name != "" {
			text = "name: " + name + "\n" + text
		}
		if dependency != "" {
			text += "dependency: ['" + dependency + "']\n"
		}
		return text
	}
	for name, c := range map[string]struct{ text, want string }{
		"double names":     {doc("a", "") + "---\n" + doc("a", ""), `j:4: a second job with the name "a"; the first begins in line 1`},
		"itself":           {doc("a", "afterok:a"), `j:3: the job "a" waits for itself`},
		"two":              {doc("a", "afterok:b") + "---\n" + doc("b", "after:a+5"), `j:7: these jobs wait for each other: "a", "b"`},
		"a tail":           {doc("c", "afterok:a") + "---\n" + doc("a", "afterok:b") + "---\n" + doc("b", "afterok:a"), `j:11: these jobs wait for each other: "a", "b"`},
		"a bad dependency": {doc("a", "") + "---\n" + doc("b", "singleton"), "j:4: dependency"},
		"a bad field":      {doc("a", "") + "---\n" + doc("b", "") + "priority: 101\n", "j:4: priority 101"},
		"too many":         {strings.Repeat("command: [x]\n---\n", MaxJobs+1), "more than 1000 jobs"},
	} {
		_, err := Parse("j", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if f, err := Parse("j", []byte(strings.Repeat(doc("", ""), 1)+"---\n"+doc("", "afterok:k3v"))); err != nil || len(f.Jobs) != 2 {
		t.Errorf("jobs without names: %v", err)
	}
	if f, err := Parse("j", []byte(`{"name": "a", "command": ["x"]}`+"\n---\n"+`{"name": "b", "command": ["y"],`+"\n"+`"dependency": ["afterok:a"]}`)); err != nil || f.LineOf(1, 0) != "job file j:4" {
		t.Errorf("JSON: %v, want no error and line 4", err)
	}
	chain := doc("n0", "")
	for i := 1; i < MaxJobs; i++ {
		chain += "---\n" + doc(fmt.Sprintf("n%d", i), fmt.Sprintf("afterok:n%d", i-1))
	}
	if f, err := Parse("j", []byte(chain)); err != nil || len(f.Jobs) != MaxJobs {
		t.Errorf("a chain: %v", err)
	}
}

// TestHostileFilesAreRefused reads job files of 200 KB that are nested, or whose aliases stand for much more. Each is
// an error in one line that names the line of the file, and takes little memory.
func TestHostileFilesAreRefused(t *testing.T) {
	const size, most = 200 << 10, 100 << 20
	laughs := "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 9 {
		laughs += fmt.Sprintf("a: &a%d [%s*a%d]\n", i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 9), i)
	}
	for name, text := range map[string]string{
		"lists":   "env: " + strings.Repeat("[", size),
		"closed":  "env: " + strings.Repeat("[", size/2) + strings.Repeat("]", size/2),
		"keys":    strings.Repeat("{a: ", size/4),
		"entries": strings.Repeat("- ", size/2),
		"aliases": laughs,
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse("j", []byte(text))
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > most {
			t.Errorf("%s: allocated %d MiB, want a few", name, n>>20)
		}
		if err == nil || !strings.HasPrefix(err.Error(), "job file j:") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want an error of one line that names the file", name, err)
		}
	}
}
