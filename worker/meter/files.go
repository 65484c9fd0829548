package meter

// The kernel's files: reading them into one buffer, and the numbers in them.

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxFile bounds what is read of one file, in bytes.
const maxFile = 1 << 20

// kernel reads the files in which the kernel tells about processes and the host. It reuses its buffer, so an answer is
// valid until the next read. Tests give it other directories.
type kernel struct {
	proc string // usually /proc
	sys  string // usually /sys
	buf  []byte
}

// read reads a file. One of more than maxFile bytes is cut. It makes the system calls itself: package os would register each
// file for events, which takes as long as reading it.
func (k *kernel) read(path string) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	if k.buf == nil {
		k.buf = make([]byte, 16<<10)
	}
	for n := 0; ; {
		got, err := unix.Read(fd, k.buf[n:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		n += got
		if got == 0 || n == maxFile {
			return k.buf[:n], nil
		}
		if n == len(k.buf) {
			k.buf = append(k.buf, make([]byte, min(len(k.buf), maxFile-len(k.buf)))...)
		}
	}
}

// ofProcess reads a file of a process.
func (k *kernel) ofProcess(pid int, name string) ([]byte, error) {
	return k.read(filepath.Join(k.proc, strconv.Itoa(pid), name))
}

// number reads a file that holds one number.
func (k *kernel) number(dir, name string) (float64, bool) {
	if dir == "" {
		return 0, false
	}
	b, err := k.read(filepath.Join(dir, name))
	if err != nil {
		return 0, false
	}
	return parse(bytes.TrimSpace(b))
}

// keyed reads one number of a file of "name number" lines. The name includes the separator.
func (k *kernel) keyed(dir, file, name string) (float64, bool) {
	if dir == "" {
		return 0, false
	}
	b, err := k.read(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	return valueOf(b, name)
}

// valueOf returns the number after a name at the beginning of a line.
func valueOf(text []byte, name string) (float64, bool) {
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			word, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" "))
			return parse(word)
		}
	}
	return 0, false
}

func parse(word []byte) (float64, bool) {
	n, err := strconv.ParseUint(string(word), 10, 64)
	return float64(n), err == nil
}
