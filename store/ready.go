package store

// What the journal's goroutine does between two waits.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/musterhq/muster/job"
)

var (
	errForeign  = errors.New("the log holds an entry that this version does not know")
	errSnapshot = errors.New("another voter sent rows, which this version does not take")
)

// work feeds Raft with what waits and carries out what it wants, until neither
// has anything. What waits is fed only after all that is committed has been
// delivered, so that nobody waits for a sync that began after his own.
func (j *Journal) work(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := j.feed(); err != nil {
			return err
		}
		if !j.node.HasReady() {
			return j.cut()
		}
		for j.node.HasReady() && ctx.Err() == nil {
			rd := j.node.Ready()
			if err := j.carryOut(&rd); err != nil {
				return err
			}
			j.node.Advance(rd)
			j.log.forget(j.delivered.Load())
			j.answer()
		}
	}
	return nil
}

// feed hands messages, records and reads to Raft.
func (j *Journal) feed() error {
	j.queue.answerPings()
	for _, m := range j.queue.takeMessages() {
		// An error is a message of a voter that left: not ours to answer.
		if err := j.node.Step(m); err != nil {
			j.words.Debug("raft message refused", "from", m.GetFrom(), "error", err)
		}
	}
	if j.led == 0 { // records and reads wait for the own term (R10)
		if lead := j.node.BasicStatus().Lead; lead != raft.None && lead != j.id {
			refuse(j.queue.takeReads(), ErrNotOwner)
		}
		return nil
	}
	j.queue.takeRecords(&j.spare)
	for from := 0; from < len(j.spare.ends); {
		data, next := j.pack(from)
		if err := j.node.Propose(data); err != nil {
			return fmt.Errorf("propose %d records: %w", next-from, err)
		}
		from = next
	}
	if reads := j.queue.takeReads(); len(reads) > 0 {
		j.round++
		j.asking[j.round] = reads
		j.node.ReadIndex(binary.BigEndian.AppendUint64(nil, j.round))
	}
	return nil
}

// pack puts the records that wait, beginning with number from, in one entry.
// Raft keeps the entry, so it has memory of its own.
func (j *Journal) pack(from int) (data []byte, next int) {
	begin := 0
	if from > 0 {
		begin = j.spare.ends[from-1]
	}
	next = from + 1
	for next < len(j.spare.ends) && next-from < MaxRecords && j.spare.ends[next]-begin <= maxEntryBytes {
		next++
	}
	records := j.spare.buf[begin:j.spare.ends[next-1]]
	head := protowire.SizeTag(fieldGeneration) + protowire.SizeVarint(j.log.generation)
	data = appendGeneration(make([]byte, 0, head+len(records)), j.log.generation)
	return append(data, records...), next
}

// carryOut does what a Ready wants, in the order that Raft asks for: write,
// then send, then deliver.
func (j *Journal) carryOut(rd *raft.Ready) error {
	if !raft.IsEmptySnap(rd.Snapshot) {
		return errSnapshot
	}
	if rd.SoftState != nil && rd.RaftState != raft.StateLeader {
		j.led = 0
		j.failReads(ErrNotOwner)
	}
	if err := j.log.append(rd); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for _, m := range rd.Messages {
		if j.out == nil {
			return fmt.Errorf("a message for voter %x and nobody to carry it", m.GetTo())
		}
		j.out.Send(m)
	}
	for _, e := range rd.CommittedEntries {
		if err := j.apply(e); err != nil {
			return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
		}
	}
	for _, r := range rd.ReadStates {
		round := binary.BigEndian.Uint64(r.RequestCtx)
		j.answers = append(j.answers, answer{index: r.Index, reads: j.asking[round]})
		delete(j.asking, round)
	}
	return nil
}

// apply delivers an entry.
func (j *Journal) apply(e *raftpb.Entry) error {
	if e.GetType() != raftpb.EntryNormal {
		return fmt.Errorf("%w: %s", errForeign, e.GetType())
	}
	c := job.Committed{Index: e.GetIndex(), Epoch: j.epoch(e.GetTerm())}
	if len(e.GetData()) == 0 {
		status := j.node.BasicStatus()
		c.Lead = j.led != e.GetTerm() && status.RaftState == raft.StateLeader && status.GetTerm() == e.GetTerm()
		if c.Lead {
			j.led = e.GetTerm()
		}
	} else {
		var err error
		if c.Epoch.Generation, c.Records, err = decodeEntry(e.GetData()); err != nil {
			return err
		}
	}
	j.delivered.Store(e.GetIndex())
	j.deliver(c)
	if c.Lead {
		j.queue.ring() // for what waited for it
		j.words.Info("journal leads", "group", j.group.String(), "epoch", c.Epoch.String(), "index", c.Index)
	}
	return nil
}

func (j *Journal) epoch(term uint64) job.Epoch {
	return job.Epoch{Generation: j.log.generation, Term: term}
}

// answer calls back the reads whose index is delivered.
func (j *Journal) answer() {
	n := 0
	for ; n < len(j.answers) && j.answers[n].index <= j.delivered.Load(); n++ {
		epoch := j.epoch(j.node.BasicStatus().GetTerm())
		for _, done := range j.answers[n].reads {
			done(epoch, nil)
		}
	}
	j.answers = append(j.answers[:0], j.answers[n:]...)
}

// failReads calls back all reads whose round has begun with an error.
func (j *Journal) failReads(err error) {
	for _, a := range j.answers {
		refuse(a.reads, err)
	}
	for _, reads := range j.asking {
		refuse(reads, err)
	}
	clear(j.asking)
	j.answers = nil
}

func refuse(reads []readDone, err error) {
	for _, done := range reads {
		done(job.Epoch{}, err)
	}
}

// cut shortens a log that is beyond its bounds, if that takes at least half of
// it: what is left has to be counted again.
func (j *Journal) cut() error {
	saved := j.saved.Load()
	if !j.log.large.Load() || saved <= j.log.cut || saved-j.log.cut < (j.log.last-j.log.cut)/2 {
		return nil
	}
	from := j.log.cut
	if err := j.log.cutTo(saved); err != nil {
		return fmt.Errorf("cut the log at %d: %w", saved, err)
	}
	j.words.Debug("journal log cut", "group", j.group.String(), "from", from+1, "to", saved)
	return nil
}
