package job

// The names of files for a task's output, as users of Slurm write them.

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxPattern bounds a pattern: the longest path that Linux takes.
const maxPattern = 4096

// Names is what the letters of a pattern stand for in one task.
type Names struct {
	Attempt Attempt
	Job     string // its name
	Node    string
	User    string
}

// Expand replaces %j and %A by the job's id, %t and %a by the task's number, %x
// by the job's name, %n and %N by the node's, %u by the user's, %% by %. A
// slash in a name becomes _, so that a name is never a directory.
func (n Names) Expand(pattern string) string {
	plain := strings.NewReplacer("/", "_")
	id, task := string(n.Attempt.Job), strconv.Itoa(n.Attempt.Task)
	node, user := plain.Replace(n.Node), plain.Replace(n.User)
	return strings.NewReplacer("%%", "%", "%j", id, "%A", id, "%t", task, "%a", task,
		"%x", plain.Replace(n.Job), "%n", node, "%N", node, "%u", user).Replace(pattern)
}

// checkPattern says what is wrong with a pattern.
func checkPattern(pattern string) error {
	if len(pattern) > maxPattern || strings.ContainsRune(pattern, 0) {
		return fmt.Errorf("%.60q: a path of at most %d bytes, none of them zero", pattern, maxPattern)
	}
	for rest := pattern; ; {
		_, after, found := strings.Cut(rest, "%")
		if !found {
			return nil
		}
		if after == "" || !strings.ContainsRune("%jAtaxnNu", rune(after[0])) {
			return fmt.Errorf("%.60q: after %% comes one of j A t a x n N u %%", pattern)
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

var errNoWorkdir = errors.New("a relative path is relative to the workdir, and the job has none; without one the task's directory goes when it ends")
