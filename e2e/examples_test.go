//go:build e2e

package e2e

// The files of examples/: each runs as its first lines say, with simulated GPUs.

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/testkit/needtest"
)

const examplesDir = "../examples"

// example says what an example needs and prints.
type example struct {
	file   string
	needs  string   // a program on the nodes
	prints []string // parts of the output of its last job
	also   []string // files that it uses
}

var exampleFiles = []example{
	{file: "train.sh", prints: []string{"attempt 2 on GPU GPU-sim-", "begins with step 10", "done after 20 steps"}},
	{file: "sweep.sh", also: []string{"sweep.txt"}, prints: []string{"0| task 0: learning rate 0.1, batch size 32", "3| task 3: learning rate 0.001, batch size 128"}},
	{file: "gang.py", needs: "python3", prints: []string{"rank 0 of 2: the sum of the ranks is 1", "rank 1 of 2: the sum of the ranks is 1"}},
	{file: "mpi.sh", prints: []string{"0| 127.0.0.1 slots=4\n0| 127.0.0.1 slots=4\n0| a stand-in for mpirun with --hostfile ", "/hostfile hostname"}},
	{file: "pipeline.yaml", prints: []string{"all have ended"}},
	{file: "slurm.sh", prints: []string{"index 0, 1 cpu, GPU GPU-sim-", "index 1, 1 cpu, GPU GPU-sim-"}},
}

// inContainer needs a Docker engine.
var inContainer = example{file: "container.yaml", prints: []string{"in a container, task 0"}}

// howTo returns the command line at the head of an example.
func howTo(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examplesDir, file))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^#? ?Run it with: muster (.*)$`).FindStringSubmatch(string(text))
	if found == nil {
		t.Fatalf("%s does not say how to run it", file)
	}
	return found[1]
}

// standInForMPI returns a directory with a program mpirun that prints its arguments. The real one mistakes the two
// nodes of this test for one, because they have one address; TestGangRunsMPI runs it.
func standInForMPI(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "mpirun"), []byte("#!/bin/sh\necho \"a stand-in for mpirun with $*\"\n"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return dir
}

func TestExamplesRunAsTheySay(t *testing.T) {
	same := []string{"--cpus", "4", "--gpus", "sim:2xH100-80GB"}
	n1 := newDaemon(t, "n1", same...).start()
	n2 := newDaemon(t, "n2", same...).start(n1.invite().flags()...)
	n1.untilNodes(2)
	n2.untilNodes(2)
	for _, x := range exampleFiles {
		t.Run(x.file, func(t *testing.T) {
			if x.needs != "" {
				needtest.Runs(t, x.needs, "--version")
			}
			n1.t = t
			n1.runExample(x)
		})
	}
	n1.t = t
}

// runExample runs a job as the head of its file says, and waits for its end.
func (d *daemon) runExample(x example) {
	d.t.Helper()
	words := strings.Fields(howTo(d.t, x.file))
	if words[0] == "submit" && !slices.Contains(words, "--follow") && !slices.Contains(words, "--wait") {
		words = slices.Insert(words, 1, "--wait")
	}
	if x.file == "train.sh" {
		words = slices.Insert(words, 1, "--env", "STATE_DIR="+d.t.TempDir())
	}
	if x.file == "mpi.sh" {
		words = slices.Insert(words, 1, "--env", "PATH="+standInForMPI(d.t)+":"+os.Getenv("PATH"))
	}
	d.verbDir = d.t.TempDir() // some write files there
	if err := os.CopyFS(d.verbDir, os.DirFS(examplesDir)); err != nil {
		d.t.Fatal(err)
	}
	r := d.muster(words...)
	if r.code != 0 {
		d.t.Fatalf("muster %q: exit %d, want 0\n%s%s", words, r.code, r.stdout, r.stderr)
	}
	out := d.ok("logs", "--all", "last")
	for _, want := range x.prints {
		if !strings.Contains(out, want) {
			d.t.Errorf("want %q, got\n%s", want, out)
		}
	}
}

func TestExampleRunsInAContainer(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	if out, err := exec.Command("docker", "-H", e.host, "tag", busyImage, "busybox:1.36").CombinedOutput(); err != nil {
		t.Fatalf("docker tag: %v\n%s", err, out)
	}
	newDaemon(t, "n1", "--cpus", "4", "--gpus", "none", "--docker-host", e.host).start().runExample(inContainer)
}

// TestDemoOfTheReadmeWorks runs the demonstration of the README: three daemons, and a job that compiles muster.
func TestDemoOfTheReadmeWorks(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(filepath.Join(examplesDir, demo)).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "state       SUCCEEDED") {
		t.Errorf("got %v, want SUCCEEDED\n%s", err, out)
	}
}

// demo is the only file of examples/ that is no job. It starts the daemons that it needs.
const demo = "demo.sh"

// Each file of examples/ is run by TestExamplesRunAsTheySay, or by a test of its own.
func TestExamplesAreAllRun(t *testing.T) {
	files, err := os.ReadDir(examplesDir)
	if err != nil {
		t.Fatal(err)
	}
	run := []string{demo}
	for _, x := range append(exampleFiles, inContainer) {
		run = append(append(run, x.file), x.also...)
	}
	for _, f := range files {
		if !slices.Contains(run, f.Name()) {
			t.Errorf("nothing runs examples/%s", f.Name())
		}
	}
}
