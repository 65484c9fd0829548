package jobfile

import (
	"errors"
	"fmt"
	"reflect"
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

func TestYAMLAndJSONMeanTheSame(t *testing.T) {
	got, err := Parse("job.yaml", []byte(example))
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
	if got, err = Parse("job.json", []byte(json)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("JSON: read %+v, %v", got, err)
	}
}

func TestDefaults(t *testing.T) {
	s, err := Parse("j", []byte("command: [a]\nresources: {gpus: 1}\n"))
	if err != nil || s.Priority != 50 || !s.Requeue || s.Resources.CPUs != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = Parse("j", []byte("command: [a]\npriority: 0\nrequeue: false\n")); err != nil || s.Priority != 0 || s.Requeue {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestBegin(t *testing.T) {
	at := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	for _, text := range []string{"2026-12-01T08:00:00Z", "'2026-12-01T08:00:00Z'", `"2026-12-01T10:00:00+02:00"`, "2026-12-01T10:00:00+02:00"} {
		for _, format := range []string{"command: [a]\nbegin: %s\n", "{command: [a], begin: %s}"} {
			s, err := Parse("j", fmt.Appendf(nil, format, text))
			if err != nil || s.Begin == nil || !s.Begin.Equal(at) {
				t.Errorf("%s: %v, %v", text, s.Begin, err)
			}
		}
	}
}

func TestByteOrderMark(t *testing.T) {
	if s, err := Parse("j", []byte("\ufeffcommand: [a]\r\npriority: 7\r\n")); err != nil || s.Priority != 7 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for text, want := range map[string]string{
		"command: [a]\nfoo: 1\n":                   `j:2: unknown field "foo"`,
		"command: [a]\nresources:\n  gpu: 1\n":     `j:3: unknown field "gpu"`,
		"command: [a]\nresources:\n  memory: 64\n": "a number needs a unit",
		"command: [a]\ntime_limit: 90\n":           "a number needs a unit",
		"command: [a]\npriority: high\n":           "j:2:",
		"command: [a]\nbegin: 16:00\n":             `begin "16:00": want RFC 3339`,
		"command: [a]\nbegin: 2026-12-01\n":        `begin "2026-12-01": want RFC 3339`,
		"command: [a]\ncommand: [b]\n":             "j:2:",
		"command: [a\n":                            "j:1:",
		"":                                         "empty",
		"command: [a]\n---\ncommand: [b]\n":        "more than one job",
		"{\"command\": [\"a\"],\n \"foo\": 1}":     `j:2: unknown field "foo"`,
		"command: [a]\nname: \"x\\u001b[31m\"\n":   "printable",
		"command: [a]\nnodes: 2\n":                 "not yet in this version",
		"[1, 2]":                                   "j:1:",
	} {
		_, err := Parse("j", []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want one line with %q", text, err, want)
		}
	}
	if _, err := Parse("j", []byte(strings.Repeat("#", 10<<20))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("10 MiB: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte(`{"command": ["a"], "resources": {"memory": "1GiB"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := Parse("j", text); err == nil && s.Validate() != nil {
			t.Errorf("took a spec that does not validate: %+v", s)
		}
	})
}
