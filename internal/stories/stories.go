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
// A command is a verb, arguments, and options with "=". Which verbs there are, and what an outcome looks like, is the
// business of each test. Only tests use this package.
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

// Options are the words of a command that have a "=", by what stands before it.
type Options map[string]string

// Check tells the story of a file with tell, and returns an error with the new text if it differs from the file. With
// update it writes the new text into the file instead.
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
		return fmt.Errorf("stories: %s goes differently now; with -update:\n%s", file, got)
	}
	if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
		return fmt.Errorf("stories: %w", err)
	}
	return nil
}

// Tell carries out the commands of a text in order, and returns the text with the outcomes that do returns now.
func Tell(text string, do func(Command) string) string {
	var out strings.Builder
	for block := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n\n") {
		commands, _, _ := strings.Cut(strings.Trim(block, "\n"), "\n----")
		var outcome strings.Builder
		acts := false
		for line := range strings.SplitSeq(commands, "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				acts = true
				outcome.WriteString(do(Parse(line)))
			}
		}
		out.WriteString(commands + "\n")
		if acts {
			out.WriteString("----\n" + outcome.String())
		}
		out.WriteString("\n")
	}
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

// Arg is the argument with that index, or empty.
func (c Command) Arg(i int) string {
	if i < len(c.Args) {
		return c.Args[i]
	}
	return ""
}

// Number is the option as a number, or otherwise if it is not there. It panics if the option is no number, as do the
// methods below: the story is wrong then.
func (o Options) Number(name string, otherwise int) int {
	return option(o, name, otherwise, strconv.Atoi)
}

// Duration is the option as a duration, or otherwise.
func (o Options) Duration(name string, otherwise time.Duration) time.Duration {
	return option(o, name, otherwise, time.ParseDuration)
}

// Size is the option in bytes, or otherwise.
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
