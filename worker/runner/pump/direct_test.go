package pump

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/output"
)

// directOf returns an outlet that copies its output to descriptors, by stream, and the directory of its log.
func directOf(t *testing.T, to map[output.Stream]*Copy) (*Outlet, string) {
	t.Helper()
	p, err := New(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	dir := t.TempDir()
	return p.Direct(output.NewWriter(dir, 1<<20), to), dir
}

// One copy has both streams in the order in which they were written, and so does the log.
func TestOneCopyHasBothStreamsInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "copy")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	both := &Copy{Path: path, FD: fd}
	o, _ := directOf(t, map[output.Stream]*Copy{output.Stdout: both, output.Stderr: both})
	want := ""
	for i := range 1000 {
		stream, text := output.Stdout, "out\n"
		if i%3 == 0 {
			stream, text = output.Stderr, "err\n"
		}
		want += text
		if _, err := io.WriteString(o.Stream(stream), text); err != nil {
			t.Fatal(err)
		}
	}
	if tail := o.Finish(); tail == "" {
		t.Error("the log has no stderr")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%d bytes, want %d; %v", len(got), len(want), err)
	}
}

// A copy that hangs blocks the task, and Cut ends that. The log is complete, and the end does not take long.
func TestCutReleasesATaskFromACopyThatHangs(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil { // nobody reads it, so a write to it blocks
		t.Fatal(err)
	}
	o, _ := directOf(t, map[output.Stream]*Copy{output.Stderr: {Path: "hangs", FD: fds[1]}})
	wrote := make(chan error)
	go func() {
		line := make([]byte, 32<<10)
		for {
			if _, err := o.Stream(output.Stderr).Write(line); err != nil {
				wrote <- err
				return
			}
		}
	}()
	select {
	case err := <-wrote:
		t.Fatalf("a write failed: %v", err)
	case <-time.After(100 * time.Millisecond): // it blocks, or is about to
	}
	o.Cut()
	if err := <-wrote; err == nil {
		t.Error("a write to a pipe without a reader succeeded")
	}
	if tail := o.Finish(); tail == "" {
		t.Error("the log has no stderr")
	}
	_ = unix.Close(fds[0]) // ends the write
	<-o.direct.done
}
