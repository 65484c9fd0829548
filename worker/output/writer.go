package output

// The writer, which alone changes the files of a log.

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

// Writer writes the log of one task. It is not safe for concurrent use. Bytes that cannot be written, for example on
// a full disk, are dropped and counted, and a line in the log says so once the disk has space: a task is never
// stopped because of its log. Make one with NewWriter.
type Writer struct {
	dir   string
	bound int64

	seg     segment // the newest segment, if data is open
	data    *os.File
	changes *os.File  // the segment's runs file; nil until the stream changes
	changed int64     // number of changes in the segment
	stream  Stream    // of the last byte
	total   int64     // bytes written, of both streams
	errs    int64     // how many of those were stderr
	tail    []segment // all segments but the first
	kept    string    // the last bytes of stderr that were cut from the disk
	keptTo  int64     // their end, as an offset in stderr

	lost  int64
	cause error // of the loss
}

// NewWriter writes a log of at most bound bytes to a directory that has none. It creates no file before the first
// byte.
func NewWriter(dir string, bound int64) *Writer {
	return &Writer{dir: dir, bound: max(bound, MinBound)}
}

// Write appends bytes to stdout or stderr.
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

// Empty reports whether nothing was written, and nothing lost.
func (w *Writer) Empty() bool { return w.total == 0 && w.lost == 0 }

// Note appends a line of muster's own to stderr.
func (w *Writer) Note(text string) { w.Write(Stderr, mark(text)) }

// mark formats a line that muster writes between those of a task.
func mark(text string) []byte { return []byte("\n--- muster: " + text + " ---\n") }

// noteLoss writes to the log how many bytes were lost, if the disk has space now.
func (w *Writer) noteLoss() {
	text := mark(fmt.Sprintf("%d bytes lost here: %v", w.lost, rootOf(w.cause)))
	if _, err := w.put(Stderr, text); err == nil {
		w.lost = 0
	}
}

// rootOf returns the kernel's error, without file names.
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

// prepare makes sure that the next byte of the segment is of stream s, and returns how many bytes fit into the
// segment.
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

// limit is the maximal size of the newest segment.
func (w *Writer) limit() int64 {
	if w.seg.start == 0 {
		return w.bound / headShare
	}
	return w.bound / tailShare
}

// roll begins a segment and removes the oldest one if there are too many.
func (w *Writer) roll(s Stream) error {
	for len(w.tail) >= tailSegments {
		w.drop()
	}
	g := segment{first: s, start: w.total, errs: w.errs}
	f, err := os.OpenFile(g.path(w.dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("output: begin segment: %w", err)
	}
	_ = w.shut() // errors of writes were handled
	w.seg, w.data, w.changed, w.stream = g, f, 0, s
	if g.start > 0 {
		w.tail = append(w.tail, g)
	}
	return nil
}

// drop removes the oldest segment except the first. It removes the data before the runs file, because a reader that
// finds data expects the runs file to be there.
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
	_ = os.Remove(old.path(w.dir)) // it is gone already, or its directory is
	_ = os.Remove(filepath.Join(w.dir, old.changes()))
}

// change records that the next byte is of the other stream.
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

// Tail returns the end of stderr: whole characters, at most job.TailBytes bytes, even if they were cut from the disk.
func (w *Writer) Tail() string {
	if w.errs == 0 {
		return ""
	}
	text := w.ending(w.errs)
	for w.errs > job.TailBytes && text != "" && !utf8.RuneStart(text[0]) {
		text = text[1:] // the rest of a character that was cut in two
	}
	return strings.ToValidUTF8(text, "?")
}

// ending returns those of the last job.TailBytes of stderr that are before the offset to.
func (w *Writer) ending(to int64) string {
	from := max(0, w.keptTo, w.errs-job.TailBytes)
	b, err := Rest(w.dir, Stderr, from)
	if err != nil {
		return w.kept
	}
	b = append([]byte(w.kept), b[:min(int64(len(b)), to-from)]...)
	return string(b[max(0, int64(len(b))-(job.TailBytes-(w.errs-to))):])
}

// Close ends the log. Lost bytes are noted if the disk has space by now.
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
