package load

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
)

// jobFiles is a directory of job files.
var jobFiles = map[string]string{
	"train.yaml":    "name: train\ncommand: [python, train.py]\nresources: {cpus: 8, memory: 64GiB, gpus: 4, gpu_model: H100}\nnodes: 2\ntime_limit: 4h\npriority: 60\nupload: [.]\n",
	"dir/eval.json": `{"script": "#!/bin/sh\ntrue", "resources": {"gpus": 1}, "array": "0-9%4", "preemptible": true}`,
	"two.yaml":      "name: a\ncommand: [x]\n---\nname: b\ncommand: [y]\n",
	"image.yaml":    "image: pytorch/pytorch\nmounts: [/data:/data]\n",
	"wide.yaml":     "command: [x]\nresources: {gpus: 16}\n",
	"waits.yaml":    "name: a\ncommand: [x]\n---\nname: b\ncommand: [y]\ndependency: [\"afterok:a\"]\n",
	"begins.yaml":   "command: [x]\nbegin: 2026-12-01T08:00:00Z\n",
	"held.yaml":     "command: [x]\nhold: true\n",
	"wrong.yaml":    "command: [x]\ncolour: red\n",
}

func openJobFile(name string) ([]byte, error) {
	text, there := jobFiles[name]
	if !there {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return []byte(text), nil
}

func TestListOfJobFilesIsRead(t *testing.T) {
	o := Options{Cluster: h100s(t), Open: openJobFile}
	jobs, notes := readJobs(t, `file,submit_s,duration_s,user,class,files_mib
train.yaml,60,7200,ann,big,1
dir/eval.json,0,30.5,,,
train.yaml,120,60,bob,big,
two.yaml,90,1,,,
image.yaml,90,1,,,
`, o)
	var names []string
	for _, j := range jobs {
		names = append(names, fmt.Sprint(j.Name, " ", j.Submit, " ", j.Runs, " ", j.User, " ", j.Class, " ", j.Bytes))
		if err := j.Spec.Validate(); err != nil {
			t.Errorf("%s: %v", j.Name, err)
		}
	}
	want := []string{"eval 0s 30.5s   0", "train 1m0s 2h0m0s ann big 1048576", "a 1m30s 1s   0", "b 1m30s 1s   0", "image 1m30s 1s   0", "train-2 2m0s 1m0s bob big 0"}
	if !slices.Equal(names, want) || len(notes) != 1 {
		t.Fatalf("read %q with %q, want %q", names, notes, want)
	}
	train := jobs[1].Spec
	if train.Nodes != 2 || train.Resources != (job.Resources{CPUs: 8000, Memory: 64 << 30, GPUs: 4, GPUModel: "H100"}) ||
		train.Priority != 60 || train.TimeLimit.D() != 4*time.Hour || train.Upload != nil {
		t.Errorf("read %+v, want the job of train", train)
	}
	if eval := jobs[0].Spec; eval.Array != "0-9%4" || !eval.Preemptible || eval.Resources.CPUs != 1000 || eval.Script != "" {
		t.Errorf("read %+v, want the job of eval", eval)
	}
	o.Known, o.Preemptible = true, true
	jobs, _ = readJobs(t, "file,submit_s,duration_s,job\ntrain.yaml,60,7200,first\ntrain.yaml,60,60,\n", o)
	if s := jobs[0].Spec; jobs[0].Name != "first" || jobs[1].Name != "train" || s.TimeLimit.D() != 2*time.Hour || !s.Preemptible {
		t.Errorf("read %+v, want first and then train with the columns of the list", jobs)
	}
}

func TestInvalidListsAreRefused(t *testing.T) {
	o := Options{Cluster: h100s(t), Open: openJobFile}
	read := func(r io.Reader) error {
		_, _, err := ReadJobs("l.csv", r, o)
		return err
	}
	refused(t, read, "file,submit_s,duration_s,job\n", []struct{ rows, want string }{
		{"=file,submit_s\n", `l.csv:1: the column "duration_s" is missing; want file,submit_s,duration_s`},
		{"=file,submit_s,duration_s,num_gpu\n", `l.csv:1: unknown column "num_gpu"`},
		{"no.yaml,0,1,\n", `l.csv:2: file "no.yaml": open no.yaml: file does not exist`},
		{",0,1,\n", `l.csv:2: file "": the name of a job file is needed`},
		{"wrong.yaml,0,1,\n", `l.csv:2: file "wrong.yaml": job file wrong.yaml:2: unknown field "colour"`},
		{"two.yaml,0,1,x\n", `l.csv:2: job "x": two.yaml has 2 jobs; leave it empty`},
		{"train.yaml,0,1,x\ntrain.yaml,0,1,x\n", `l.csv:3: job "x": a second job of the name "x"; the first is in line 2`},
		{"train.yaml,0,20000,\n", `l.csv:2: duration_s "20000": longer than the job's time limit of 4h`},
		{"train.yaml,0,-1,\n", `l.csv:2: duration_s "-1": want 0 to`},
		{"waits.yaml,0,1,\n", `l.csv:2: file "waits.yaml": job file waits.yaml:4: dependency: a simulation does not follow it`},
		{"begins.yaml,0,1,\n", `l.csv:2: file "begins.yaml": job file begins.yaml:1: begin: a simulation has no calendar`},
		{"held.yaml,0,1,\n", `l.csv:2: file "held.yaml": job file held.yaml:1: hold: nobody would release the job`},
		{"wide.yaml,0,1,\n", `l.csv:2: file "wide.yaml": the cluster could never run it: it needs 1 machines, each with 16 GPUs`},
	})
	if _, err := openJobFile("no.yaml"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("got %v, want fs.ErrNotExist", err)
	}
	_, _, err := ReadJobs("l.csv", strings.NewReader("file,submit_s,duration_s\nno.yaml,0,1\n"), o)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error %v hides its cause, want fs.ErrNotExist", err)
	}
}

func TestJobFilesAreReadBesideTheList(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"train.yaml": jobFiles["train.yaml"], "large.yaml": "name: " + strings.Repeat("a", 2<<20)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{Open: FilesBeside(filepath.Join(dir, "list.csv"))}
	for _, name := range []string{"train.yaml", filepath.Join(dir, "train.yaml")} {
		if jobs, _ := readJobs(t, "file,submit_s,duration_s\n"+name+",0,1\n", o); len(jobs) != 1 || jobs[0].Name != "train" {
			t.Errorf(`%s: read %+v, want 1 of them and [0].Name "train"`, name, jobs)
		}
	}
	_, _, err := ReadJobs("l.csv", strings.NewReader("file,submit_s,duration_s\nlarge.yaml,0,1\n"), o)
	if err == nil || !strings.Contains(err.Error(), `l.csv:2: file "large.yaml": job file large.yaml: larger than 1MiB`) {
		t.Errorf(`error %v, want an error and "l.csv:2: file \"large.yaml\": job file large.yaml: larger than 1MiB" in it`, err)
	}
}
