// Package jobfiles keeps a directory that says which jobs hold each GPU, for programs that measure GPUs by themselves: one
// file for each GPU that is held, with the id of one job a line. This is what the exporter of DCGM reads as its mapping of
// HPC jobs: a file is named by the number of the GPU, or NUMBER.INSTANCE for a MIG instance. All other names are ignored
// there, and left alone here.
package jobfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

// temporary is the name of a file that is being written. It is no name of a GPU, so nobody reads it, and the next file that
// is written replaces what a crash has left of it.
const temporary = ".muster.tmp"

// names are the files of GPUs.
var names = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// Name returns the name of the file of a GPU; empty if its number is not known.
func Name(d gpu.Device) string {
	switch {
	case d.Index < 0:
		return ""
	case d.Parent == "":
		return strconv.Itoa(d.Index)
	case d.Instance == "":
		return ""
	}
	if name := strconv.Itoa(d.Index) + "." + d.Instance; names.MatchString(name) {
		return name
	}
	return ""
}

// Write makes the directory, if there is none, and writes its files. held has the jobs of each GPU by the name of its
// file. A reader sees the old file or the new one, never a part. Files of other GPUs are removed. After an error Write
// does the rest; it returns all errors.
func Write(dir string, held map[string][]job.ID) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the program that reads it has its own account
		return fmt.Errorf("jobs of GPUs: %w", err)
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("jobs of GPUs: %w", err)
	}
	var errs []error
	for _, e := range there {
		if e.Type().IsRegular() && names.MatchString(e.Name()) && len(held[e.Name()]) == 0 {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("jobs of GPUs: %w", err))
			}
		}
	}
	for name, jobs := range held {
		if len(jobs) > 0 {
			errs = append(errs, replace(dir, name, lines(jobs)))
		}
	}
	return errors.Join(errs...)
}

// lines returns the content of a file. The last line ends with a newline too. No line is empty, because a reader would
// take an empty line for a job.
func lines(jobs []job.ID) string {
	var b strings.Builder
	for _, id := range jobs {
		b.WriteString(string(id))
		b.WriteByte('\n')
	}
	return b.String()
}

// replace replaces a file, unless it has this content already.
func replace(dir, name, content string) error {
	path := filepath.Join(dir, name)
	if was, err := os.ReadFile(path); err == nil && string(was) == content {
		return nil
	}
	temp := filepath.Join(dir, temporary)
	if err := os.WriteFile(temp, []byte(content), 0o600); err != nil {
		return fmt.Errorf("jobs of GPUs: %w", err)
	}
	if err := os.Chmod(temp, 0o644); err != nil { //nolint:gosec // whatever the umask of the daemon is
		return fmt.Errorf("jobs of GPUs: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("jobs of GPUs: %w", err)
	}
	return nil
}
