//go:build e2e

package e2e

// A script of Slurm: its arguments, its directory, its variables and its output file.

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSlurmScriptRunsAsUnderSlurm(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	dir := filepath.Join(t.TempDir(), "project")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	amy.verbDir = dir
	script := "#!/bin/sh\n#SBATCH -o out-%j.txt\n#SBATCH -c 1\necho \"$SLURM_JOB_ID $SLURM_CPUS_PER_TASK [$1] [$2]\"\npwd\n"
	if err := os.WriteFile(filepath.Join(dir, "train.sh"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	id := amy.ok("submit", "-W", "train.sh", "a b", "--lr")
	want := id + " 1 [a b] [--lr]\n" + dir
	if out := amy.ok("logs", id); out != want {
		t.Errorf("logs: got %q, want %q", out, want)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "out-"+id+".txt")); err != nil || string(text) != want+"\n" {
		t.Errorf("output file: got %q, %v, want %q", text, err, want+"\n")
	}
	// a node that does not have the directory
	id = amy.ok("submit", "--hold", "train.sh", "there")
	if err := os.Rename(dir, dir+".gone"); err != nil {
		t.Fatal(err)
	}
	amy.verbDir = ""
	amy.ok("release", id)
	amy.untilState(id, "SUCCEEDED")
	if out := amy.ok("logs", id); !strings.HasPrefix(out, id+" 1 [there] []\n") || strings.HasSuffix(out, dir) {
		t.Errorf("logs: got %q, want a scratch directory", out)
	}
	if _, err := os.Stat(filepath.Join(dir+".gone", "out-"+id+".txt")); err == nil {
		t.Error("the output file exists, want none")
	}
	// without #SBATCH lines there is no Slurm behaviour
	if err := os.WriteFile(filepath.Join(dir+".gone", "plain.sh"), []byte("echo \"[$1] [$SLURM_JOB_ID]\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	amy.verbDir = dir + ".gone"
	if r := amy.fails(2, []string{"plain.sh does not begin with #!", "--upload plain.sh -- bash plain.sh"}, "run", "plain.sh"); r.stdout != "" {
		t.Errorf("refused: got output %q, want none", r.stdout)
	}
	if out := amy.ok("run", "--upload", "plain.sh", "--", "bash", "plain.sh", "x"); out != "[x] []" {
		t.Errorf("the command that the error gives: got %q, want %q", out, "[x] []")
	}
}
