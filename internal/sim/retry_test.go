package sim

import (
	"testing"
	"time"
)

// On one host everything fails at once, so it is free most of the time, and the other one is busy. Each of the jobs
// fails there at most once: its retry waits for the other host.
func TestRetriesWaitForAnotherHost(t *testing.T) {
	w, o := scene(t, 2, hostSpec{cpus: 1}, options{})
	for range 30 {
		j := w.newWork(o, "ada", cpus(1), 2*time.Second)
		j.spec.Retries, j.failsAt = 1, w.hosts[1]
		j.submitAt(time.Second)
	}
	w.start()
	w.runAll(10 * time.Minute)
	for _, j := range w.works {
		if j.state != "SUCCEEDED" {
			t.Errorf(`%s is %s after %d starts, want "SUCCEEDED"`, j, j.state, j.starts)
		}
	}
}

// If no other host could take it, a retry does not wait.
func TestRetryDoesNotWaitOnTheOnlyHost(t *testing.T) {
	w, o := scene(t, 1, hostSpec{cpus: 1}, options{})
	j := w.newWork(o, "ada", cpus(1), time.Second)
	j.spec.Retries, j.fails = 3, 3
	j.submitAt(time.Second)
	w.start()
	w.runAll(time.Minute)
	if j.state != "SUCCEEDED" {
		t.Errorf(`%s is %s after %d starts, want "SUCCEEDED"`, j, j.state, j.starts)
	}
}
