package keptsocket

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func listenAt(t *testing.T, path string) *Listener {
	t.Helper()
	l, err := Listen(path, func() (net.Listener, error) { return net.Listen("unix", path) }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// answer accepts connections and writes a byte to each, until the listener is closed.
func answer(l *Listener) chan error {
	over := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				over <- err
				return
			}
			_, _ = conn.Write([]byte{1})
		}
	}()
	return over
}

func answers(path string) bool {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return false
	}
	defer conn.Close()
	n, err := conn.Read(make([]byte, 1))
	return n == 1 && err == nil
}

// A socket that is removed repeatedly is created again. When the listener is closed, its file is removed.
func TestRemovedSocketIsCreatedAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l := listenAt(t, path)
	over := answer(l)
	for range 2 {
		if !answers(path) {
			t.Fatal("no answer")
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); !answers(path); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the socket was not created again")
			}
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-over; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file was not removed: got %v, want os.ErrNotExist", err)
	}
}

// Another program's file at the path stays.
func TestForeignFileIsNotReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l := listenAt(t, path)
	answer(l)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.again(); err == nil {
		t.Error("a file was replaced by a socket")
	}
	if b, err := os.ReadFile(path); string(b) != "mine" {
		t.Errorf("got %q, %v, want mine", b, err)
	}
}
