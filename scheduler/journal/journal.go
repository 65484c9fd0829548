// Package journal is the log of one group of jobs, replicated with Raft. It commits the records that the group's owner
// proposes, and delivers every committed entry in the same order to each daemon that keeps a copy.
//
// # Ownership
//
// The leader of the Raft group owns the jobs. Its epoch is the group's generation and its Raft term. Ownership begins
// with the delivery of the first entry of the leader's own term (job.Committed.Lead, rule R10), and ends with Deposed.
// Both come in order with the other deliveries.
//
// # What becomes of a proposal
//
// Each record that Propose accepts has one of four ends:
//
//   - It is committed: Deliver gets it.
//   - It is refused with ErrNotOwner: another daemon leads. It is not committed, nor passed on to that daemon, because
//     a record depends on what its proposer knew, and only the leader's knowledge is up to date.
//   - Raft drops it with ErrDropped, for instance while leadership is handed over. It is not committed.
//   - This daemon stops leading before the record is committed: ErrUncertain. The new leader may still have the entry
//     and commit it; then Deliver gets it later, under the old epoch. Otherwise it is lost.
//
// If Run ends first, the record has no end: after a restart it is either delivered or lost.
//
// # Keys in the store
//
//	r/GROUP/h          Raft: term, vote, commit index
//	r/GROUP/c          Raft: the voters
//	r/GROUP/g          generation of the group's owner
//	r/GROUP/t          where the kept part of the log begins
//	r/GROUP/l/INDEX    entry of the log
//
// # What a crash leaves
//
//   - An entry is synced before it counts as committed, so before it is delivered. What was delivered once is delivered
//     again after any crash.
//   - Rows are written with the index that they reflect, in one batch, unsynced. If a crash loses that batch, the
//     entries after the older index are delivered again, so nothing is lost. If the batch survives, the entries up to
//     its index are not delivered again, so nothing is applied twice.
//   - The log is cut only up to an index that was saved. The cut comes after the rows in the write-ahead log of the
//     database. So a crash that keeps the cut keeps the rows.
//   - The commit index is written with the next write. If a crash loses it, the group commits the same entries again,
//     in the same order. Entries that the rows reflect are known to be committed.
//
// See docs/adr, ADR 67.
package journal

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

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/job"
)

var (
	// ErrNotOwner means that this daemon does not lead the group. Ask the daemon that does.
	ErrNotOwner = errors.New("another daemon owns the group")
	// ErrDropped means that Raft dropped the records. Propose them again after a pause.
	ErrDropped = errors.New("the journal could not take the records now")
	// ErrUncertain means that this daemon stopped leading before the records were committed. They may still be
	// committed, or be lost. Ask the new owner what became of them.
	ErrUncertain = errors.New("this daemon no longer owns the group, and its last records may be lost")
)

// Owner is the part of a daemon that acts on the journal of a group. Its methods are called from the goroutine of Run,
// in order, and must not wait for the journal.
type Owner interface {
	// Deliver hands over a committed entry. No other entry is committed until it returns.
	Deliver(c job.Committed)
	// NotProposed gives back records that Propose accepted, with ErrNotOwner, ErrDropped or ErrUncertain.
	NotProposed(records []job.Record, err error)
	// Deposed says that the ownership which began with the Lead entry of this epoch is over. Entries that are delivered
	// afterwards come from other epochs or were written before.
	Deposed(epoch job.Epoch)
}

// Transport carries Raft's messages to the other voters of a group.
type Transport interface {
	// Send takes a message for the voter m.To and returns at once. Raft sends lost messages again.
	Send(m *raftpb.Message)
}

// Config bounds the log of a journal.
type Config struct {
	// MaxLogBytes and MaxLogEntries: a log beyond either is cut up to the last saved index. A longer log lets voters
	// that fell behind catch up from it; a shorter one takes less disk.
	MaxLogBytes   int64
	MaxLogEntries int64
	// Transport reaches the other voters; nil for a group of one.
	Transport Transport
	// Took is called for each committed entry of this daemon, in the goroutine of Run. It gets the time from Propose
	// until the commit, for the oldest record of the entry. It may be nil.
	Took func(time.Duration)
}

// DefaultConfig keeps 64 MiB or 100,000 entries.
func DefaultConfig() Config {
	return Config{MaxLogBytes: 64 << 20, MaxLogEntries: 100_000}
}

// Validate returns an error if a bound is below 1.
func (c Config) Validate() error {
	if c.MaxLogBytes < 1 || c.MaxLogEntries < 1 {
		return fmt.Errorf("journal: a log of %d bytes and %d entries: want at least 1", c.MaxLogBytes, c.MaxLogEntries)
	}
	return nil
}

