//go:build e2e

package e2e

// A job file of the maximum size runs on another host; a larger one is refused.

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/job"
)

// jobFileOf writes a job file of size bytes. The job runs on one node and exits with 7. The file has all fields that
// muster would add, so that it does not grow later.
func jobFileOf(t *testing.T, size int, node string) string {
	t.Helper()
	spec := job.DefaultSpec()
	spec.Name, spec.Constraint, spec.Partition = "large", "name="+node, "hold" // a daemon adds the word if a file has none
	spec.Script = "#!/bin/sh\nwc -c <\"$0\"\nexit 7\n#"
	text := func() []byte {
		out, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	spec.Script += strings.Repeat("x", size-len(text()))
	if n := len(text()); n != size {
		t.Fatalf("got a job file of %d bytes, want %d", n, size)
	}
	path := filepath.Join(t.TempDir(), "job.json")
	if err := os.WriteFile(path, text(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLargestJobFileRunsElsewhere(t *testing.T) {
	t.Parallel()
	amy, _ := pair(t)
	for _, less := range []int{4096, 1, 0} {
		id := amy.ok("submit", "-F", jobFileOf(t, job.MaxSpecBytes-less, "ben"))
		doc := amy.untilState(id, "FAILED")
		if doc.Tasks[0].Node != "ben" || *doc.ExitCode != 7 || doc.Tasks[0].Attempt != 1 {
			t.Errorf("%d bytes below the bound: got %+v, want 7 on ben", less, doc)
		}
	}
}

func TestJobFileBeyondTheBoundIsRefused(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4").start()
	refused := func(args ...string) {
		t.Helper()
		r := amy.fails(2, nil, append([]string{"submit"}, args...)...)
		if strings.Count(r.stderr, "\n") != 1 || len(r.stderr) > 400 || !strings.Contains(r.stderr, "large") && !strings.Contains(r.stderr, "at most") {
			t.Errorf("stderr: got %.500q, want one line with the bound", r.stderr)
		}
	}
	refused("-F", jobFileOf(t, job.MaxSpecBytes+1, "amy"))
	// Some characters take more bytes in a job file than in a script or in YAML.
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#"+strings.Repeat("\t", job.MaxSpecBytes/2-100)), 0o600); err != nil {
		t.Fatal(err)
	}
	amy.untilState(amy.ok("submit", script), "SUCCEEDED")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#"+strings.Repeat("\x01", job.MaxSpecBytes/2-100)), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(script)
	if n := amy.show(amy.ok("submit", "--", "true")); n.ID == "" {
		t.Error("the daemon accepts no job any more")
	}
}
