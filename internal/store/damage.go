package store

// Damage of the database's files. Pebble reads a log up to the first record that is not whole, because a power cut leaves
// such a record at the end. A byte that has changed in the middle would hide all records after it. So the logs are checked
// before the database is opened.
//
// See docs/adr, ADR 163.

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// ErrDamaged says that a file of the database has changed since it was written, and that no power cut did it. Restore the
// data directory from a backup, or move the database away.
var ErrDamaged = errors.New("the database is damaged")

// checkLogs returns ErrDamaged if a log of the database in dir has changed since it was written. What a power cut leaves
// is no damage: a log whose end is missing or was written in part.
func checkLogs(fs vfs.FS, dir string) error {
	about, err := pebble.Peek(dir, fs)
	if err != nil || !about.Exists {
		return err
	}
	if err := checkLog(fs, about.ManifestFilename, manifestFormat); err != nil {
		return err
	}
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if number, _, ok := wal.ParseLogFilename(name); ok && isLog(name) {
			for _, format := range logFormats(uint32(number)) { //nolint:gosec // chunks hold the lower half
				if err := checkLog(fs, filepath.Join(dir, name), format); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// checkLog reads one log.
func checkLog(fs vfs.FS, path string, format chunkFormat) error {
	f, err := fs.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return fmt.Errorf("check the database's log: %w", err)
	}
	defer f.Close()
	s, block := scan{format: format, broken: -1}, make([]byte, blockBytes)
	for at := int64(0); ; at += blockBytes {
		n, err := io.ReadFull(f, block)
		if s.block(block[:n], at) {
			return fmt.Errorf("%w: %s has changed at byte %d after it was written, so jobs that were accepted later would be missing; "+
				"restore the data directory from a backup, or move %s away to start without its jobs", ErrDamaged, path, s.broken, filepath.Dir(path))
		}
		switch {
		case s.closed, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return fmt.Errorf("check the database's log: %w", err)
		}
	}
}

// scan is a pass over the chunks of one log.
type scan struct {
	format chunkFormat
	broken int64 // offset of the first chunk that is not whole; -1: none so far
	closed bool  // the log was closed: nothing after this belongs to it
}

// block checks a block that begins at an offset. It reports whether the log is certainly damaged: a chunk that is not whole was
// once on disk.
func (s *scan) block(b []byte, at int64) bool {
	for p := 0; p+s.format.header <= len(b); {
		n := s.format.parse(b[p:])
		switch {
		case n > 0 && s.broken >= 0 && s.format.proves(b[p:], s.broken):
			return true
		case n > 0:
			p += n
			continue
		case s.broken >= 0: // the next chunk may begin anywhere
		case s.format.end(b[p:]):
			s.closed = true
			return false
		default:
			if s.broken = at + int64(p); s.format.oneByteOff(b[p:]) {
				return true
			}
		}
		p++
	}
	return false
}

// damaged adds ErrDamaged to an error by which Pebble says that a file is corrupt.
func damaged(err error) error {
	if pebble.IsCorruptionError(err) && !errors.Is(err, ErrDamaged) {
		text, _, _ := strings.Cut(err.Error(), "\n") // details for developers follow
		return fmt.Errorf("%w: %s", ErrDamaged, text)
	}
	return err
}
