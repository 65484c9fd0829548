package protocol

import (
	"os"
	"slices"
	"testing"

	"github.com/musterhq/muster/worker/runner/proc"
)

// A lock that is missing while its runner lives is reported from the second look on, because a runner that ends removes
// it a moment before.
func TestMissingLockIsReportedAtTheSecondLook(t *testing.T) {
	t.Parallel()
	d := Dir(t.TempDir())
	l := NewLocks(d)
	want := func(paths ...string) {
		t.Helper()
		if got := l.Lost(); !slices.Equal(got, paths) {
			t.Errorf("lost: %q, want %q", got, paths)
		}
	}
	want()
	for n, info := range map[int]Info{3: {PID: os.Getpid(), Boot: proc.BootID()}, 4: {PID: os.Getpid(), Boot: "another"}} {
		lock, err := d.TryLock(n)
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := WriteInfo(lock, info); err != nil {
			t.Fatal(err)
		}
	}
	want()
	want()
	for _, n := range []int{3, 4} {
		if err := os.Remove(d.Lock(n)); err != nil {
			t.Fatal(err)
		}
	}
	want()
	want(d.Lock(3))
	if err := os.WriteFile(d.Lock(3), nil, 0o600); err != nil { // another file
		t.Fatal(err)
	}
	want(d.Lock(3))
	l.of[3].ticks++ // the runner has ended, and another process has its PID
	want()
}
