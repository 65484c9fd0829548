package store

// Raft's log and its few states on Pebble.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/store/storepb"
)

// groupKeys makes the keys of one group.
type groupKeys struct{ raft, rows string }

func keysOf(g job.Group) groupKeys {
	return groupKeys{raft: "r/" + g.String() + "/", rows: "s/" + g.String() + "/j/"}
}

func (k groupKeys) hard() []byte          { return []byte(k.raft + "h") }
func (k groupKeys) voters() []byte        { return []byte(k.raft + "c") }
func (k groupKeys) generation() []byte    { return []byte(k.raft + "g") }
func (k groupKeys) bounds() []byte        { return []byte(k.raft + "t") }
func (k groupKeys) applied() []byte       { return []byte(k.raft + "a") }
func (k groupKeys) entries() []byte       { return []byte(k.raft + "l/") }
func (k groupKeys) entry(i uint64) []byte { return binary.BigEndian.AppendUint64(k.entries(), i) }
func (k groupKeys) job(id job.ID) []byte  { return []byte(k.rows + string(id)) }

const (
	// A new log begins after an entry that nobody ever wrote, so that a voter
	// that joins later, with nothing, is sent the rows and not only the log.
	firstIndex, firstTerm = 1, 1
	// firstGeneration is that of a group's founder.
	firstGeneration = 1
)

var errHole = errors.New("the log has a hole")

// raftLog is what Raft reads and the journal writes. All but large belongs to
// the journal's goroutine.
type raftLog struct {
	store *Store
	keys  groupKeys

	hard       *raftpb.HardState // newest; the disk may lack its commit index
	conf       *raftpb.ConfState
	generation uint64
	cut        uint64 // index of the last entry before those kept
	cutTerm    uint64
	last       uint64 // index of the newest entry, or cut
	bytes      int64  // of the entries kept
	// tail is the newest entries, all those that are written but not delivered
	// among them, so that what was just written need not be read.
	tail []*raftpb.Entry

	maxEntries, maxBytes int64
	large                atomic.Bool // the log is beyond its bounds
}

// found writes the beginning of a new group.
func (l *raftLog) found(voters []uint64) error {
	hard := &raftpb.HardState{Term: new(uint64(firstTerm)), Commit: new(uint64(firstIndex))}
	return l.store.write(pebble.Sync, func(b *pebble.Batch) error {
		return errors.Join(
			setMessage(b, l.keys.hard(), hard),
			setMessage(b, l.keys.voters(), &raftpb.ConfState{Voters: voters}),
			setMessage(b, l.keys.bounds(), &storepb.Bounds{Index: firstIndex, Term: firstTerm}),
			b.Set(l.keys.generation(), binary.BigEndian.AppendUint64(nil, firstGeneration), nil),
			b.Set(l.keys.applied(), binary.BigEndian.AppendUint64(nil, firstIndex), nil),
		)
	})
}

// exists says whether the group was founded.
func (l *raftLog) exists() (bool, error) {
	v, err := l.store.get(l.keys.hard())
	return v != nil, err
}

// load reads everything but the entries themselves, and returns the index that
// the rows reflect.
func (l *raftLog) load() (applied uint64, err error) {
	l.hard, l.conf = &raftpb.HardState{}, &raftpb.ConfState{}
	var bounds storepb.Bounds
	err = errors.Join(
		l.read(l.keys.hard(), l.hard), l.read(l.keys.voters(), l.conf), l.read(l.keys.bounds(), &bounds),
		l.readNumber(l.keys.generation(), &l.generation), l.readNumber(l.keys.applied(), &applied),
	)
	if err != nil {
		return 0, err
	}
	l.cut, l.cutTerm = bounds.GetIndex(), bounds.GetTerm()
	if err := l.measure(); err != nil {
		return 0, err
	}
	// What the rows reflect was committed, whether or not a crash took the index
	// that says so.
	if applied > l.hard.GetCommit() {
		l.hard.Commit = new(applied)
	}
	if applied < l.cut || l.hard.GetCommit() > l.last {
		return 0, fmt.Errorf("%w: rows at %d, committed %d, entries %d to %d",
			errHole, applied, l.hard.GetCommit(), l.cut+1, l.last)
	}
	return applied, nil
}

