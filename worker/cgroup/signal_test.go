package cgroup

import (
	"syscall"
	"testing"
	"time"
)

// A task forks as fast as it can. All its processes get the signal, including those that are being forked.
func TestSignalReachesForkedProcesses(t *testing.T) {
	within := func(t *testing.T, tree *Tree, what string, holds func() bool) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				n := len(tree.Members("forks"))
				tree.Signal("forks", syscall.SIGKILL)
				t.Fatalf("%s: still %d processes after the time-out", what, n)
			}
		}
	}
	for _, b := range both {
		t.Run(b.name, func(t *testing.T) {
			tree := newTree(t, b.o)
			for range 20 {
				pid, err := spawn(tree, "forks", Limits{}, "/bin/sh", "-c", "exec >/dev/null 2>&1; n=0; while [ $n -lt 500 ]; do sleep 1000 & n=$((n+1)); done; wait")
				if err != nil {
					t.Fatal(err)
				}
				within(t, tree, "the task does not fork", func() bool { return len(tree.Members("forks")) > 10 })
				tree.Signal("forks", syscall.SIGTERM)
				if status := reap(t, pid); status.Signal() != syscall.SIGTERM {
					t.Fatalf("%v, want Signal() %v", status, syscall.SIGTERM)
				}
				within(t, tree, "some missed the signal", func() bool { return tree.Empty("forks") })
			}
		})
	}
}
