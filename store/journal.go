package store

// The journal: one Raft group, owned by one goroutine.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/musterhq/muster/job"
)

// ErrNotOwner says that another daemon answers for the group now. Ask it.
var ErrNotOwner = errors.New("another daemon answers for the group")

// Transport carries Raft's messages to the other voters of a group.
type Transport interface {
	// Send takes a message for the voter m.To and returns at once; what is lost
	// Raft sends again.
	Send(m *raftpb.Message)
}

// JournalConfig bounds the log of a journal.
type JournalConfig struct {
	// MaxLogBytes and MaxLogEntries: a log beyond either is cut up to what was
	// saved. A longer log spares later voters the rows, a shorter one disk.
	MaxLogBytes   int64
	MaxLogEntries int64
	// Transport reaches the other voters; a group of one needs none.
	Transport Transport
}

// DefaultJournalConfig keeps 64 MiB or 100,000 entries.
func DefaultJournalConfig() JournalConfig {
	return JournalConfig{MaxLogBytes: 64 << 20, MaxLogEntries: 100_000}
}

// Validate says what is wrong with the configuration.
func (c JournalConfig) Validate() error {
	if c.MaxLogBytes < 1 || c.MaxLogEntries < 1 {
		return fmt.Errorf("store: a log of %d bytes and %d entries: want at least 1", c.MaxLogBytes, c.MaxLogEntries)
	}
	return nil
}

const (
	// MaxRecords bounds the records of one entry, so that an entry is applied in
	// one go.
	MaxRecords = 64
	// maxEntryBytes is the size beyond which an entry takes no further record.
	maxEntryBytes = 1 << 20
	// maxReadyBytes bounds what is delivered between two looks at the queue, and
	// the memory of a replay.
	maxReadyBytes = 4 << 20

	// The times of a group with several voters; a lone voter has no clock.
	tickEvery      = 500 * time.Millisecond
	heartbeatTicks = 1
	electionTicks  = 6
	// maxInflight bounds the messages under way to one voter.
	maxInflight = 64
)

// Journal is the log of one group. Propose, ReadIndex, Save and Step may be
// called from any goroutine.
type Journal struct {
	store   *Store
	group   job.Group
	keys    groupKeys
	deliver func(job.Committed)
	out     Transport
	words   *slog.Logger
	queue   *queue
	parcels sync.Pool     // of *parcel
	saved   atomic.Uint64 // index that the rows on disk reflect
	// delivered is the index of the newest entry that was.
	delivered atomic.Uint64

	// Of the goroutine of Run alone.
	log     *raftLog
	node    *raft.RawNode
	id      uint64
	spare   parcel
	led     uint64 // term of this daemon whose first entry is delivered (R10), or 0
	asking  map[uint64][]readDone
	round   uint64 // number of the newest read round
	answers []answer
}

// answer is a round of reads that is answered once index is delivered.
type answer struct {
	index uint64
	reads []readDone
}

// Journal opens the journal of a group, and founds the group with this store as
// its only voter if it is new. Committed entries go to deliver, in order, from
// the goroutine of Run: no other is committed until it returns.
func (s *Store) Journal(cfg JournalConfig, group job.Group, deliver func(job.Committed), log *slog.Logger) (*Journal, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	j := &Journal{
		store: s, group: group, keys: keysOf(group), deliver: deliver, out: cfg.Transport, words: log, queue: newQueue(),
		id: s.voter(), asking: map[uint64][]readDone{},
	}
	j.parcels.New = func() any { return new(parcel) }
	j.log = &raftLog{store: s, keys: j.keys, maxEntries: cfg.MaxLogEntries, maxBytes: cfg.MaxLogBytes}
	known, err := j.log.exists()
	if err == nil && !known {
		err = j.log.found([]uint64{j.id})
	}
	var applied uint64
	if err == nil {
		applied, err = j.log.load()
	}
	if err != nil {
		return nil, fmt.Errorf("store: open the journal of group %s: %w", group, err)
	}
	j.saved.Store(applied)
	j.delivered.Store(applied)
	return j, nil
}

