// Package stories is the language of the stories that test the cores.
//
// A story is a text file of blocks, set apart by empty lines. A block has comments (#), commands, a line of dashes and
// the outcome of the commands:
//
//	# A task that fits starts at once.
//	offer amy a gpus=1
//	----
//	amy <- commit a on g0
//
// A command is a verb, arguments, and options with "=". Each test defines its verbs and the form of its outcomes. Only
// tests use this package.
package stories

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// Command is one line of a story.
type Command struct {
	Verb    string
	Args    []string
	Options Options
}

// Options are the words of a command that have a "=". The key is the part before the "=".
type Options map[string]string

// Check runs the story of a file with tell. If the text that tell returns differs from the file, Check returns an error
// that shows the first block which differs, and the new text. With update it writes the new text into the file instead.
func Check(file string, update bool, tell func(text string) string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("stories: %w", err)
	}
	got := tell(string(text))
	switch {
	case got == string(text):
		return nil
	case !update:
		return fmt.Errorf("stories: the outcome of %s has changed%s\n-update would write:\n%s", file, difference(string(text), got), got)
	}
	if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
		return fmt.Errorf("stories: %w", err)
	}
	return nil
}

// difference shows the first block of a story that has another outcome now.
func difference(want, got string) string {
	before, now := strings.Split(want, "\n\n"), strings.Split(got, "\n\n")
	line := 1
	for i, b := range before {
		switch {
		case i >= len(now):
			return fmt.Sprintf(" from line %d on: it ends there", line)
		case b != now[i]:
			return fmt.Sprintf(", first in the block at line %d:\n%s\nwhich was:\n%s", line, now[i], b)
		}
		line += strings.Count(b, "\n") + 2
	}
	return ": it goes on at its end"
}

// Tell carries out the commands of a text in order, and returns the text with the outcomes that do returns now. If do ends the test
// or panics, Tell prints the story so far.
func Tell(text string, do func(Command) string) string {
	var out strings.Builder
	whole, now := false, ""
	defer func() {
		if !whole {
			fmt.Fprintf(os.Stderr, "the story so far, up to %q:\n%s\n", now, out.String())
		}
	}()
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		commands, _, _ := strings.Cut(strings.Trim(block, "\n"), "\n----")
		var outcome strings.Builder
		acts := false
		for line := range strings.SplitSeq(commands, "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				acts, now = true, line
				outcome.WriteString(do(Parse(line)))
			}
		}
		out.WriteString(commands + "\n")
		if acts {
			out.WriteString("----\n" + outcome.String())
		}
		out.WriteString("\n")
	}
	whole = true
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// Parse reads one command.
func Parse(line string) Command {
	words := strings.Fields(line)
	c := Command{Verb: words[0], Options: Options{}}
	for _, w := range words[1:] {
		if k, v, ok := strings.Cut(w, "="); ok {
			c.Options[k] = v
		} else {
			c.Args = append(c.Args, w)
		}
	}
	return c
}

// Arg returns the argument with that index, or "" if there is none.
func (c Command) Arg(i int) string {
	if i < len(c.Args) {
		return c.Args[i]
	}
	return ""
}

// Number returns the option as a number, or the value of otherwise if the option is absent. If the option is not a
// number, the story is wrong and Number panics. The methods below do the same.
func (o Options) Number(name string, otherwise int) int {
	return option(o, name, otherwise, strconv.Atoi)
}

// Duration returns the option as a duration, or the value of otherwise.
func (o Options) Duration(name string, otherwise time.Duration) time.Duration {
	return option(o, name, otherwise, time.ParseDuration)
}

// Size returns the option in bytes, or the value of otherwise.
func (o Options) Size(name string, otherwise job.Size) job.Size {
	return option(o, name, otherwise, job.ParseSize)
}

func option[T any](o Options, name string, otherwise T, parse func(string) (T, error)) T {
	text, there := o[name]
	if !there {
		return otherwise
	}
	v, err := parse(text)
	if err != nil {
		panic(fmt.Sprintf("stories: %s=%s: %v", name, text, err))
	}
	return v
}
