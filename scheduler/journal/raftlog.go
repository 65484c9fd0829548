package journal

// Raft's log and its state on disk.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/journal/journalpb"
)

// groupKeys makes the keys of one group. Its value is their prefix.
type groupKeys string

func keysOf(g job.Group) groupKeys { return groupKeys("r/" + g.String() + "/") }

func (k groupKeys) hard() []byte          { return []byte(k + "h") }
func (k groupKeys) voters() []byte        { return []byte(k + "c") }
func (k groupKeys) generation() []byte    { return []byte(k + "g") }
func (k groupKeys) bounds() []byte        { return []byte(k + "t") }
func (k groupKeys) entries() []byte       { return []byte(k + "l/") }
func (k groupKeys) entry(i uint64) []byte { return binary.BigEndian.AppendUint64(k.entries(), i) }

const (
	// A new log begins after an entry that does not exist. So Raft cannot bring a voter that joins later up to date
	// from the log alone; it needs the rows too.
	firstIndex, firstTerm = 1, 1
	// firstGeneration is the generation of a group's founder.
	firstGeneration = 1
)

var (
	errGap     = errors.New("entries are missing from the log")
	errMissing = errors.New("not found")
)

// raftLog is the log that Raft reads and the journal writes. All fields but large are used by the goroutine of Run
// alone.
type raftLog struct {
	store *store.Store
	keys  groupKeys

	hard       *raftpb.HardState // newest; the one on disk may have an older commit index
	conf       *raftpb.ConfState
	generation uint64
	cut        uint64 // index of the last entry before those kept
	cutTerm    uint64
	last       uint64 // index of the newest entry, or cut
	bytes      int64  // of the entries kept
	// tail holds the newest entries, among them all that are written but not delivered, so that a new entry need not be
	// read from disk.
	tail []*raftpb.Entry

	maxEntries, maxBytes int64
	large                atomic.Bool // the log is beyond its bounds
}

// foundGroup writes the initial state of a new group.
func foundGroup(disk *store.Store, g job.Group, voters []uint64) error {
	keys := keysOf(g)
	hard := &raftpb.HardState{Term: new(uint64(firstTerm)), Commit: new(uint64(firstIndex))}
	return disk.WriteSync(func(b store.Batch) error {
		return errors.Join(
			b.SetMessage(keys.hard(), hard),
			b.SetMessage(keys.voters(), &raftpb.ConfState{Voters: voters}),
			b.SetMessage(keys.bounds(), &journalpb.Bounds{Index: firstIndex, Term: firstTerm}),
			b.Set(keys.generation(), binary.BigEndian.AppendUint64(nil, firstGeneration)),
			disk.Rows(g).SetApplied(b, firstIndex),
		)
	})
}

// exists reports whether the store has the group.
func (l *raftLog) exists() (bool, error) {
	v, err := l.store.Read(l.keys.hard())
	return v != nil, err
}

// load reads everything but the entries themselves. The rows reflect the entries up to applied.
func (l *raftLog) load(applied uint64) (err error) {
	l.hard, l.conf = &raftpb.HardState{}, &raftpb.ConfState{}
	var bounds journalpb.Bounds
	l.generation, err = l.store.ReadNumber(l.keys.generation())
	err = errors.Join(err, l.read(l.keys.hard(), l.hard), l.read(l.keys.voters(), l.conf), l.read(l.keys.bounds(), &bounds))
	if err != nil {
		return err
	}
	l.cut, l.cutTerm = bounds.GetIndex(), bounds.GetTerm()
	if err := l.measure(); err != nil {
		return err
	}
	// Entries that the rows reflect were committed, even if a crash lost the commit index.
	if applied > l.hard.GetCommit() {
		l.hard.Commit = new(applied)
	}
	if applied < l.cut || l.hard.GetCommit() > l.last {
		return fmt.Errorf("%w: rows at %d, committed %d, entries %d to %d",
			errGap, applied, l.hard.GetCommit(), l.cut+1, l.last)
	}
	return nil
}

// measure counts the kept entries and their bytes. It returns errGap if one is missing.
func (l *raftLog) measure() error {
	prefix := l.keys.entries()
	l.last, l.bytes = l.cut, 0
	err := l.store.ReadPrefix(prefix, func(k, v []byte) error {
		if len(k) != len(prefix)+8 || binary.BigEndian.Uint64(k[len(prefix):]) != l.last+1 {
			return errGap
		}
		l.last++
		l.bytes += int64(len(v))
		return nil
	})
	l.checkSize()
	return err
}

// checkSize compares the log with its bounds.
func (l *raftLog) checkSize() {
	l.large.Store(l.bytes > l.maxBytes || int64(l.last-l.cut) > l.maxEntries)
}

// read reads a message. It returns errMissing if there is none.
func (l *raftLog) read(key []byte, into proto.Message) error {
	v, err := l.store.Read(key)
	if err == nil && v == nil {
		err = errMissing
	}
	if err == nil {
		err = proto.Unmarshal(v, into)
	}
	if err != nil {
		return fmt.Errorf("read %q: %w", key, err)
	}
	return nil
}

