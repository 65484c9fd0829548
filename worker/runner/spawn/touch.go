package spawn

// Reading the beginning of a program before it is executed. If its file system hangs, only the reading thread is
// blocked.

import (
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/userfile"
)

// maxScripts is how many interpreters that are scripts themselves the kernel follows.
const maxScripts = 4

// touch reads the beginning of a program and of its interpreters, as the kernel does when it executes them, and returns
// their paths: as they are named, and without symbolic links. It reports no errors, because the kernel will.
func touch(t userfile.Thread, path string) (all []string) {
	for range maxScripts {
		if path == "" {
			break
		}
		next, resolved := interpreter(t, path)
		all = append(all, path, resolved)
		path = next
	}
	return all
}

// interpreter returns the interpreter that the first line of a script names, or "" if there is none, and the path of the
// script itself without symbolic links, or "".
func interpreter(t userfile.Thread, script string) (path, resolved string) {
	fd, err := t.Open(unix.AT_FDCWD, script, unix.O_RDONLY, 0)
	if err != nil {
		return "", ""
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	resolved = userfile.PathOf(fd)
	var begin [256]byte
	n, err := unix.Read(fd, begin[:])
	if err != nil {
		return "", resolved
	}
	line, isScript := strings.CutPrefix(string(begin[:n]), "#!")
	if line, _, _ = strings.Cut(line, "\n"); !isScript || len(strings.Fields(line)) == 0 {
		return "", resolved
	}
	if path = strings.Fields(line)[0]; !filepath.IsAbs(path) {
		return "", resolved
	}
	return path, resolved
}
