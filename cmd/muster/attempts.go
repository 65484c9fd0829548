package main

// The attempts of tasks that had several.

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
)

// maxAttemptRows bounds the attempts that show prints for all tasks together.
const maxAttemptRows = 64

// attemptTable writes how the attempts of the document's tasks went, for each task that had several.
func attemptTable(out io.Writer, room int, j api.Job) error {
	l, _ := j.Layout() // without one, tasks have their numbers
	w := new(table.Sheet)
	rows, left := 0, 0
	for _, t := range j.Tasks {
		if len(t.Attempts)+t.Older < 2 {
			continue
		}
		if rows+len(t.Attempts) > maxAttemptRows {
			left++
			continue
		}
		if rows == 0 {
			row(w, "TASK", "ATTEMPT", "NODE", "STATE", "EXIT", "TIME", "ENDED", "REASON")
		}
		rows += len(t.Attempts)
		attemptRows(w, l.Name(t.Task), t, nowOf(j))
	}
	err := w.Print(out, room)
	if left > 0 && err == nil {
		_, err = fmt.Fprintf(out, "%d more tasks had several attempts; name tasks to see theirs, such as ID.3\n", left)
	}
	return err
}

// attemptRows writes the attempts of a task. now is what the clock reads by which its times are.
func attemptRows(w *table.Sheet, name string, t api.Task, now time.Time) {
	if t.Older > 0 {
		row(w, name, "...", "", "", "", "", "", fmt.Sprintf("%d older %s", t.Older, plural(t.Older, "attempt", "attempts")))
	}
	for _, a := range t.Attempts {
		code := "-"
		switch {
		case a.Signal > 0:
			code = fmt.Sprintf("signal %d", a.Signal)
		case a.ExitCode != nil:
			code = strconv.Itoa(*a.ExitCode)
		}
		took := "-"
		if a.StartedAt != nil && (a.EndedAt != nil || !a.State.Ended()) {
			took = elapsed(a.StartedAt, a.EndedAt, now)
		}
		row(w, name, strconv.Itoa(a.Attempt), dash(a.Node), string(a.State), code, took, clock(a.EndedAt), dash(a.Reason))
	}
}
