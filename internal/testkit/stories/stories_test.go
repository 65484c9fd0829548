package stories_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testkit/stories"
)

const text = `# Only words.

# A comment.
add a b n=2 for=3s of=4KiB
add c
----
old outcome
`

func tell(text string) string {
	return stories.Tell(text, func(c stories.Command) string {
		if c.Options.Number("n", 2) != 2 || c.Options.Duration("for", 3*time.Second) != 3*time.Second || c.Options.Size("of", 4096) != 4096 {
			return "options\n"
		}
		return c.Verb + " " + strings.Join(c.Args, ",") + c.Arg(7) + "\n"
	})
}

func TestOutcomesAreWrittenBelowTheirCommands(t *testing.T) {
	want := "# Only words.\n\n# A comment.\nadd a b n=2 for=3s of=4KiB\nadd c\n----\nadd a,b\nadd c\n"
	if got := tell(text); got != want || tell(got) != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCheckRewritesAChangedStory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.txt")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := stories.Check(file, false, tell); err == nil || !strings.Contains(err.Error(), "add a,b") {
		t.Fatalf("err = %v, want the new text", err)
	}
	if err := stories.Check(file, true, tell); err != nil {
		t.Fatal(err)
	}
	if err := stories.Check(file, false, tell); err != nil {
		t.Fatal(err)
	}
}

// The error of a story whose outcome has changed shows the first block that differs.
func TestCheckShowsTheFirstChangedBlock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.txt")
	if err := os.WriteFile(file, []byte("# One.\nadd a\n----\nadd a\n\n# Two.\nadd b\n----\nold\n\nadd c\n----\nadd c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := stories.Check(file, false, tell)
	if err == nil || !strings.Contains(err.Error(), "first in the block at line 6:\n# Two.\nadd b\n----\nadd b\nwhich was:\n# Two.\nadd b\n----\nold\n") {
		t.Fatalf("err = %v, want the block", err)
	}
}
