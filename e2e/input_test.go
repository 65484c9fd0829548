//go:build e2e

package e2e

// Invalid input gives one clear line and the right exit code, and loses nothing.

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestInvalidInputGivesOneLine(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		code  int
		words []string
		args  []string
	}{
		{2, []string{"--frobnicate"}, []string{"submit", "--frobnicate", "--", "true"}},
		{2, []string{"no such verb", "sumbit"}, []string{"sumbit", "--", "true"}},
		{2, []string{"bad.yaml:2", "foo"}, []string{"submit", "-F", write("bad.yaml", "command: [a]\nfoo: 1\n")}},
		{2, []string{"unit"}, []string{"submit", "--mem", "64", "--", "true"}},
		{2, []string{"unit"}, []string{"submit", "-t", "90", "--", "true"}},
		{2, []string{"larger than"}, []string{"submit", "-F", write("big.yaml", strings.Repeat("#", 10<<20))}},
		{2, []string{"printable"}, []string{"submit", "-J", "a\x1b[31mb", "--", "true"}},
		{2, []string{"command"}, []string{"submit"}},
		{2, []string{"9-0"}, []string{"submit", "-a", "9-0", "--", "true"}},
		{2, []string{"nodes 513", "512"}, []string{"submit", "--nodes", "513", "--", "true"}},
		{2, []string{"multiple of --nodes 2"}, []string{"submit", "-N", "2", "--gpus", "3", "--", "true"}},
		{1, []string{"zzzz"}, []string{"show", "zzzz"}},
		{1, []string{"UPPER", "not found"}, []string{"show", "UPPER"}},
		{2, []string{"priority"}, []string{"submit", "--priority", "101", "--", "true"}},
	} {
		r := amy.fails(c.code, c.words, c.args...)
		if lines := strings.Count(strings.TrimSpace(r.stderr), "\n"); lines > 0 {
			t.Errorf("muster %.80q: got %d lines on stderr, want one:\n%s", c.args, lines+1, r.stderr)
		}
	}
	if out := amy.ok("jobs", "--all", "--json"); !strings.Contains(out, `"items":[]`) && !strings.Contains(out, `"items": []`) {
		t.Errorf("jobs after invalid input: got %s, want none", out)
	}
	if r := newDaemon(t, "nobody").muster("jobs"); r.code != 1 || !strings.Contains(r.stderr, "muster daemon") {
		t.Errorf("without a daemon: exit %d, %s, want 1 and the command", r.code, r.stderr)
	}
}

func TestScriptsAndJobFilesRun(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	dir := t.TempDir()
	script := filepath.Join(dir, "train.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#MUSTER --name=from-script\n#SBATCH --time=5\n#SBATCH --frob=1\necho \"$MUSTER_JOB_NAME\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := amy.muster("submit", script)
	if r.code != 0 || !strings.Contains(r.stderr, "frob") {
		t.Errorf("submit SCRIPT: exit %d, stderr %q, want 0 and a warning about an unknown #SBATCH option", r.code, r.stderr)
	}
	id := strings.TrimSpace(r.stdout)
	amy.untilState(id, "SUCCEEDED")
	if out := amy.ok("logs", id); out != "from-script" {
		t.Errorf("logs: got %q, want %q", out, "from-script")
	}
	file := filepath.Join(dir, "job.json")
	if err := os.WriteFile(file, []byte(`{"name": "json", "command": ["echo", "hello"], "env": {"A": "b"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	id = amy.ok("submit", "-F", file)
	amy.untilState(id, "SUCCEEDED")
	r = amy.musterIn(strings.NewReader("#!/bin/sh\necho from stdin\n"), "submit", "-W", "-")
	if r.code != 0 {
		t.Fatalf("submit -: exit %d, want 0: %s", r.code, r.stderr)
	}
	if out := amy.ok("logs", strings.TrimSpace(r.stdout)); out != "from stdin" {
		t.Errorf("logs: got %q, want %q", out, "from stdin")
	}
}

func TestPortInUseIsAnError(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	d := newDaemon(t, "amy", "--listen", fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", l.Addr().(*net.TCPAddr).Port))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, d.program, d.args...).CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if last := lines[len(lines)-1]; err == nil || !strings.HasPrefix(last, "muster: ") || !strings.HasSuffix(last, "another program has this port; --listen names another") {
		t.Errorf("got %v: %s, want one line with the option", err, out)
	}
}
