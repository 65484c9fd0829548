package api

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// While the kernel's queue of connections for a socket is full, a client waits for the daemon to accept some.
func TestDialWaitsForAFullSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err == nil {
		err = unix.Listen(fd, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := 0
	for ; ; n++ { // until no more fit
		c, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer c.Close()
	}
	time.AfterFunc(100*time.Millisecond, func() {
		for range n + 1 {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	})
	c, err := dialSocket(t.Context(), &net.Dialer{}, path)
	if err != nil {
		t.Fatalf("with %d connections in the queue: got %v, want no error", n, err)
	}
	c.Close()
}
