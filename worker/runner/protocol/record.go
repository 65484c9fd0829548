package protocol

// The exit journal of a runner: how its tasks exited.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"regexp"
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

// ErrDamaged says that a file of the journal has changed since it was written.
var ErrDamaged = errors.New("the exits of tasks are damaged")

// hole is how many zero bytes in a row show that a part of the file was not written before a power cut.
const hole = 16

// readSegment reads one file. A last line without its end, and a line with a hole, are no error: the runner or the host died
// while the line was written, before anyone was told.
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
	lines.Split(wholeLines)
	for n := 1; lines.Scan(); n++ {
		line, whole := bytes.CutSuffix(lines.Bytes(), []byte{'\n'})
		e := End{Segment: s}
		err := e.parse(line)
		switch {
		case err == nil:
			ends = append(ends, e)
		case whole && !bytes.Contains(line, make([]byte, hole)), !whole && endsBadly(line):
			bad = errors.Join(bad, fmt.Errorf("runner: %w: line %d of %s: %w", ErrDamaged, n, d.Journal(s), err))
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) {
		return ends, fmt.Errorf("runner: read ends: %w", err)
	}
	return ends, bad
}

// endsBadly reports whether a line is whole but for its last byte, which should be its end.
func endsBadly(line []byte) bool {
	var e End
	return len(line) > 0 && sumField.Match(line[:len(line)-1]) && e.parse(line[:len(line)-1]) == nil
}

// wholeLines splits into lines with their ends, of which the last may have none.
func wholeLines(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return i + 1, data[:i+1], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

// sumField is how the checksum at the end of a line looks. Lines of earlier versions have none.
var sumField = regexp.MustCompile(`^(.*),"sum":"([0-9a-f]{8})"\}$`)

// Line returns the line of a record, with a checksum.
func (r *Record) Line() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return nil, err
	}
	text := bytes.TrimSuffix(b.Bytes(), []byte("}\n"))
	return fmt.Appendf(text, ",\"sum\":\"%08x\"}\n", crc32.ChecksumIEEE(text)), nil
}

func (e *End) parse(line []byte) error {
	if m := sumField.FindSubmatch(line); m != nil && string(m[2]) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(m[1])) {
		return errors.New("its checksum is another one")
	}
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
