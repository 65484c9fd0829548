//go:build e2e

package e2e

// Waiting jobs: large jobs of one user, and the limit of their number.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

const (
	largeJobs   = 100
	largeScript = 900 << 10
	// With all job files in memory these jobs took 180 MB, and after a restart 140 MB.
	mostWaiting   = 150e6
	mostRestarted = 60e6
)

// largeSpec has a script of 900 KB that does not compress, and prints its number.
func largeSpec(n int) job.Spec {
	rng := rand.New(rand.NewPCG(1, uint64(n))) //nolint:gosec // to be repeated
	var b strings.Builder
	fmt.Fprintf(&b, "#!/bin/sh\necho this is job %d\nexit 0\n", n)
	for b.Len() < largeScript {
		fmt.Fprintf(&b, "# %016x%016x%016x\n", rng.Uint64(), rng.Uint64(), rng.Uint64())
	}
	s := job.DefaultSpec()
	s.Script, s.Hold = b.String(), true
	return s
}

func TestLargeJobsWaitOnDisk(t *testing.T) {
	cat := newDaemon(t, "cat").start()
	idle := memory(t, cat, "VmRSS")
	client, err := api.NewClient(api.ClientConfig{Socket: cat.socket})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	var next atomic.Int64
	var group sync.WaitGroup
	ids := make([]job.ID, largeJobs)
	for range 2 {
		group.Go(func() {
			for i := next.Add(1) - 1; i < largeJobs; i = next.Add(1) - 1 {
				j, err := client.Submit(ctx, largeSpec(int(i)), "")
				if err != nil {
					t.Errorf("job %d: %v", i, err)
					return
				}
				ids[i] = j.ID
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	grown := memory(t, cat, "VmRSS") - idle
	cat.kill()
	began := time.Now()
	cat.start()
	took := time.Since(began)
	again := memory(t, cat, "VmRSS") - idle
	t.Logf("%d jobs took %.0f MB, after a restart of %s %.0f MB", largeJobs, grown/1e6, took.Round(time.Millisecond), again/1e6)
	if grown > mostWaiting || again > mostRestarted {
		t.Errorf("%d waiting jobs of %d KB take %.0f MB of memory, want at most %.0f, and after a restart %.0f MB, want at most %.0f", largeJobs, largeScript>>10, grown/1e6, mostWaiting/1e6, again/1e6, mostRestarted/1e6)
	}
	for _, i := range []int{0, 7, largeJobs - 1} {
		id := string(ids[i])
		if got := cat.show(id); got.Spec == nil || got.Spec.Script != largeSpec(i).Script {
			t.Errorf("show has another script for job %d", i)
		}
		cat.ok("release", id)
		cat.untilState(id, "SUCCEEDED")
		if out := cat.ok("logs", id); out != fmt.Sprintf("this is job %d", i) {
			t.Errorf("job %d wrote %q, want its number", i, out)
		}
	}
}

// The number of waiting jobs of one user is limited, and the error says what to do. Others and operators are not
// affected.
func TestPendingJobsOfOneUserAreLimited(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs several users")
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("limits:\n  per_user: {pending_jobs: 2, pending_bytes: 1MiB}\n  all: {pending_jobs: 100}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cat := newDaemon(t, "cat", "--config", file).start()
	cat.submitAs(nobody, "--", "true")                         // prepares the program for other users
	submit := func(uid uint32, args ...string) (string, int) { // with hold
		cmd := exec.Command(filepath.Join(cat.dir, "muster"), append([]string{"submit", "--hold"}, args...)...)
		cmd.Env, cmd.Dir = []string{"MUSTER_SOCKET=" + cat.socket, "PATH=" + os.Getenv("PATH"), "HOME=/"}, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, _ := cmd.CombinedOutput()
		return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
	}
	for range 2 {
		if out, code := submit(nobody, "--", "true"); code != 0 {
			t.Fatalf("exit %d, want 0: %s", code, out)
		}
	}
	out, code := submit(nobody, "--", "true")
	if code == 0 || strings.Contains(out, "\n") || !strings.Contains(out, "2 jobs, and 2 are the most (limits.per_user: pending_jobs); cancel some") {
		t.Errorf("one job too many: exit %d, %s, want a refusal with the limit", code, out)
	}
	for _, uid := range []uint32{4243, 0, 0, 0} {
		if out, code := submit(uid, "--", "true"); code != 0 {
			t.Errorf("user %d: exit %d, want 0: %s", uid, code, out)
		}
	}
}
