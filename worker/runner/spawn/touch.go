package spawn

// Reading the beginning of a program before it is executed, where a hanging file
// system stops only the reader.

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxScripts is how many scripts the kernel follows from one to the next.
const maxScripts = 4

// touch reads the beginning of a program and of a script's interpreters, as the
// kernel does when it executes them. It reports no error: the kernel will.
func touch(path string) {
	for range maxScripts {
		if path = interpreter(path); path == "" {
			return
		}
	}
}

// interpreter is what the first line of a script names; empty for none.
func interpreter(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	var begin [256]byte
	n, err := unix.Read(fd, begin[:])
	if err != nil {
		return ""
	}
	line, isScript := strings.CutPrefix(string(begin[:n]), "#!")
	if line, _, _ = strings.Cut(line, "\n"); !isScript || len(strings.Fields(line)) == 0 {
		return ""
	}
	if path = strings.Fields(line)[0]; !filepath.IsAbs(path) {
		return ""
	}
	return path
}
