package supervisor

// Files that a user names for the output of a task.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/output"
)

func TestOutputIsCopiedToFilesOfTheUser(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	r := newRig(t, "groups", dir, "1")
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	const script = "echo out; sleep 0.1; echo err >&2; exit 3"
	one := r.shell(0, script)
	one.Spec.Workdir, one.Spec.Output = dir, "%x-%t.txt"
	one.Spec.Name = "a/b"
	if e := r.run(one); e.Code != 3 || e.Tail != "err\n" {
		t.Errorf(`%+v, want Code 3 and Tail "err\n"`, e)
	}
	if got := read("a_b-0.txt"); got != "out\nerr\n" {
		t.Errorf(`both in one file: %q, want "out\nerr\n"`, got)
	}
	if got := r.output(one.Attempt, output.Both); got != "out\nerr\n" {
		t.Errorf(`log %q, want "out\nerr\n"`, got)
	}
	again := one
	again.Attempt.N = 2
	if e := r.run(again); e.Code != 3 {
		t.Errorf("%+v, want Code 3", e)
	}
	if got := read("a_b-0.txt"); got != "out\nerr\nout\nerr\n" {
		t.Errorf(`after a second attempt: %q, want "out\nerr\nout\nerr\n"`, got)
	}

	two := r.shell(1, script)
	two.Spec.Output, two.Spec.Error = filepath.Join(dir, "two.out"), filepath.Join(dir, "two.err")
	if err := os.WriteFile(two.Spec.Output, []byte("of an earlier job"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.run(two)
	if out, errs := read("two.out"), read("two.err"); out != "out\n" || errs != "err\n" {
		t.Errorf(`two files: %q, %q, want "out\n" and "err\n"`, out, errs)
	}

	none := r.shell(2, script)
	none.Spec.Output = filepath.Join(dir, "no", "such", "dir")
	r.start(none)
	if e := r.next().Exit; e.State != job.Failed || e.Started || !strings.Contains(e.Reason, "output file "+none.Spec.Output+": no such file or directory") {
		t.Errorf("got %+v, want a failed task that never started, because the output file is missing", e)
	}

	full := r.shell(3, "head -c 300000 /dev/zero; echo end")
	full.Spec.Output = "/dev/full"
	if e := r.run(full); e.Code != 0 {
		t.Errorf("%+v, want Code 0", e)
	}
	if got := r.output(full.Attempt, output.Stderr); got != "\n--- muster: /dev/full: no space left on device; it lacks output from here on ---\n" {
		t.Errorf(`note %q, want "\n--- muster: /dev/full: no space left on device; it lacks output from here on ---\n"`, got)
	}
	if got := r.output(full.Attempt, output.Stdout); len(got) != 300_004 {
		t.Errorf("%d bytes in the log, want 300_004", len(got))
	}
}

// A copy is written with the rights of the task's user, not with those of root.
func TestCopyHasTheRightsOfTheUser(t *testing.T) {
	t.Parallel()
	r := rigForOthers(t)
	own, other := filepath.Join(r.dir, "own"), filepath.Join(r.dir, "other")
	for path, owner := range map[string]int{own: nobody, other: 0} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	k := r.shell(0, "echo hers; echo too >/dev/stderr")
	k.User, k.Spec.Output = "nobody", filepath.Join(own, "o")
	if e := r.run(k); e.Code != 0 {
		t.Fatalf("%+v, want Code 0", e)
	}
	info, err := os.Stat(k.Spec.Output)
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != nobody || info.Size() != int64(len("hers\ntoo\n")) {
		t.Errorf("file of user %d, %d bytes, want %v and %v", stat.Uid, info.Size(), nobody, int64(len("hers\ntoo\n")))
	}
	k = r.shell(1, "true")
	k.User, k.Spec.Output = "nobody", filepath.Join(other, "o")
	r.start(k)
	if e := r.next().Exit; e.Started || !strings.Contains(e.Reason, "permission denied") {
		t.Errorf("got %+v, want permission denied before the start", e)
	}
	k = r.shell(2, fmt.Sprintf("touch %s/as-root", other))
	k.User = "root"
	if e := r.run(k); e.Code != 0 { // the threads have the rights of root again
		t.Errorf("%+v, want Code 0", e)
	}
}
