package supervisor

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/output"
)

// fed is a task that gets input from its client.
func (r *rig) fed(tty string, command ...string) driver.Task {
	k := r.task(0, command...)
	k.Spec.Stdin, k.Spec.TTY = tty == "", tty
	return k
}

// Input over several connections arrives complete and once, wherever each of them breaks.
func TestInputOverSeveralConnectionsArrivesOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		at := filepath.Join(t.TempDir(), "got")
		k := r.fed("", "sh", "-c", fmt.Sprintf("cat > %s", at))
		r.start(k)
		r.expect(driver.Started)
		all := bytes.Repeat([]byte("some words of input, "), 50_000)
		taken := int64(0)
		for i := 0; taken < int64(len(all)); i++ {
			in, err := r.d.Attach(t.Context(), k.Attempt)
			if err != nil {
				t.Fatal(err)
			}
			if in.Taken < taken {
				t.Fatalf("connection %d starts at %d, but %d bytes were accepted before", i, in.Taken, taken)
			}
			late := time.AfterFunc(time.Millisecond, in.Close) // somewhere in the middle
			n, err := in.Write(all[in.Taken:])
			late.Stop()
			taken = in.Taken + int64(n)
			in.Close()
			if err == nil && taken != int64(len(all)) {
				t.Fatalf("%d of %d bytes were accepted without an error", taken, len(all))
			}
		}
		in, err := r.d.Attach(t.Context(), k.Attempt)
		if err != nil || in.Taken != int64(len(all)) {
			t.Fatalf("%+v, %v, want no error and Taken %v", in, err, int64(len(all)))
		}
		_ = in.End() // the task may have ended before the answer
		r.expect(driver.Exited)
		got, err := os.ReadFile(at)
		if err != nil || sha256.Sum256(got) != sha256.Sum256(all) {
			t.Errorf("got %d of %d bytes, or other ones; %v", len(got), len(all), err)
		}
		if _, err := r.d.Attach(t.Context(), k.Attempt); !errors.Is(err, ErrNotRunning) {
			t.Errorf("attach after the end: %v, want ErrNotRunning", err)
		}
	})
}

// A task that does not read blocks its client, and a new client takes over from a blocked one. A task that closes its
// input accepts no more.
func TestTaskThatDoesNotReadBlocksItsClient(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	gate := filepath.Join(t.TempDir(), "gate")
	k := r.fed("", "sh", "-c", fmt.Sprintf("while ! test -e %s; do sleep 0.05; done; exec <&-; sleep 1000", gate))
	r.start(k)
	r.expect(driver.Started)
	first, err := r.d.Attach(t.Context(), k.Attempt)
	if err != nil {
		t.Fatal(err)
	}
	broken := make(chan error, 1)
	go func() {
		_, err := first.Write(make([]byte, 1<<20)) // a pipe holds less
		broken <- err
	}()
	select {
	case err := <-broken:
		t.Fatalf("the write returned though nobody reads: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	second, err := r.d.Attach(t.Context(), k.Attempt)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-broken; err == nil || errors.Is(err, ErrInputOver) {
		t.Errorf("the first client: %v, want an error of a broken connection", err)
	}
	if second.Taken == 0 || second.Taken >= 1<<20 {
		t.Errorf("%d bytes were accepted, want some and less than 1 MiB", second.Taken)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Write(make([]byte, 1<<20)); !errors.Is(err, ErrInputOver) {
		t.Errorf("after the task has closed its input: %v, want ErrInputOver", err)
	}
	if err := r.d.Stop(k.Attempt, 0, "enough"); err != nil {
		t.Fatal(err)
	}
	r.expect(driver.Exited)
}

// A terminal has its size from the start, and accepts keys and sizes.
func TestTaskWithATerminalGetsKeysAndSizes(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, mode string) {
		r := newRig(t, mode, testDir(t), "1")
		k := r.fed("31x97", "sh", "-c", "stty size; test -t 0 && test -t 1 && test -t 2 && echo terminal; read line; echo \"got $line\"; stty size; trap 'echo int; exit 7' INT; echo ready; while :; do sleep 0.05; done")
		r.start(k)
		r.expect(driver.Started)
		in, err := r.d.Attach(t.Context(), k.Attempt)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		until := func(words string) {
			for late := time.Now().Add(20 * time.Second); !strings.Contains(r.output(k.Attempt, output.Both), words); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(late) {
					t.Fatalf("time-out without %q in %q", words, r.output(k.Attempt, output.Both))
				}
			}
		}
		until("31 97\r\nterminal\r\n")
		if err := in.Resize(40, 120); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write([]byte("a word\r")); err != nil {
			t.Fatal(err)
		}
		until("ready")
		if _, err := in.Write([]byte{3}); err != nil {
			t.Fatal(err)
		}
		e := r.expect(driver.Exited)
		if log := r.output(k.Attempt, output.Both); e.Exit.Code != 7 || !strings.Contains(log, "got a word\r\n40 120\r\n") {
			t.Errorf(`exit %+v, log %q, want Code 7 and "got a word\r\n40 120\r\n" in it`, e.Exit, log)
		}
	})
}

// A task without input accepts none, and a task whose client never comes ends.
func TestTaskEndsIfItsClientNeverComes(t *testing.T) {
	t.Parallel()
	r := newRig(t, "groups", testDir(t), "1")
	r.d.cfg.ClientTimeout = job.Duration(300 * time.Millisecond)
	plain := r.task(0, "sleep", "1000")
	r.start(plain)
	r.expect(driver.Started)
	if _, err := r.d.Attach(t.Context(), plain.Attempt); !errors.Is(err, ErrNotRunning) || !strings.Contains(err.Error(), "gets no input") {
		t.Errorf("attach to a task without input: %v, want ErrNotRunning", err)
	}
	alone := r.task(1, "sleep", "1000")
	alone.Spec.TTY = "24x80"
	r.start(alone)
	r.expect(driver.Started)
	if e := r.expect(driver.Exited); e.Exit.State != job.Cancelled || e.Exit.Signal != 1 || e.Exit.Reason != "its client was gone for 300ms" {
		t.Errorf(`%+v, want State %v, Signal 1 and Reason "its client was gone for 300ms"`, e.Exit, job.Cancelled)
	}
}