// measure counts the entries that are kept and sees that none is missing.
func (l *raftLog) measure() error {
	prefix := l.keys.entries()
	l.last, l.bytes = l.cut, 0
	err := l.store.scan(prefix, func(k, v []byte) error {
		if len(k) != len(prefix)+8 || binary.BigEndian.Uint64(k[len(prefix):]) != l.last+1 {
			return errHole
		}
		l.last++
		l.bytes += int64(len(v))
		return nil
	})
	l.weigh()
	return err
}

func (l *raftLog) weigh() {
	l.large.Store(l.bytes > l.maxBytes || int64(l.last-l.cut) > l.maxEntries)
}

func (l *raftLog) read(key []byte, into proto.Message) error {
	v, err := l.store.get(key)
	if err == nil && v == nil {
		err = pebble.ErrNotFound
	}
	if err == nil {
		err = proto.Unmarshal(v, into)
	}
	if err != nil {
		return fmt.Errorf("read %q: %w", key, err)
	}
	return nil
}

func (l *raftLog) readNumber(key []byte, into *uint64) error {
	v, err := l.store.get(key)
	if err == nil && len(v) != 8 {
		err = fmt.Errorf("%d bytes, want 8", len(v))
	}
	if err != nil {
		return fmt.Errorf("read %q: %w", key, err)
	}
	*into = binary.BigEndian.Uint64(v)
	return nil
}

// append writes what a Ready holds, and syncs it if it must last. A commit
// index alone is not written: it goes with the next write.
func (l *raftLog) append(rd *raft.Ready) error {
	if !raft.IsEmptyHardState(rd.HardState) {
		l.hard = rd.HardState
	}
	if len(rd.Entries) == 0 && !rd.MustSync {
		return nil
	}
	bytes := l.bytes
	err := l.store.write(pebble.Sync, func(b *pebble.Batch) error {
		if err := setMessage(b, l.keys.hard(), l.hard); err != nil {
			return err
		}
		for _, e := range rd.Entries {
			if err := setMessage(b, l.keys.entry(e.GetIndex()), e); err != nil {
				return err
			}
			bytes += int64(proto.Size(e))
		}
		if n := len(rd.Entries); n > 0 && rd.Entries[n-1].GetIndex() < l.last {
			// A new leader took back what was never committed.
			return b.DeleteRange(l.keys.entry(rd.Entries[n-1].GetIndex()+1), l.keys.entry(l.last+1), nil)
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
	l.weigh()
	return nil
}

// forget drops from memory what was delivered; the newest entry stays, for
// Raft asks for its term.
func (l *raftLog) forget(delivered uint64) {
	n := 0
	for n < len(l.tail)-1 && l.tail[n].GetIndex() <= delivered {
		n++
	}
	l.tail = slices.Delete(l.tail, 0, n)
}

// cutTo deletes the entries up to an index that was saved. It is not synced: a
// crash that takes it brings the entries back.
func (l *raftLog) cutTo(index uint64) error {
	term, err := l.Term(index)
	if err != nil {
		return err
	}
	err = l.store.write(pebble.NoSync, func(b *pebble.Batch) error {
		return errors.Join(
			b.DeleteRange(l.keys.entry(l.cut+1), l.keys.entry(index+1), nil),
			setMessage(b, l.keys.bounds(), &storepb.Bounds{Index: index, Term: term}),
		)
	})
	if err != nil {
		return err
	}
	l.cut, l.cutTerm = index, term
	return l.measure()
}

// InitialState, Entries, Term, LastIndex, FirstIndex and Snapshot are what Raft
// asks of its storage.
func (l *raftLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return l.hard, l.conf, nil
}

// Entries reads the entries from lo to before hi, at least one and otherwise at
// most maxSize bytes.
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
	err := l.store.scanRange(l.keys.entry(lo), l.keys.entry(hi), func(_, v []byte) error {
		e := &raftpb.Entry{}
		if err := proto.Unmarshal(v, e); err != nil {
			return err
		}
		if full(e) {
			return errEnough
		}
		found = append(found, e)
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return found, nil
}

// Term is the term of an entry that is kept, or of the last that is not.
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

// LastIndex is the index of the newest entry.
func (l *raftLog) LastIndex() (uint64, error) { return l.last, nil }

// FirstIndex is the index of the oldest entry that is kept.
func (l *raftLog) FirstIndex() (uint64, error) { return l.cut + 1, nil }

// Snapshot is asked for when a voter is behind what is kept. The rows are not
// sent through Raft.
func (l *raftLog) Snapshot() (*raftpb.Snapshot, error) {
	return nil, raft.ErrSnapshotTemporarilyUnavailable
}
