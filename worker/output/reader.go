package output

// Reading a log while it grows and is cut.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"
)

const (
	maxOffset = math.MaxInt64
	unknown   = -1 // for the offset of the next change of stream
	// openTries bounds how often a segment that was listed may have been removed when it is opened.
	openTries = 100
)

// CutError says that bytes were removed to keep the log within its limit. The reader that returned it continues at
// To.
type CutError struct{ From, To int64 }

// Error says how much was cut.
func (c *CutError) Error() string { return fmt.Sprintf("output: %d bytes cut", c.To-c.From) }

// Reader reads one stream of a log, or both. It is not safe for concurrent use.
type Reader struct {
	dir    string
	stream Stream
	off    int64 // of the next byte in the stream
	ahead  int64 // bytes between the current position and off

	nothing bool // the log is empty and has no directory

	seg     segment
	data    *os.File // nil: there is no segment yet
	changes *os.File // the segment's runs file; nil: not opened yet
	changed int64    // number of changes that were passed
	pos     int64    // offset of the next byte in both streams together
	now     Stream   // stream of the byte at pos, unless pos is next
	next    int64    // offset of the next change, or unknown
}

// Open reads a log from an offset; a negative offset counts from the end. If the byte there was cut, reading begins
// at the next byte that exists (see Offset). If the offset is beyond the end, reading begins once the log is that
// long. A directory that does not exist gives os.ErrNotExist.
func Open(dir string, s Stream, offset int64) (*Reader, error) {
	if !s.Valid() {
		return nil, fmt.Errorf("output: open: no stream %.20q", s)
	}
	r := &Reader{dir: dir, stream: s}
	for range openTries {
		err := r.seek(offset)
		if err == nil {
			return r, nil
		}
		if errors.Is(err, fs.ErrNotExist) {
			if _, gone := os.Stat(dir); gone == nil {
				continue // a segment was cut just now
			}
		}
		r.Close()
		return nil, err
	}
	return nil, fmt.Errorf("output: open %s: the log is cut faster than it can be read", dir)
}

// Offset returns the offset of the next byte in the stream.
func (r *Reader) Offset() int64 { return r.off }

// Close closes the files.
func (r *Reader) Close() {
	_ = errors.Join(closed(r.data), closed(r.changes)) // they were only read
	r.data, r.changes = nil, nil
}

// Read returns bytes as they are on disk. At the present end of the log it returns io.EOF, and may be called again
// for later bytes. A *CutError, with no bytes, says that bytes are missing before those that the next Read returns.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := r.take(p)
		if n > 0 || err != nil {
			r.off += int64(n)
			return n, err
		}
		if err := r.advance(); err != nil {
			return 0, err
		}
	}
}

// take reads from the current segment. It returns 0 if the segment has no more.
func (r *Reader) take(p []byte) (int, error) {
	if r.data == nil {
		return 0, nil
	}
	if r.ahead > 0 {
		n, err := r.skip(0, r.ahead)
		if r.ahead -= n; r.ahead > 0 || err != nil {
			return 0, err
		}
	}
	if r.stream != Both {
		room, err := r.span()
		if err != nil || room == 0 {
			return 0, err
		}
		p = p[:min(int64(len(p)), room)]
	}
	n, err := r.data.ReadAt(p, r.pos-r.seg.start)
	r.pos += int64(n)
	if n > 0 || errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		return 0, fmt.Errorf("output: read: %w", err)
	}
	return n, nil
}

// advance opens the next segment, or returns io.EOF if there is none.
func (r *Reader) advance() error {
	if r.nothing {
		return io.EOF
	}
	for range openTries {
		segs, err := list(r.dir)
		if errors.Is(err, fs.ErrNotExist) && r.data == nil {
			return io.EOF // a later task has taken the directory, which had no segment
		}
		if err != nil {
			return err
		}
		next, ok := r.after(segs)
		if !ok {
			return io.EOF
		}
		if more, err := r.available(); err != nil || more {
			return err // it was written between the last read and the list
		}
		err = r.enter(next)
		if errors.Is(err, fs.ErrNotExist) {
			continue // cut just now
		}
		if err != nil {
			return err
		}
		from, to := r.off, next.before(r.stream)
		if to > from {
			r.off, r.ahead = to, 0
			return &CutError{From: from, To: to}
		}
		r.ahead = from - to
		return nil
	}
	return fmt.Errorf("output: read %s: the log is cut faster than it can be read", r.dir)
}

// after returns the segment that follows the current one.
func (r *Reader) after(segs []segment) (segment, bool) {
	for _, g := range segs {
		if r.data == nil || g.start > r.seg.start {
			return g, true
		}
	}
	return segment{}, false
}