const (
	// MaxRecords bounds the records of one entry, and so how long the delivery of one entry takes.
	MaxRecords = 64
	// maxEntryBytes is the size beyond which no further record is added to an entry.
	maxEntryBytes = 1 << 20
	// maxReadyBytes bounds the entries that are delivered before the queue is read again, and the memory of a replay.
	maxReadyBytes = 4 << 20

	// The times of a group with several voters; a lone voter needs no clock.
	tickEvery      = 500 * time.Millisecond
	heartbeatTicks = 1
	electionTicks  = 6
	// maxTerm is the highest term for which Raise does anything, because others name that term. Elections and restarts
	// never get this far.
	maxTerm = 1 << 40
	// maxInflight bounds the unacknowledged messages to one voter.
	maxInflight = 64
)

// Journal is the log of one group. All methods but Run may be called from any goroutine.
type Journal struct {
	store   *store.Store
	rows    *store.Rows
	group   job.Group
	owner   Owner
	out     Transport
	log     *slog.Logger
	queue   *queue
	batches sync.Pool     // of *batch
	saved   atomic.Uint64 // index that the rows on disk reflect
	// delivered is the index of the newest delivered entry.
	delivered atomic.Uint64

	// Used by the goroutine of Run alone.
	entries *raftLog
	node    *raft.RawNode
	id      uint64
	spare   batch
	led     uint64     // term of this daemon whose first entry is delivered (R10), or 0
	own     []proposal // entries proposed in term led and not delivered, in order
	took    func(time.Duration)
	asking  map[uint64][]readDone
	round   uint64 // number of the newest read round
	answers []answer
}

// proposal is an entry of this daemon that is not delivered yet.
type proposal struct {
	data  []byte
	since time.Time // when the oldest of its records was proposed
}

// answer is a round of reads that is answered once index is delivered.
type answer struct {
	index uint64
	reads []readDone
}

// voterOf returns the number of this store as a voter of a Raft group. The top bit is clear and the lowest is set,
// because Raft reserves 0 and the highest numbers.
func voterOf(disk *store.Store) uint64 { return disk.Derive("voter", 0)>>1 | 1 }

// New opens the journal of a group. It founds the group, with this store as its only voter, if the store does not have
// it. Run starts it.
func New(cfg Config, disk *store.Store, group job.Group, owner Owner, log *slog.Logger) (*Journal, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	j := &Journal{
		store: disk, rows: disk.Rows(group), group: group, owner: owner, out: cfg.Transport, took: cfg.Took, log: log, queue: newQueue(),
		id: voterOf(disk), asking: map[uint64][]readDone{},
	}
	j.batches.New = func() any { return new(batch) }
	j.entries = &raftLog{store: disk, keys: keysOf(group), maxEntries: cfg.MaxLogEntries, maxBytes: cfg.MaxLogBytes}
	known, err := j.entries.exists()
	if err == nil && !known {
		err = foundGroup(disk, group, []uint64{j.id})
	}
	var applied uint64
	if err == nil {
		applied, err = j.rows.Applied()
	}
	if err == nil {
		err = j.entries.load(applied)
	}
	if err != nil {
		return nil, fmt.Errorf("journal: open group %s: %w", group, err)
	}
	j.saved.Store(applied)
	j.delivered.Store(applied)
	return j, nil
}

// Propose queues records to be committed and returns at once. The records of one call are written together or not at
// all. They are in one entry if they fit. The package comment says what becomes of them. After an error none was
// queued. The errors are store.ErrFull, store.ErrTooLarge, store.ErrClosed, and for a Submit or an Assign
// store.ErrNoRoom.
func (j *Journal) Propose(records ...job.Record) error {
	if slices.ContainsFunc(records, job.BeginsWork) {
		if err := j.store.CheckSpace(); err != nil {
			return err
		}
	}
	b, _ := j.batches.Get().(*batch)
	defer j.batches.Put(b)
	b.reset()
	for i := range records {
		var err error
		if b.buf, err = appendRecord(b.buf, records[i]); err != nil {
			return fmt.Errorf("journal: propose: %w", err)
		}
		b.ends = append(b.ends, len(b.buf))
	}
	if err := j.queue.put(b); err != nil {
		return fmt.Errorf("journal: propose: %w", err)
	}
	return nil
}

// ReadIndex asks whether this daemon still owns the group, by a quorum round that begins after the call. done gets the
// epoch once everything committed before the call is delivered and this daemon's own term has begun. Otherwise it gets
// ErrNotOwner, or store.ErrClosed when Run ends. done is called from the goroutine of Run, or at once with
// store.ErrFull or store.ErrClosed if the question cannot be queued.
func (j *Journal) ReadIndex(done func(job.Epoch, error)) {
	if err := j.queue.putRead(done); err != nil {
		done(job.Epoch{}, fmt.Errorf("journal: read index: %w", err))
		return
	}
	j.queue.notify()
}

