package journal

// A disk that fills up: which records are refused, and how the process ends.

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storetest"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/ledger"
)

func TestNewWorkIsRefusedBeforeTheDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := storetest.Disk()
		s := open(t, fs)
		defer closeStore(t, s)
		g, r, ledger := s.Group(), run(t, s, DefaultConfig()), ledger.New(s)
		defer r.halt(t)
		attempt := func(n int) job.Attempt { return job.Attempt{Job: job.NewID(g, 1), N: n} }
		known := contract.Record{Attempt: attempt(1), Phase: contract.PhaseStarted}
		reserved := contract.Record{Attempt: attempt(2), Phase: contract.PhaseReserved}
		if err := ledger.Save([]contract.Record{known, reserved}, nil, nil, true); err != nil {
			t.Fatal(err)
		}
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 60 << 20, TotalBytes: 1 << 40})
		if err := s.CheckSpace(); err != nil {
			t.Errorf("the file system was queried again at once: %v", err)
		}
		time.Sleep(time.Millisecond)
		err := s.CheckSpace()
		if !errors.Is(err, store.ErrNoRoom) || !strings.Contains(err.Error(), "60.0 MiB free, 64.0 MiB are kept") {
			t.Errorf(`CheckSpace = %v, want store.ErrNoRoom and "60.0 MiB free, 64.0 MiB are kept" in it`, err)
		}

		assign := job.AssignRecord{Attempt: attempt(1)}
		for name, err := range map[string]error{
			"Submit":          r.Propose(submit(g, 1)),
			"Assign":          r.Propose(cancel(g, 1), assign),
			"new reservation": ledger.Save([]contract.Record{{Attempt: attempt(3), Phase: contract.PhaseReserved}}, nil, nil, true),
			"new start":       ledger.Save([]contract.Record{{Attempt: attempt(3), Phase: contract.PhaseStarted}}, nil, nil, true),
			"reserved starts": ledger.Save([]contract.Record{{Attempt: attempt(2), Phase: contract.PhaseStarted}}, nil, nil, true),
			"key":             s.Put("k", nil),
		} {
			if !errors.Is(err, store.ErrNoRoom) {
				t.Errorf("%s: %v, want store.ErrNoRoom", name, err)
			}
		}
		known.PID = 7
		for name, err := range map[string]error{
			"Cancel":     r.Propose(cancel(g, 1)),
			"Result":     r.Propose(job.ResultRecord{Attempt: attempt(1)}),
			"Unassign":   r.Propose(job.UnassignRecord{Attempt: attempt(1), Proof: job.ProofDead}),
			"rows":       r.Save(firstIndex, []job.Row{{Job: job.NewID(g, 1), Data: []byte("row")}}, nil),
			"running":    ledger.Save([]contract.Record{known}, nil, nil, true),
			"end":        ledger.Save([]contract.Record{{Attempt: attempt(1), Phase: contract.PhaseDone}}, nil, nil, true),
			"tombstone":  ledger.Save([]contract.Record{{Attempt: attempt(9), Phase: contract.PhaseRefused}}, nil, nil, true),
			"given back": ledger.Save(nil, []job.Attempt{attempt(2)}, nil, true),
			"epoch":      ledger.Save(nil, nil, []contract.Claim{{Group: g, Epoch: job.Epoch{Generation: 1}}}, true),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		fs.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: 65 << 20, TotalBytes: 1 << 40})
		time.Sleep(time.Millisecond)
		if err := r.Propose(submit(g, 1)); err != nil {
			t.Errorf("there is space again, but Propose = %v", err)
		}
	})
}

const childVar = "MUSTER_STORE_TEST_CHILD"

// TestFullDiskEndsTheProcess runs itself again in another process, on the real file system, and fills the disk.
func TestFullDiskEndsTheProcess(t *testing.T) {
	if how := os.Getenv(childVar); how != "" {
		full(t, how)
		return
	}
	for _, how := range []string{"commit", "rows", "limit", "deaf"} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDiskEndsTheProcess$", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), childVar+"="+how, "TMPDIR="+t.TempDir())
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Fatalf("the process ended with %v, want exit code 1:\n%.2000s", err, out.String())
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			want := "hook was told"
			if how == "deaf" {
				want = "hook hangs"
			}
			cause := "no space left on device"
			if how == "limit" {
				cause = "file too large"
			}
			if len(lines) != 2 || !strings.Contains(lines[0], "the daemon ends") || !strings.Contains(lines[0], cause) || lines[1] != want {
				t.Errorf("it printed the following, want two lines, with the cause first:\n%s", out.String())
			}
		})
	}
}

// full fills the disk of a store, and goes on writing until the process ends.
func full(t *testing.T, how string) {
	var on atomic.Bool
	fs := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if on.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".log") {
			return syscall.ENOSPC
		}
		return nil
	}))
	cfg := store.DefaultConfig()
	cfg.Dir, cfg.FS = t.TempDir(), fs
	cfg.OnFatal = func(error) {
		if how == "deaf" {
			fmt.Println("hook hangs")
			select {}
		}
		fmt.Println("hook was told")
	}
	log := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{Level: slog.LevelError}))
	s, err := store.Open(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, s, DefaultConfig())
	if how == "limit" {
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 128 << 10, Max: 128 << 10}); err != nil {
			t.Fatal(err)
		}
	} else {
		on.Store(true)
	}
	for i := range 1_000_000 {
		if how == "rows" {
			_ = r.Save(firstIndex, []job.Row{{Job: job.NewID(1, uint64(i)), Data: make([]byte, 1000)}}, nil)
			continue
		}
		done := make(chan struct{})
		big := submit(s.Group(), i)
		big.Spec.Script = strings.Repeat("x", 32<<10)
		_ = r.Propose(big)
		r.ReadIndex(func(job.Epoch, error) { close(done) })
		<-done
	}
	t.Error("a million writes to a full disk did not end the process")
}
