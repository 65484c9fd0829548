package main

import (
	"io"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// counter counts the writes and the lines that it gets.
type counter struct{ writes, lines int }

func (c *counter) Write(p []byte) (int, error) {
	c.writes++
	c.lines += strings.Count(string(p), "\n")
	return len(p), nil
}

// TestListingIsWrittenInLargePieces checks that a long listing does not cost a system call for each cell.
func TestListingIsWrittenInLargePieces(t *testing.T) {
	t.Parallel()
	l := api.Listing[api.Job]{Items: make([]api.Job, 5_000)}
	for i := range l.Items {
		l.Items[i].ID, l.Items[i].State = "abcdefghij-klm", job.Pending
	}
	for _, flags := range [][]string{nil, {"--jsonl"}} {
		out := &counter{}
		app := &cli.App{Flags: listFlags(), Action: func(c *cli.Context) error {
			v, err := viewOf(streams{out: out, err: io.Discard}, c, same(jobColumns(false)))
			if err != nil {
				return err
			}
			return v.print(l)
		}}
		if err := app.Run(append([]string{"muster"}, flags...)); err != nil {
			t.Fatal(err)
		}
		if out.lines < len(l.Items) || out.writes > len(l.Items)/50 {
			t.Errorf("%v: got %d lines in %d writes, want at least %d lines in at most %d", flags, out.lines, out.writes, len(l.Items), len(l.Items)/50)
		}
	}
}