// available reports whether the current segment has more.
func (r *Reader) available() (bool, error) {
	switch {
	case r.data == nil:
		return false, nil
	case r.stream != Both:
		n, err := r.span()
		return n > 0, err
	}
	size, err := r.size()
	return size > r.pos, err
}

// enter opens a segment at its start. After an error the reader is unchanged.
func (r *Reader) enter(g segment) error {
	f, err := os.Open(g.path(r.dir))
	if err != nil {
		return fmt.Errorf("output: open segment: %w", err)
	}
	r.Close()
	r.seg, r.data, r.pos, r.now, r.next, r.changed = g, f, g.start, g.first, unknown, 0
	return nil
}

// size returns the present end of the segment, as an offset in both streams together.
func (r *Reader) size() (int64, error) {
	info, err := r.data.Stat()
	if err != nil {
		return 0, fmt.Errorf("output: read: %w", err)
	}
	return r.seg.start + info.Size(), nil
}

// span moves to the next byte of the stream and returns how many bytes of the stream follow without a change. 0: the
// rest of the segment has none so far.
func (r *Reader) span() (int64, error) {
	for {
		end, err := r.run()
		if err != nil {
			return 0, err
		}
		if r.now == r.stream && end > r.pos {
			return end - r.pos, nil
		}
		if r.now != r.stream {
			r.pos = end
		}
		if r.pos != r.next {
			return 0, nil
		}
		r.cross()
	}
}

// run returns the end of the bytes of one stream that begin at pos. It reads the size before the changes, because the
// changes of all bytes below the size are on disk then.
func (r *Reader) run() (int64, error) {
	size, err := r.size()
	if err != nil {
		return 0, err
	}
	if r.next == unknown {
		if err := r.findChange(); err != nil {
			return 0, err
		}
	}
	if r.next == unknown {
		return size, nil
	}
	return min(r.next, max(size, r.pos)), nil
}

// cross passes a change of stream.
func (r *Reader) cross() {
	r.now, r.next = r.now.Other(), unknown
	r.changed++
}

// findChange reads the position of the next change of stream, if it is written yet.
func (r *Reader) findChange() error {
	if r.changes == nil {
		f, err := os.Open(filepath.Join(r.dir, r.seg.changes()))
		if errors.Is(err, fs.ErrNotExist) {
			return r.unlinked()
		}
		if err != nil {
			return fmt.Errorf("output: open changes: %w", err)
		}
		r.changes = f
	}
	var at [changeBytes]byte
	n, err := r.changes.ReadAt(at[:], r.changed*changeBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("output: read changes: %w", err)
	}
	if n == changeBytes {
		r.next = int64(binary.BigEndian.Uint64(at[:])) //nolint:gosec // the writer wrote it from an int64
	}
	return nil
}

// unlinked handles a segment without a runs file. Either the stream never changed in it, or it was cut before its
// changes were read, so that its streams cannot be told apart any more. In the second case the rest is left out, as
// if it had been cut a moment earlier.
func (r *Reader) unlinked() error {
	info, err := r.data.Stat()
	if err != nil {
		return fmt.Errorf("output: read: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Nlink == 0 {
		r.pos, r.now = r.seg.start+stat.Size, r.stream
	}
	return nil
}

// seek finds the segment and the position of an offset.
func (r *Reader) seek(offset int64) error {
	segs, err := list(r.dir)
	if err != nil {
		return err
	}
	if len(segs) == 0 {
		r.off = max(0, offset)
		return nil
	}
	if offset < 0 {
		if err := r.enter(segs[len(segs)-1]); err != nil {
			return err
		}
		end, err := r.skip(r.seg.before(r.stream), maxOffset)
		if err != nil {
			return err
		}
		offset = max(0, end+offset)
	}
	i := 0
	for j, g := range segs {
		if g.before(r.stream) <= offset {
			i = j
		}
	}
	if err := r.enter(segs[i]); err != nil {
		return err
	}
	at, err := r.skip(segs[i].before(r.stream), offset)
	if err == nil && at < offset && i+1 < len(segs) {
		err = r.enter(segs[i+1])
		at = segs[i+1].before(r.stream)
	}
	r.off = max(at, offset)
	r.ahead = r.off - at
	return err
}

// skip moves forward in the current segment, from the offset at of the stream to the offset to, or to the present end
// of the segment. It returns the offset reached.
func (r *Reader) skip(at, to int64) (int64, error) {
	for at < to {
		if r.stream == Both {
			size, err := r.size()
			n := min(to-at, size-r.pos)
			r.pos += n
			return at + n, err
		}
		n, err := r.span()
		if err != nil || n == 0 {
			return at, err
		}
		n = min(n, to-at)
		r.pos += n
		at += n
	}
	return at, nil
}
