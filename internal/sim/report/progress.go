package report

// The line that shows on a terminal how far a simulation is.

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/sim/report/units"
)

// progressEvery is how often the line changes.
const progressEvery = 200 * time.Millisecond

// Progress is a line that shows progress. The zero value, and one without a terminal, prints nothing.
type Progress struct {
	out         io.Writer
	begin, next time.Time
	drawn       int // characters
	events      int64
}

// NewProgress returns a Progress that begins now. It prints nothing if out is not a terminal.
func NewProgress(out io.Writer, terminal bool, now time.Time) *Progress {
	p := &Progress{begin: now, next: now.Add(progressEvery)}
	if terminal {
		p.out = out
	}
	return p
}

// Show draws the line if it is time to. done of all jobs have ended; all is 0 if the number of jobs is not known. If it
// is not time yet, Show costs a few nanoseconds, so it may be called for each batch of events.
func (p *Progress) Show(now time.Time, virtual time.Duration, events int64, done, all int) {
	p.events = events
	if p.out == nil || now.Before(p.next) {
		return
	}
	p.next = now.Add(progressEvery)
	took := now.Sub(p.begin).Seconds()
	line := fmt.Sprintf("simulated %s · %s events/s", units.Span(virtual.Seconds()), units.Count(int64(over(float64(events), took))))
	if all > 0 {
		part := min(1, float64(done)/float64(all))
		line += fmt.Sprintf(" · %s of %s jobs", units.Count(done), units.Count(all))
		if part > 0 {
			line += fmt.Sprintf(" · %s left", units.Span(took*(1-part)/part))
		}
	}
	p.draw(clip(line, Width-1))
}

// draw replaces the line.
func (p *Progress) draw(line string) {
	n := utf8.RuneCountInString(line)
	fmt.Fprint(p.out, "\r"+line+strings.Repeat(" ", max(0, p.drawn-n)))
	p.drawn = n
}

// Clear removes the line, so that others can be printed.
func (p *Progress) Clear() {
	if p.out != nil && p.drawn > 0 {
		fmt.Fprint(p.out, "\r"+strings.Repeat(" ", p.drawn)+"\r")
		p.drawn = 0
	}
}

// Speed returns how many events there were, and how fast they were simulated. The speed depends on the computer, so it
// does not belong in output that must be the same for the same seed.
func (p *Progress) Speed(now time.Time) string {
	took := now.Sub(p.begin).Seconds()
	return fmt.Sprintf("%s events in %s, %s a second", units.Count(p.events), units.Span(took), units.Count(int64(over(float64(p.events), took))))
}