// Propose queues records to be committed, and returns at once. Records of one
// call are written together or not at all, and lie in one entry unless they are
// more than fit; each comes back through deliver when it is committed. An error
// says that none was queued: ErrFull, ErrTooLarge, ErrClosed, or ErrNoRoom if a
// Submit or an Assign is among them.
func (j *Journal) Propose(records ...job.Record) error {
	if slices.ContainsFunc(records, job.BeginsWork) {
		if err := j.store.Room(); err != nil {
			return err
		}
	}
	p, _ := j.parcels.Get().(*parcel)
	defer j.parcels.Put(p)
	p.reset()
	for i := range records {
		var err error
		if p.buf, err = appendRecord(p.buf, records[i]); err != nil {
			return fmt.Errorf("store: propose: %w", err)
		}
		p.ends = append(p.ends, len(p.buf))
	}
	if err := j.queue.put(p); err != nil {
		return fmt.Errorf("store: propose: %w", err)
	}
	return nil
}

// ReadIndex asks whether this daemon still answers for the group, by a quorum
// round that begins after the call. done gets the epoch, once all that was
// committed before the call is delivered and this daemon's own term has begun;
// or an error. It is called from the goroutine of Run, or at once if the
// question cannot be queued.
func (j *Journal) ReadIndex(done func(job.Epoch, error)) {
	if err := j.queue.putRead(done); err != nil {
		done(job.Epoch{}, fmt.Errorf("store: read index: %w", err))
		return
	}
	j.queue.ring()
}

// Ping returns nil once the goroutine of Run has come by, whether or not the
// group has a leader; or why that was not seen before ctx ended.
func (j *Journal) Ping(ctx context.Context) error {
	seen := make(chan struct{})
	if err := j.queue.putPing(seen); err != nil {
		return fmt.Errorf("store: ping: %w", err)
	}
	j.queue.ring()
	select {
	case <-seen:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("store: ping: %w", context.Cause(ctx))
	}
}

// Step takes a message of another voter.
func (j *Journal) Step(m *raftpb.Message) error {
	if err := j.queue.putMessage(m); err != nil {
		return fmt.Errorf("store: message of voter %x: %w", m.GetFrom(), err)
	}
	j.queue.ring()
	return nil
}

// Run replays what came after the last saved rows, and then commits until ctx
// ends. An error says that the journal cannot go on.
func (j *Journal) Run(ctx context.Context) error {
	defer j.end()
	if err := j.start(); err != nil {
		return fmt.Errorf("store: start the journal of group %s: %w", j.group, err)
	}
	var tick <-chan time.Time
	if !j.alone() {
		ticker := time.NewTicker(tickEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		if err := j.work(ctx); err != nil {
			return fmt.Errorf("store: journal of group %s: %w", j.group, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-j.queue.bell:
		case <-tick:
			j.node.Tick()
		}
	}
}

// alone says whether this store is the group's only voter.
func (j *Journal) alone() bool {
	return len(j.log.conf.GetVoters()) == 1 && j.log.conf.GetVoters()[0] == j.id
}

// start wakes Raft. A lone voter has nobody to wait for: it stands for election
// at once.
func (j *Journal) start() (err error) {
	j.node, err = raft.NewRawNode(&raft.Config{
		ID: j.id, Storage: j.log, Applied: j.delivered.Load(), Logger: raftWords{j.words},
		ElectionTick: electionTicks, HeartbeatTick: heartbeatTicks, PreVote: true, CheckQuorum: true,
		MaxSizePerMsg: maxEntryBytes, MaxCommittedSizePerReady: maxReadyBytes, MaxInflightMsgs: maxInflight,
		StepDownOnRemoval: true,
	})
	if err != nil || !j.alone() {
		return err
	}
	return j.node.Campaign()
}

// end answers whoever still waits.
func (j *Journal) end() {
	j.failReads(ErrClosed)
	refuse(j.queue.close(), ErrClosed)
}