// append writes the entries and the state of a Ready, synced. A new commit index alone is not written until the next
// write.
func (l *raftLog) append(rd *raft.Ready) error {
	if !raft.IsEmptyHardState(rd.HardState) {
		l.hard = rd.HardState
	}
	if len(rd.Entries) == 0 && !rd.MustSync {
		return nil
	}
	bytes := l.bytes
	err := l.store.WriteSync(func(b store.Batch) error {
		if err := b.SetMessage(l.keys.hard(), l.hard); err != nil {
			return err
		}
		for _, e := range rd.Entries {
			if err := b.SetMessage(l.keys.entry(e.GetIndex()), e); err != nil {
				return err
			}
			bytes += int64(proto.Size(e))
		}
		if n := len(rd.Entries); n > 0 && rd.Entries[n-1].GetIndex() < l.last {
			// A new leader replaced entries that were never committed.
			return b.DeleteRange(l.keys.entry(rd.Entries[n-1].GetIndex()+1), l.keys.entry(l.last+1))
		}
		return nil
	})
	if err != nil || len(rd.Entries) == 0 {
		return err
	}
	first := rd.Entries[0].GetIndex()
	keep := slices.IndexFunc(l.tail, func(e *raftpb.Entry) bool { return e.GetIndex() >= first })
	if keep >= 0 {
		l.tail = l.tail[:keep]
	}
	l.tail = append(l.tail, rd.Entries...)
	l.bytes, l.last = bytes, rd.Entries[len(rd.Entries)-1].GetIndex()
	l.checkSize()
	return nil
}

// forget drops delivered entries from memory. The newest entry stays, because Raft asks for its term.
func (l *raftLog) forget(delivered uint64) {
	n := 0
	for n < len(l.tail)-1 && l.tail[n].GetIndex() <= delivered {
		n++
	}
	l.tail = slices.Delete(l.tail, 0, n)
}

// cutTo deletes the entries up to an index that the rows on disk reflect. It is not synced: if a crash loses the write,
// the entries are still there.
func (l *raftLog) cutTo(index uint64) error {
	term, err := l.Term(index)
	if err != nil {
		return err
	}
	err = l.store.Write(func(b store.Batch) error {
		return errors.Join(
			b.DeleteRange(l.keys.entry(l.cut+1), l.keys.entry(index+1)),
			b.SetMessage(l.keys.bounds(), &journalpb.Bounds{Index: index, Term: term}),
		)
	})
	if err != nil {
		return err
	}
	l.cut, l.cutTerm = index, term
	return l.measure()
}

// InitialState and the methods below implement raft.Storage.
func (l *raftLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return l.hard, l.conf, nil
}

// Entries returns the entries from lo to before hi: at least one, and no more than maxSize bytes if there are several.
func (l *raftLog) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	switch {
	case lo <= l.cut:
		return nil, raft.ErrCompacted
	case hi > l.last+1:
		return nil, raft.ErrUnavailable
	}
	var found []*raftpb.Entry
	var size uint64
	full := func(e *raftpb.Entry) bool {
		size += uint64(proto.Size(e))
		return len(found) > 0 && size > maxSize
	}
	if len(l.tail) > 0 && l.tail[0].GetIndex() <= lo {
		base := l.tail[0].GetIndex()
		for _, e := range l.tail[lo-base : hi-base] {
			if full(e) {
				break
			}
			found = append(found, e)
		}
		return found, nil
	}
	err := l.store.ReadRange(l.keys.entry(lo), l.keys.entry(hi), func(_, v []byte) error {
		e := &raftpb.Entry{}
		if err := proto.Unmarshal(v, e); err != nil {
			return err
		}
		if full(e) {
			return store.ErrStop
		}
		found = append(found, e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Term returns the term of a kept entry, or of the last entry before those.
func (l *raftLog) Term(i uint64) (uint64, error) {
	switch {
	case i == l.cut:
		return l.cutTerm, nil
	case i < l.cut:
		return 0, raft.ErrCompacted
	case i > l.last:
		return 0, raft.ErrUnavailable
	}
	if len(l.tail) > 0 && i >= l.tail[0].GetIndex() {
		return l.tail[i-l.tail[0].GetIndex()].GetTerm(), nil
	}
	e := &raftpb.Entry{}
	if err := l.read(l.keys.entry(i), e); err != nil {
		return 0, err
	}
	return e.GetTerm(), nil
}

// LastIndex returns the index of the newest entry.
func (l *raftLog) LastIndex() (uint64, error) { return l.last, nil }

// FirstIndex returns the index of the oldest kept entry.
func (l *raftLog) FirstIndex() (uint64, error) { return l.cut + 1, nil }

// Snapshot is called when a voter needs entries that were deleted. It returns an error, because rows are not sent
// through Raft.
func (l *raftLog) Snapshot() (*raftpb.Snapshot, error) {
	return nil, raft.ErrSnapshotTemporarilyUnavailable
}
