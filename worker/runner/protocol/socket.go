package protocol

// The unix sockets of a runner.

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Listen opens one of the sockets of a runner. The caller holds the runner's lock.
func Listen(path string) (net.Listener, error) {
	if err := gone(os.Remove(path)); err != nil {
		return nil, fmt.Errorf("runner: remove old socket: %w", err)
	}
	var listener net.Listener
	err := inDir(path, func(short string) (err error) {
		listener, err = net.Listen("unix", short) //nolint:noctx // a local socket is bound at once
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("runner: listen on %s: %w", path, err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // the short path is not valid any more by then
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("runner: set mode of socket: %w", err), listener.Close())
	}
	return listener, nil
}

// Dial connects to a socket of a runner.
func Dial(path string) (net.Conn, error) {
	var conn net.Conn
	err := inDir(path, func(short string) (err error) {
		conn, err = net.Dial("unix", short) //nolint:noctx // a local socket answers at once or not
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("runner: dial %s: %w", path, err)
	}
	return conn, nil
}

// inDir calls f with a short path for path. A socket address has at most 107 bytes, and the path of a data directory
// may be longer.
func inDir(path string, f func(short string) error) error {
	fd, err := unix.Open(filepath.Dir(path), unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: filepath.Dir(path), Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	return f("/proc/self/fd/" + strconv.Itoa(fd) + "/" + filepath.Base(path))
}

// SameUser returns an error if the peer of conn is not a process of this process's user.
func SameUser(conn net.Conn) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return fmt.Errorf("runner: peer of connection: %w", err)
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return fmt.Errorf("runner: peer of connection: %w", err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return fmt.Errorf("runner: process %d of user %d: only user %d may connect", cred.Pid, cred.Uid, os.Geteuid())
	}
	return nil
}
