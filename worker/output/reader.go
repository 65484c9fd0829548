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
	unknown   = -1 // offset of the next change of stream
	// openTries bounds how often a segment that a name was read of may be gone
	// when it is opened.
	openTries = 100
)

// CutError says that bytes were removed to keep the log within its bound. The
// reader that gave it stands at To.
type CutError struct{ From, To int64 }

// Error says how much was cut.
func (c *CutError) Error() string { return fmt.Sprintf("output: %d bytes cut", c.To-c.From) }

// Reader reads one stream of a log, or both. It is for one goroutine.
type Reader struct {
	dir    string
	stream Stream
	off    int64 // of the next byte in the stream
	ahead  int64 // bytes before it that are still to come

	seg     segment
	data    *os.File // nil: there is no segment yet
	changes *os.File // nil: the stream has not changed in it yet
	changed int64    // changes read
	pos     int64    // of the next byte in both streams
	now     Stream   // of the byte at pos, unless pos is next
	next    int64    // where it changes, or unknown
}

// Open reads a log from an offset, which below 0 counts from the end. Where
// that is cut it begins with the next byte that there is, see Offset; beyond
// the end it waits for the log to come so far. A directory that does not exist gives os.ErrNotExist.
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
	return nil, fmt.Errorf("output: open %s: it is cut faster than it can be read", dir)
}

// Offset is that of the next byte, within the stream.
func (r *Reader) Offset() int64 { return r.off }

// Close gives the files back.
func (r *Reader) Close() {
	_ = errors.Join(closed(r.data), closed(r.changes)) // they were only read
	r.data, r.changes = nil, nil
}

// Read gives bytes as they are on disk. It ends with io.EOF at what is there
// now, and may be called again for what comes later. A *CutError, with no bytes,
// says that some are left out before those that the next Read gives.
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

// take reads from the segment at hand; nothing if all of it was read.
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

// advance moves on to the next segment. Without one it gives io.EOF.
func (r *Reader) advance() error {
	for range openTries {
		segs, err := list(r.dir)
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
	return fmt.Errorf("output: read %s: it is cut faster than it can be read", r.dir)
}

// after chooses the segment that follows the one at hand.
func (r *Reader) after(segs []segment) (segment, bool) {
	for _, g := range segs {
		if r.data == nil || g.start > r.seg.start {
			return g, true
		}
	}
	return segment{}, false
}

// available says whether the segment at hand has more.
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

// enter opens a segment and stands at its start; on an error the reader is as
// it was.
func (r *Reader) enter(g segment) error {
	f, err := os.Open(g.path(r.dir))
	if err != nil {
		return fmt.Errorf("output: open segment: %w", err)
	}
	r.Close()
	r.seg, r.data, r.pos, r.now, r.next, r.changed = g, f, g.start, g.first, unknown, 0
	return nil
}

// size is where the segment ends now, in bytes of both streams.
func (r *Reader) size() (int64, error) {
	info, err := r.data.Stat()
	if err != nil {
		return 0, fmt.Errorf("output: read: %w", err)
	}
	return r.seg.start + info.Size(), nil
}

// span goes forward to the next byte of the stream and says how many follow it
// in a row. None: the rest of the segment, as it is now, has none.
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

// run says how far the bytes of one stream go from where the reader stands. The
// size is read before the changes: those of all bytes below it are written.
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

// findChange reads where the stream changes next, if that is known yet.
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

// unlinked tells a segment in which the stream never changed from one that was
// cut before its changes were read, whose streams cannot be told apart any
// more. Its rest is left out, as if it had been cut a moment earlier.
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

// seek finds the segment and the place of an offset.
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

// skip goes forward in the segment at hand, from an offset in the stream until
// to, or to the segment's end as it is now. It gives the offset reached.
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