// Raise makes this daemon, if it leads the group, give up its epoch and lead again with one beyond the given epoch. An
// owner needs this after a copy of it has led: the group's log knows nothing of the copy's epoch. Raise returns at once.
// It does nothing if the daemon's epoch is already beyond the given one, or if the given one is of another generation or
// out of bounds.
func (j *Journal) Raise(beyond job.Epoch) {
	if beyond.Generation == j.entries.generation && beyond.Term <= maxTerm {
		j.queue.putRaise(beyond.Term)
		j.queue.notify()
	}
}

// Ping returns nil once the goroutine of Run has answered, even if the group has no leader. It returns an error if ctx
// ends before that.
func (j *Journal) Ping(ctx context.Context) error {
	seen := make(chan struct{})
	if err := j.queue.putPing(seen); err != nil {
		return fmt.Errorf("journal: ping: %w", err)
	}
	j.queue.notify()
	select {
	case <-seen:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("journal: ping: %w", context.Cause(ctx))
	}
}

// Step takes a message of another voter. It returns store.ErrFull or store.ErrClosed if the message is dropped.
func (j *Journal) Step(m *raftpb.Message) error {
	if err := j.queue.putMessage(m); err != nil {
		return fmt.Errorf("journal: message of voter %x: %w", m.GetFrom(), err)
	}
	j.queue.notify()
	return nil
}

// Save writes rows as they are after the entry applied, and deletes all rows of the jobs in gone. It does not wait for
// the disk: after a crash the rows may be older, and Run then delivers the entries after them again. It refuses an
// index that was not delivered yet, or one older than the last saved.
func (j *Journal) Save(applied uint64, rows []job.Row, gone []job.ID) error {
	if saved, delivered := j.saved.Load(), j.delivered.Load(); applied < saved || applied > delivered {
		return fmt.Errorf("journal: save the rows of group %s: they are of entry %d, which is not from %d to %d",
			j.group, applied, saved, delivered)
	}
	if err := j.rows.Save(applied, rows, gone); err != nil {
		return fmt.Errorf("journal: save the rows of group %s at %d: %w", j.group, applied, err)
	}
	if j.saved.Swap(applied) < applied && j.entries.large.Load() {
		j.queue.notify() // the log can be cut
	}
	return nil
}

// Saved returns the index of the last entry that the saved rows reflect.
func Saved(j *Journal) uint64 { return j.saved.Load() }

// Load calls each with every saved row but job files; the rows of a job come together. each may call Save with the index
// Saved: this does not change which rows each gets. Load returns the index that the rows reflect. Run delivers the
// entries after that index. Call Load before Run.
func (j *Journal) Load(each func(job.Row) error) (applied uint64, err error) {
	if err := j.rows.Load(each); err != nil {
		return 0, fmt.Errorf("journal: load the rows of group %s: %w", j.group, err)
	}
	return j.saved.Load(), nil
}

// Rows returns the rows of one job as they were last saved, from part from to before part to. An empty to means the
// end.
func (j *Journal) Rows(id job.ID, from, to string) ([]job.Row, error) { return j.rows.Of(id, from, to) }

// File returns the job file of a job as it was last saved, or nil if it has no row of its own.
func (j *Journal) File(id job.ID) ([]byte, error) { return j.rows.File(id) }

// Run delivers the entries after the saved rows, and then commits until ctx ends. An error says that the journal cannot
// go on.
func (j *Journal) Run(ctx context.Context) error {
	defer j.end()
	if err := j.start(); err != nil {
		return fmt.Errorf("journal: start group %s: %w", j.group, err)
	}
	var tick <-chan time.Time
	if !j.alone() {
		ticker := time.NewTicker(tickEvery)
		defer ticker.Stop()
		tick = ticker.C
	}
	for {
		if err := j.work(ctx); err != nil {
			return fmt.Errorf("journal: group %s: %w", j.group, err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-j.queue.wake:
		case <-tick:
			j.node.Tick()
		}
	}
}

// alone reports whether this store is the group's only voter.
func (j *Journal) alone() bool {
	return len(j.entries.conf.GetVoters()) == 1 && j.entries.conf.GetVoters()[0] == j.id
}

// start makes the Raft node. A lone voter has nobody to wait for: it starts an election at once.
func (j *Journal) start() (err error) {
	j.node, err = raft.NewRawNode(&raft.Config{
		ID: j.id, Storage: j.entries, Applied: j.delivered.Load(), Logger: raftLogger{j.log},
		ElectionTick: electionTicks, HeartbeatTick: heartbeatTicks, PreVote: true, CheckQuorum: true,
		MaxSizePerMsg: maxEntryBytes, MaxCommittedSizePerReady: maxReadyBytes, MaxInflightMsgs: maxInflight,
		DisableProposalForwarding: true, StepDownOnRemoval: true,
	})
	if err != nil || !j.alone() {
		return err
	}
	return j.node.Campaign()
}

// end answers all reads that still wait.
func (j *Journal) end() {
	j.failReads(store.ErrClosed)
	refuse(j.queue.close(), store.ErrClosed)
}
