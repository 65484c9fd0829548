package runner

// The exit journal: it has on disk how tasks exited before the daemon is told.

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/protocol"
)

// journal appends exits to the segments of one runner.
type journal struct {
	dir   protocol.Dir
	at    protocol.Segment
	room  *room
	file  *os.File // nil: the next save begins a segment
	size  int64
	bytes int64 // of the disk that the file has
	last  bool  // there is no room for a segment after this one, so only what is needed is saved
}

// openJournal continues after the segments that an earlier runner of the same generation has written.
func openJournal(dir protocol.Dir, generation int) (*journal, error) {
	j := &journal{dir: dir, at: protocol.Segment{Runner: generation}, room: openRoom(protocol.Room(dir, generation))}
	all, err := dir.Segments()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.Runner == generation {
			j.at.Number = max(j.at.Number, s.Number)
		}
	}
	return j, nil
}

// save appends the exits of a round, syncs them once, and sets each task's segment. After an error nothing of the
// round counts as written.
func (j *journal) save(round []*task) error {
	for _, t := range round {
		if t.out != nil {
			t.tail = t.out.Finish()
			t.silent, t.out = t.out.Silent(), nil
		}
	}
	err := j.append(round, true)
	if diskFull(err) && j.room.has() && j.next() == nil {
		err = j.append(round, true)
	}
	if diskFull(err) {
		err = j.append(round, false) // less is better than nothing
	}
	return err
}

// append writes a round to the newest segment. Without tails, and in the last segment, it leaves out the ends of the
// tasks' standard error, for which no room is held.
func (j *journal) append(round []*task, tails bool) error {
	if j.last {
		j.last = j.room.refill() != nil
	}
	if j.file == nil || j.size >= segmentBytes && j.room.has() || removed(j.file) {
		if err := j.next(); err != nil && j.file == nil {
			return err
		}
	}
	b, err := encode(round, tails && !j.last)
	if err != nil {
		return err
	}
	for _, t := range round {
		t.segment = j.at.Number
	}
	to := j.size + int64(len(b))
	if to > j.bytes {
		// Allocated first, so that a full disk leaves no half of a record.
		if err := allocate(j.file, to); err != nil {
			if !diskFull(err) {
				j.end()
			}
			return fmt.Errorf("runner: save ends to %s: %w", j.dir.Journal(j.at), err)
		}
	}
	if _, err = j.file.Write(b); err == nil {
		err = unix.Fdatasync(int(j.file.Fd()))
	}
	if err != nil {
		j.end() // what is on disk is not known
		return fmt.Errorf("runner: save ends to %s: %w", j.dir.Journal(j.at), err)
	}
	j.size, j.bytes = to, max(j.bytes, to)
	return nil
}

// encode returns the records of a round, one a line.
func encode(round []*task, tails bool) ([]byte, error) {
	var b []byte
	for _, t := range round {
		r := t.record
		switch {
		case !tails:
			r.Exit.Tail = ""
		case t.tail != "":
			r.Exit.Tail = t.tail
		}
		line, err := r.Line()
		if err != nil {
			return nil, fmt.Errorf("runner: encode end of %s: %w", t.name, err)
		}
		b = append(b, line...)
	}
	return b, nil
}

// prepare begins the first segment, with room, before there is anything to save.
func (j *journal) prepare() error {
	if err := j.room.refill(); err != nil {
		return err
	}
	return j.next()
}

// next begins a segment, with the room that is held, and holds room for the one after it. The segment's name is on disk
// before any exit in it counts.
func (j *journal) next() error {
	to := protocol.Segment{Runner: j.at.Runner, Number: j.at.Number + 1}
	f, bytes, err := j.room.take(j.dir.Journal(to))
	if err != nil {
		return fmt.Errorf("runner: begin a segment of ends: %w", err)
	}
	j.end()
	j.at, j.file, j.size, j.bytes = to, f, 0, bytes
	if err := syncDir(string(j.dir)); err != nil {
		j.end()
		return err
	}
	j.last = j.room.refill() != nil
	return nil
}

// end closes the newest segment, and gives back the room that is left in it. A segment without exits is removed.
func (j *journal) end() {
	if j.file == nil {
		return
	}
	if j.size == 0 {
		_ = os.Remove(j.dir.Journal(j.at)) // at worst it stays, empty
	} else {
		_ = j.file.Truncate(j.size) // the room only; all that counts is synced
	}
	_ = j.file.Close()
	j.file = nil
}

// removed reports whether an open file has no name any more.
func removed(f *os.File) bool {
	var is unix.Stat_t
	return unix.Fstat(int(f.Fd()), &is) == nil && is.Nlink == 0
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("runner: sync: %w", err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return fmt.Errorf("runner: sync %s: %w", path, err)
	}
	return nil
}
