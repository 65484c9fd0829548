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
	Task int // the number by which people call the task
	// Index is the index in the array. A task that is not of an array has its number here too.
	Index int
	Job   string // its name
	Node  string
	User  string
}

// Expand replaces %j and %A with the job's ID, %t with the task's number, %a with its index in the array, %x with the job's name, %n and %N
// with the node's name, %u with the user's name, and %% with %. %4t is the number with zeros before it, four digits in
// all. A slash in a name becomes _, so that a name never adds a directory.
func (n Names) Expand(pattern string) string {
	plain := strings.NewReplacer("/", "_")
	var out strings.Builder
	for {
		before, after, found := strings.Cut(pattern, "%")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		width, kind, rest := placeholder(after)
		switch kind {
		case '%':
			out.WriteByte('%')
		case 'j', 'A':
			out.WriteString(string(n.ID))
		case 't':
			fmt.Fprintf(&out, "%0*d", width, n.Task)
		case 'a':
			fmt.Fprintf(&out, "%0*d", width, n.Index)
		case 'x':
			out.WriteString(plain.Replace(n.Job))
		case 'n', 'N':
			out.WriteString(plain.Replace(n.Node))
		case 'u':
			out.WriteString(plain.Replace(n.User))
		}
		pattern = rest
	}
}

// placeholder splits what follows a % into its width, its letter and the rest. The letter is 0 if there is none.
func placeholder(text string) (width int, kind byte, rest string) {
	digits := len(text) - len(strings.TrimLeft(text, "0123456789"))
	if digits == len(text) || digits > 2 {
		return 0, 0, ""
	}
	width, _ = strconv.Atoi(text[:digits])
	return width, text[digits], text[digits+1:]
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
		width, kind, more := placeholder(after)
		if !strings.ContainsRune("%jAtaxnNu", rune(kind)) || width > 0 && kind != 't' && kind != 'a' {
			return fmt.Errorf("%.60q: %% must be followed by one of j A t a x n N u %%; t and a may have a width, as in %%4t", pattern)
		}
		rest = more
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
		case strings.HasPrefix(f.pattern, "/") || s.SubmitDir != "":
		case s.Image != "":
			return fmt.Errorf("%s: %.60q: %w", f.field, f.pattern, errInContainer)
		case s.Workdir == "":
			return fmt.Errorf("%s: %.60q: %w", f.field, f.pattern, errNoWorkdir)
		}
	}
	return nil
}

var (
	errNoWorkdir   = errors.New("a relative path needs a workdir: the directory of a task without one is deleted when the task ends")
	errInContainer = errors.New("want an absolute path of the node: the directory of a task with an image is inside its container")
)
