package protocol

// The exit journal of a runner: how its tasks exited.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
)

// Record is how an attempt exited: one line of the journal.
type Record struct {
	Attempt string        `json:"attempt"`
	PID     int           `json:"pid,omitempty"`
	Exit    job.Exit      `json:"exit"`
	CPU     time.Duration `json:"cpu_ns,omitempty"`  // of its main process and the children that it reaped
	MaxRSS  job.Size      `json:"max_rss,omitempty"` // of the largest of these processes
}

// Segment is one file of the journal. A runner appends only to its newest segment, and begins another when that is
// full. A daemon deletes an older segment when it has forgotten every exit in it.
type Segment struct {
	Runner int // its generation
	Number int // from 1, in the order of writing
}

// End is a record and the segment that holds it.
type End struct {
	Record
	Segment Segment
}

// Journal is the file of one segment.
func (d Dir) Journal(s Segment) string {
	return d.runner(s.Runner, "ends-"+strconv.Itoa(s.Number))
}

// Segments lists the files of the journal, by generation and then oldest first.
func (d Dir) Segments() ([]Segment, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, fmt.Errorf("runner: list %s: %w", d, err)
	}
	var all []Segment
	for _, e := range entries {
		var s Segment
		if n, err := fmt.Sscanf(e.Name(), "runner-%d.ends-%d", &s.Runner, &s.Number); n == 2 && err == nil && s.Runner > 0 && s.Number > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b Segment) int {
		if a.Runner != b.Runner {
			return a.Runner - b.Runner
		}
		return a.Number - b.Number
	})
	return all, nil
}

// Ends reads the whole journal. With an error it also returns what could be read.
func (d Dir) Ends() ([]End, error) {
	segments, err := d.Segments()
	if err != nil {
		return nil, err
	}
	var all []End
	var bad error
	for _, s := range segments {
		ends, err := d.readSegment(s)
		all, bad = append(all, ends...), errors.Join(bad, err)
	}
	return all, bad
}

// readSegment reads one file. A broken last line is no error: the runner died while it wrote the line, before it told
// anyone.
func (d Dir) readSegment(s Segment) ([]End, error) {
	f, err := os.Open(d.Journal(s))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // everything in it is forgotten
	}
	if err != nil {
		return nil, fmt.Errorf("runner: read ends: %w", err)
	}
	defer f.Close()
	var ends []End
	var bad error
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, proc.MaxSmallFile)
	for lines.Scan() {
		if bad != nil {
			return ends, bad // a broken line that was not the last
		}
		e := End{Segment: s}
		if err := e.parse(lines.Bytes()); err != nil {
			bad = fmt.Errorf("runner: read ends of %s: line %d: %w", d.Journal(s), len(ends)+1, err)
			continue
		}
		ends = append(ends, e)
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return ends, fmt.Errorf("runner: read ends: %w", err)
	}
	return ends, nil
}

func (e *End) parse(line []byte) error {
	if err := json.Unmarshal(line, &e.Record); err != nil {
		return err
	}
	if !e.Exit.State.Ended() {
		return fmt.Errorf("state %.40q is no end", e.Exit.State)
	}
	_, err := job.ParseAttempt(e.Attempt)
	return err
}

// FindEnd reads how an attempt exited. The error is os.ErrNotExist if the attempt has not ended, was forgotten, or
// died with its runner.
func (d Dir) FindEnd(a job.Attempt) (End, error) {
	ends, err := d.Ends()
	name := a.String()
	for _, e := range ends {
		if e.Attempt == name {
			return e, nil
		}
	}
	if err != nil {
		return End{}, err
	}
	return End{}, fmt.Errorf("runner: end of %s: %w", a, os.ErrNotExist)
}

// MainProcess is a line of Dir.MainProcesses: the main process of an attempt.
type MainProcess struct {
	Attempt string `json:"attempt"`
	PID     int    `json:"pid"`
	Ticks   uint64 `json:"ticks"` // its start, in ticks since boot
}
