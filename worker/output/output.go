// Package output stores what a task writes: its standard output and standard error, in the order in which they were
// written, with a limit on disk. One [Writer] writes the log of a task. Any number of [Reader]s, in any process, read
// it at the same time, without locks. [Follows] lets readers wait for more.
//
// # On disk
//
// The log consists of segments in one directory. Each segment is a file with the bytes of both streams as they were
// written. It is named out-C-E or err-C-E: out or err is the stream of its first byte, C the number of bytes of both
// streams before the segment, and E how many of those were stderr. Where the stream changes within a segment, the
// file runs-C has an entry: the position of the change, counted as C is, in 8 bytes, big-endian. The entry is written
// before the byte at that position. A task that writes nothing has no files, and most others have one.
//
// # The limit
//
// The first segment, a quarter of the limit, is kept for good. The others have an eighth each, and the newest six of
// them are kept; runs files count towards the limit. So a log never exceeds its limit, and a byte keeps its offset
// for ever. The bytes that were cut are those that no segment has.
package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Stream is one of a task's output streams, or both in their order.
type Stream string

// The streams.
const (
	Both   Stream = "both"
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Valid reports whether s is a stream that can be read.
func (s Stream) Valid() bool { return s == Both || s == Stdout || s == Stderr }

// Other returns stderr for stdout and stdout for stderr.
func (s Stream) Other() Stream {
	if s == Stdout {
		return Stderr
	}
	return Stdout
}

const (
	// MinBound is the smallest limit of a log, in bytes. With a smaller one, segments would come and go faster than
	// anyone reads.
	MinBound = 64 << 10
	// headShare and tailShare set the size of the first segment and of each other one: 1/headShare and 1/tailShare of
	// the limit. tailSegments is the number of others.
	headShare    = 4
	tailShare    = 8
	tailSegments = 6
	// changeBytes is the size of one entry of a runs file.
	changeBytes = 8
)

// segment is a part of a log, as its name says.
type segment struct {
	first Stream // of its first byte
	start int64  // bytes of both streams before it
	errs  int64  // of those, bytes of stderr
}

func (g segment) name() string {
	prefix := "out-"
	if g.first == Stderr {
		prefix = "err-"
	}
	return prefix + strconv.FormatInt(g.start, 10) + "-" + strconv.FormatInt(g.errs, 10)
}

// changes is the name of the segment's runs file.
func (g segment) changes() string { return "runs-" + strconv.FormatInt(g.start, 10) }

// before returns how many bytes of a stream are before the segment.
func (g segment) before(s Stream) int64 {
	switch s {
	case Both:
		return g.start
	case Stdout:
		return g.start - g.errs
	case Stderr:
	}
	return g.errs
}

// parse reads a segment's name. It returns false for any other file.
func parse(name string) (segment, bool) {
	kind, rest, _ := strings.Cut(name, "-")
	start, errs, ok := strings.Cut(rest, "-")
	if !ok || (kind != "out" && kind != "err") {
		return segment{}, false
	}
	g := segment{first: Stdout}
	if kind == "err" {
		g.first = Stderr
	}
	var err1, err2 error
	g.start, err1 = strconv.ParseInt(start, 10, 64)
	g.errs, err2 = strconv.ParseInt(errs, 10, 64)
	return g, err1 == nil && err2 == nil && g.errs >= 0 && g.errs <= g.start
}

// list returns the segments of a log, oldest first.
func list(dir string) ([]segment, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("output: list: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("output: list: %w", err)
	}
	var all []segment
	for _, name := range names {
		if g, ok := parse(name); ok {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b segment) int { return int(min(1, max(-1, a.start-b.start))) })
	return all, nil
}

// Rest reads a log from an offset to its end, without the bytes that were cut. It holds all of them in memory.
func Rest(dir string, s Stream, offset int64) ([]byte, error) {
	r, err := Open(dir, s, offset)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var all []byte
	for {
		b, err := io.ReadAll(r)
		all = append(all, b...)
		if _, cut := errors.AsType[*CutError](err); !cut {
			return all, err
		}
	}
}

func (g segment) path(dir string) string { return filepath.Join(dir, g.name()) }
