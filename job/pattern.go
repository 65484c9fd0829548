package job

// Patterns for the names of output files, as in Slurm.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxPattern bounds a pattern: PATH_MAX of Linux.
const maxPattern = 4096

// Names holds the values that the placeholders of a pattern stand for in one task.
type Names struct {
	ID   ID
	Task int    // the number by which people call the task
	Job  string // its name
	Node string
	User string
}

// Expand replaces %j and %A with the job's ID, %t and %a with the task's number, %x with the job's name, %n and %N
// with the node's name, %u with the user's name, and %% with %. A slash in a name becomes _, so that a name never
// adds a directory.
func (n Names) Expand(pattern string) string {
	plain := strings.NewReplacer("/", "_")
	id, task := string(n.ID), strconv.Itoa(n.Task)
	node, user := plain.Replace(n.Node), plain.Replace(n.User)
	return strings.NewReplacer("%%", "%", "%j", id, "%A", id, "%t", task, "%a", task,
		"%x", plain.Replace(n.Job), "%n", node, "%N", node, "%u", user).Replace(pattern)
}

// checkPattern returns an error if the pattern is not valid.
func checkPattern(pattern string) error {
	if len(pattern) > maxPattern || strings.ContainsRune(pattern, 0) {
		return fmt.Errorf("%.60q: want a path of at most %d bytes without a zero byte", pattern, maxPattern)
	}
	for rest := pattern; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return nil
		}
		if after == "" || !strings.ContainsRune("%jAtaxnNu", rune(after[0])) {
			return fmt.Errorf("%.60q: %% must be followed by one of j A t a x n N u %%", pattern)
		}
		rest = after[1:]
	}
}

func checkOutput(s Spec) error {
	for _, f := range []struct{ field, pattern string }{{"output", s.Output}, {"error", s.Error}} {
		if f.pattern == "" {
			continue
		}
		if err := checkPattern(f.pattern); err != nil {
			return fmt.Errorf("%s: %w", f.field, err)
		}
		switch {
		case s.Image != "":
			return fmt.Errorf("%s: %w for a task with an image", f.field, ErrNotYet)
		case s.Workdir == "" && !strings.HasPrefix(f.pattern, "/"):
			return fmt.Errorf("%s: %.60q: %w", f.field, f.pattern, errNoWorkdir)
		}
	}
	return nil
}

var errNoWorkdir = errors.New("a relative path needs a workdir: the directory of a task without one is deleted when the task ends")
