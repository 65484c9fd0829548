package output

// Writing a log: the only hand that changes its files.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/musterhq/muster/job"
)

// Writer writes the log of one task. It is for one goroutine at a time. What
// cannot be written, on a full disk say, is dropped and counted, and a line in
// the log says so once there is room: a task is not stopped for its log. The
// zero value is of no use; see NewWriter.
type Writer struct {
	dir   string
	bound int64

	seg     segment // the one that grows, if data is open
	data    *os.File
	changes *os.File // nil until the stream changes in it
	changed int64    // times, in it
	stream  Stream   // of its last byte
	total   int64    // bytes written, of both streams
	errs    int64    // of those, of stderr
	tail    []segment
	kept    string // end of stderr that was cut from the disk
	keptTo  int64  // where it ended, in bytes of stderr

	lost  int64
	cause error // of the loss
}

// NewWriter writes a log in a directory that has none. Nothing is created
// before there is something to keep.
func NewWriter(dir string, bound int64) *Writer {
	return &Writer{dir: dir, bound: max(bound, MinBound)}
}

// Write adds bytes to stdout or stderr.
func (w *Writer) Write(s Stream, p []byte) {
	if w.lost > 0 && len(p) > 0 {
		w.noteLoss()
	}
	if w.lost > 0 {
		w.lost += int64(len(p))
		return
	}
	if n, err := w.put(s, p); err != nil {
		w.lost, w.cause = int64(len(p)-n), err
	}
}

// Note adds a line of muster's own to the log, as stderr.
func (w *Writer) Note(text string) { w.Write(Stderr, mark(text)) }

// mark is a line that muster writes among those of a task.
func mark(text string) []byte { return []byte("\n--- muster: " + text + " ---\n") }

// noteLoss says in the log what was lost, if there is room for it now.
func (w *Writer) noteLoss() {
	text := mark(fmt.Sprintf("%d bytes lost here: %v", w.lost, rootOf(w.cause)))
	if _, err := w.put(Stderr, text); err == nil {
		w.lost = 0
	}
}

// rootOf is the kernel's word for an error, without names of files.
func rootOf(err error) error {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no
	}
	return err
}

func (w *Writer) put(s Stream, p []byte) (written int, err error) {
	for written < len(p) {
		room, err := w.prepare(s)
		if err != nil {
			return written, err
		}
		rest := p[written:]
		n, err := w.data.WriteAt(rest[:min(int64(len(rest)), room)], w.total-w.seg.start)
		written += n
		w.total += int64(n)
		if s == Stderr {
			w.errs += int64(n)
		}
		if err != nil {
			return written, fmt.Errorf("output: write: %w", err)
		}
	}
	return written, nil
}

// prepare sees to a segment whose next byte is of stream s, and says how many
// bytes it has room for.
func (w *Writer) prepare(s Stream) (int64, error) {
	used, limit := w.total-w.seg.start+w.changed*changeBytes, w.limit()
	need := int64(1)
	if s != w.stream {
		need += changeBytes
	}
	switch {
	case w.data == nil || used+need > limit:
		if err := w.roll(s); err != nil {
			return 0, err
		}
		return w.limit(), nil
	case s != w.stream:
		if err := w.change(); err != nil {
			return 0, err
		}
		used += changeBytes
	}
	return limit - used, nil
}

// limit is the size of the segment that grows.
func (w *Writer) limit() int64 {
	if w.seg.start == 0 {
		return w.bound / headShare
	}
	return w.bound / tailShare
}

// roll begins a segment, and drops the oldest that may go.
func (w *Writer) roll(s Stream) error {
	for len(w.tail) >= tailSegments {
		w.drop()
	}
	g := segment{first: s, start: w.total, errs: w.errs}
	f, err := os.OpenFile(g.path(w.dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("output: begin segment: %w", err)
	}
	_ = w.shut() // each write has told how it went
	w.seg, w.data, w.changed, w.stream = g, f, 0, s
	if g.start > 0 {
		w.tail = append(w.tail, g)
	}
	return nil
}

// drop removes the oldest segment but the first, its data before its changes:
// a reader that finds data takes it that the changes are there, too.
func (w *Writer) drop() {
	old := w.tail[0]
	after := w.errs
	if len(w.tail) > 1 {
		after = w.tail[1].errs
	}
	if after > old.errs && w.errs-after < job.TailBytes {
		w.kept, w.keptTo = w.ending(after), after
	}
	w.tail = w.tail[1:]
	_ = os.Remove(old.path(w.dir)) // gone, or a directory that is not ours any more
	_ = os.Remove(filepath.Join(w.dir, old.changes()))
}

// change notes that the next byte is of the other stream than the last.
func (w *Writer) change() error {
	if w.changes == nil {
		f, err := os.OpenFile(filepath.Join(w.dir, w.seg.changes()), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return fmt.Errorf("output: note change of stream: %w", err)
		}
		w.changes = f
	}
	var at [changeBytes]byte
	binary.BigEndian.PutUint64(at[:], uint64(w.total)) //nolint:gosec // never below 0
	if _, err := w.changes.WriteAt(at[:], w.changed*changeBytes); err != nil {
		return fmt.Errorf("output: note change of stream: %w", err)
	}
	w.changed++
	w.stream = w.stream.Other()
	return nil
}

// Tail is the end of stderr, whole letters of at most job.TailBytes, even if
// it is cut from the disk.
func (w *Writer) Tail() string {
	if w.errs == 0 {
		return ""
	}
	text := w.ending(w.errs)
	for w.errs > job.TailBytes && text != "" && !utf8.RuneStart(text[0]) {
		text = text[1:] // the rest of a letter that is cut in two
	}
	return strings.ToValidUTF8(text, "?")
}

// ending is what lies before an offset of the last job.TailBytes of stderr.
func (w *Writer) ending(to int64) string {
	from := max(0, w.keptTo, w.errs-job.TailBytes)
	b, err := Rest(w.dir, Stderr, from)
	if err != nil {
		return w.kept
	}
	b = append([]byte(w.kept), b[:min(int64(len(b)), to-from)]...)
	return string(b[max(0, int64(len(b))-(job.TailBytes-(w.errs-to))):])
}

// Close ends the log. What was lost is noted if there is room by now.
func (w *Writer) Close() error {
	if w.lost > 0 {
		w.noteLoss()
	}
	return w.shut()
}

// shut closes the files.
func (w *Writer) shut() error {
	err1, err2 := closed(w.data), closed(w.changes)
	w.data, w.changes = nil, nil
	return cmp.Or(err1, err2)
}

func closed(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}
