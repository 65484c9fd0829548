// Package output keeps what a task writes: its standard output and its standard
// error, in the order in which they came, bounded on disk. One [Writer] writes
// the log of a task; any number of [Reader]s, in any process, read it at the
// same time, without a lock between them. [Follows] has readers wait for more.
//
// # On disk
//
// The log is a row of segments in one directory, each the plain bytes of both
// streams as they came. A segment's name says where it stands: out-C-E or
// err-C-E, for the stream of its first byte, the bytes of both streams before
// it, and how many of those were of stderr. Where the stream changes within
// the segment, runs-C holds the place, counted as C is: 8 bytes, big-endian,
// written before the byte that it speaks of. No file is made for a task that
// writes nothing, and one for most of the others.
//
// # The bound
//
// The first segment, a quarter of the bound, stays for good. The others have
// an eighth each, of which the newest six stay; files of changes count. So a
// log never takes more than its bound, a byte keeps its offset for ever, and
// what was cut is what no segment's name leads to.
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

// Stream is one of the outputs of a task, or both of them in their order.
type Stream string

// The streams.
const (
	Both   Stream = "both"
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// Valid says whether s is a stream that can be read.
func (s Stream) Valid() bool { return s == Both || s == Stdout || s == Stderr }

// Other is stderr for stdout and stdout for stderr.
func (s Stream) Other() Stream {
	if s == Stdout {
		return Stderr
	}
	return Stdout
}

const (
	// MinBound is the least that a log may be bounded to: below, the names of
	// the segments would change faster than anyone reads.
	MinBound = 64 << 10
	// headShare and tailShare are the parts of the bound that the first segment
	// and each other one may take; tailSegments is how many others there are.
	headShare    = 4
	tailShare    = 8
	tailSegments = 6
	// changeBytes is the size of one change of stream in a file of changes.
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

// changes is the name of the segment's file of changes.
func (g segment) changes() string { return "runs-" + strconv.FormatInt(g.start, 10) }

// before is how many bytes of a stream are before the segment.
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

// parse reads a segment's name; false for any other file.
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

// list finds the segments of a log, the oldest first.
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

// Rest reads a log from an offset to its end and leaves out what was cut. It
// is for short rests: all of it is in memory.
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
