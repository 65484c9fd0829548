package cgroup

// The kernel's files: where they are mounted, reading and writing them.

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFile bounds what is read from one file, in bytes: a list of 100,000 processes.
const maxFile = 1 << 20

// Own returns the directory of the group that this process is in: of version 1 for a controller, of version 2 for "".
func Own(controller string) (string, error) {
	mount, err := mountOf("/proc", controller)
	if err != nil {
		return "", err
	}
	b, err := readBounded("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("cgroup: own group: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 && strings.Contains(","+parts[1]+",", ","+controller+",") {
			return filepath.Join(mount, parts[2]), nil
		}
	}
	return "", fmt.Errorf("cgroup: in no group of %q", controller)
}

// mountOf returns where the hierarchy of a controller is mounted. proc is the directory of the kernel's files about
// processes.
func mountOf(proc, controller string) (string, error) {
	f, err := os.Open(filepath.Join(proc, "self", "mountinfo"))
	if err != nil {
		return "", fmt.Errorf("cgroup: mounts: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		left, right, ok := strings.Cut(lines.Text(), " - ")
		fields, what := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 5 || len(what) < 3 {
			continue
		}
		v2 := what[0] == "cgroup2" && controller == ""
		v1 := what[0] == "cgroup" && controller != "" && strings.Contains(","+what[2]+",", ","+controller+",")
		if v2 || v1 {
			return fields[4], nil
		}
	}
	if controller == "" {
		return "", fmt.Errorf("cgroup: version 2 is not mounted")
	}
	return "", fmt.Errorf("cgroup: %s of version 1 is not mounted", controller)
}

// underSystemd reports whether systemd manages this host. Then groups outside of our own are systemd's.
func underSystemd() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

// write writes value to one of the kernel's files.
func write(path, value string) error { return writeAt(unix.AT_FDCWD, path, value) }

func writeAt(dir int, name, value string) error {
	fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(value))
		_ = unix.Close(fd) // the result of the write is known
	}
	if err != nil {
		return fmt.Errorf("cgroup: %w", &os.PathError{Op: "write " + value + " to", Path: name, Err: err})
	}
	return nil
}

// lastFile writes to the kernel's files and keeps the last one open, because thousands of values are written to some. The
// zero value is ready to use.
type lastFile struct {
	path string // empty: none is open
	fd   int
}

func (f *lastFile) write(path, value string) error {
	if path != f.path {
		f.close()
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("cgroup: %w", &os.PathError{Op: "write " + value + " to", Path: path, Err: err})
		}
		f.path, f.fd = path, fd
	}
	if _, err := unix.Write(f.fd, []byte(value)); err != nil {
		return fmt.Errorf("cgroup: %w", &os.PathError{Op: "write " + value + " to", Path: path, Err: err})
	}
	return nil
}

func (f *lastFile) close() {
	if f.path != "" {
		_ = unix.Close(f.fd) // the results of the writes are known
		f.path = ""
	}
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%s: over %d bytes", path, maxFile)
	}
	return b, err
}

// count returns a number from a file of "name number" lines, or -1 if it is not there.
func count(path, name string) int64 {
	b, err := readBounded(path)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
				return n
			}
		}
	}
	return -1
}

// OOMKills returns how many processes in and below this process's own group the OOM killer has killed, or -1 if the
// kernel does not say.
func OOMKills() int64 {
	if own, err := Own(""); err == nil {
		if n := count(filepath.Join(own, "memory.events"), "oom_kill"); n >= 0 {
			return n
		}
	}
	own, err := Own(Memory)
	if err != nil {
		return -1
	}
	return count(filepath.Join(own, "memory.oom_control"), "oom_kill")
}
