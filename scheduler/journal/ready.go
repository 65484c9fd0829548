package journal

// What the goroutine of Run does between two waits: it feeds Raft and carries out what Raft asks for.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/musterhq/muster/job"
)

var (
	errForeign  = errors.New("the log has an entry of a kind that this version does not know")
	errSnapshot = errors.New("another voter sent a snapshot, which this version does not support")
)

// work feeds Raft and carries out what it asks for, until neither has anything left. It looks at the queue only after
// all committed entries are delivered. So a proposal waits at most for the sync in progress and for its own.
func (j *Journal) work(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := j.feed(); err != nil {
			return err
		}
		if !j.node.HasReady() {
			return cut(j)
		}
		for j.node.HasReady() && ctx.Err() == nil {
			rd := j.node.Ready()
			if err := j.carryOut(&rd); err != nil {
				return err
			}
			j.node.Advance(rd)
			j.entries.forget(j.delivered.Load())
			j.answer()
		}
	}
	return nil
}

// feed hands messages, records and reads to Raft. Records and reads wait until this daemon's own term has begun (R10),
// and are refused if it does not lead.
func (j *Journal) feed() error {
	j.queue.answerPings()
	for _, m := range j.queue.takeMessages() {
		// An error means that the sender is no voter any more. It needs no answer.
		if err := j.node.Step(m); err != nil {
			j.log.Debug("raft message refused", "from", m.GetFrom(), "error", err)
		}
	}
	if err := raise(j, j.queue.takeRaise()); err != nil {
		return err
	}
	status := j.node.BasicStatus()
	leads := status.RaftState == raft.StateLeader
	if j.led != 0 && (!leads || status.GetTerm() != j.led) {
		if err := j.depose(); err != nil {
			return err
		}
	}
	switch {
	case j.led != 0:
		if err := j.proposeQueued(); err != nil {
			return err
		}
		j.readQueued()
	case !leads && !j.alone(): // a lone voter is about to lead
		refuse(j.queue.takeReads(), ErrNotOwner)
		j.queue.takeRecords(&j.spare)
		return j.giveBack(j.spare.buf, ErrNotOwner)
	}
	return nil
}

// raise makes a leader whose term is not beyond the given one step down, as a message of a higher term does. A lone
// voter then stands for election at once.
func raise(j *Journal, term uint64) error {
	status := j.node.BasicStatus()
	if status.RaftState != raft.StateLeader || term < status.GetTerm() {
		return nil
	}
	// A late vote for this daemon: it has no effect but that of its term. The next election is for the term after that.
	vote := &raftpb.Message{Type: new(raftpb.MsgVoteResp), From: new(j.id), To: new(j.id), Term: new(max(term, status.GetTerm()+1))}
	if err := j.node.Step(vote); err != nil {
		return fmt.Errorf("step down for an epoch beyond term %d: %w", term, err)
	}
	if !j.alone() {
		return nil // the voters elect somebody in time
	}
	if err := j.node.Campaign(); err != nil {
		return fmt.Errorf("lead with an epoch beyond term %d: %w", term, err)
	}
	return nil
}

// depose ends this daemon's ownership: it tells the owner, then answers all proposals and reads that wait.
func (j *Journal) depose() error {
	epoch := j.epoch(j.led)
	j.led = 0
	j.log.Info("journal lost leadership", "group", j.group.String(), "epoch", epoch.String())
	j.owner.Deposed(epoch)
	j.failReads(ErrNotOwner)
	own := j.own
	j.own = nil
	for _, p := range own {
		if err := j.giveBack(p.data, ErrUncertain); err != nil {
			return err
		}
	}
	return nil
}

// giveBack answers the proposer of encoded records, if there are any.
func (j *Journal) giveBack(data []byte, why error) error {
	if len(data) == 0 {
		return nil
	}
	_, records, err := decodeEntry(data)
	if err != nil {
		return fmt.Errorf("give back records: %w", err)
	}
	j.owner.NotProposed(records, why)
	return nil
}

// proposeQueued proposes the records that wait.
func (j *Journal) proposeQueued() error {
	j.queue.takeRecords(&j.spare)
	for from := 0; from < len(j.spare.ends); {
		data, next := j.pack(from)
		switch err := j.node.Propose(data); {
		case err == nil:
			j.own = append(j.own, proposal{data, j.spare.since})
		case errors.Is(err, raft.ErrProposalDropped):
			if err := j.giveBack(data, ErrDropped); err != nil {
				return err
			}
		default:
			return fmt.Errorf("propose %d records: %w", next-from, err)
		}
		from = next
	}
	return nil
}

// readQueued begins a quorum round for the reads that wait.
func (j *Journal) readQueued() {
	reads := j.queue.takeReads()
	if len(reads) == 0 {
		return
	}
	j.round++
	j.asking[j.round] = reads
	j.node.ReadIndex(binary.BigEndian.AppendUint64(nil, j.round))
}

// pack puts records of the spare batch into one entry, beginning with record number from. Next is the first record
// that does not fit. Data is a copy, because Raft keeps it.
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
	head := protowire.SizeTag(fieldGeneration) + protowire.SizeVarint(j.entries.generation)
	data = appendGeneration(make([]byte, 0, head+len(records)), j.entries.generation)
	return append(data, records...), next
}

// carryOut does what a Ready asks for, in the order that Raft requires: write, then send, then deliver.
func (j *Journal) carryOut(rd *raft.Ready) error {
	if !raft.IsEmptySnap(rd.Snapshot) {
		return errSnapshot
	}
	if err := j.entries.append(rd); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for _, m := range rd.Messages {
		if j.out == nil {
			return fmt.Errorf("a message for voter %x, but no transport", m.GetTo())
		}
		j.out.Send(m)
	}
	delivered := 0 // entries of j.own
	for _, e := range rd.CommittedEntries {
		if j.led != 0 && e.GetTerm() == j.led && len(e.GetData()) > 0 {
			if j.took != nil {
				j.took(time.Since(j.own[delivered].since))
			}
			delivered++
		}
		if err := j.apply(e); err != nil {
			return fmt.Errorf("entry %d: %w", e.GetIndex(), err)
		}
	}
	j.own = slices.Delete(j.own, 0, delivered)
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
	j.owner.Deliver(c)
	if c.Lead {
		j.queue.notify() // records and reads may have waited for it
		j.log.Info("journal leads", "group", j.group.String(), "epoch", c.Epoch.String(), "index", c.Index)
	}
	return nil
}

func (j *Journal) epoch(term uint64) job.Epoch {
	return job.Epoch{Generation: j.entries.generation, Term: term}
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

// cut deletes old entries if the log is beyond its bounds. It waits until at least half of the log can be deleted,
// because the rest has to be counted again.
func cut(j *Journal) error {
	saved := j.saved.Load()
	if !j.entries.large.Load() || saved <= j.entries.cut || saved-j.entries.cut < (j.entries.last-j.entries.cut)/2 {
		return nil
	}
	from := j.entries.cut
	if err := j.entries.cutTo(saved); err != nil {
		return fmt.Errorf("cut the log at %d: %w", saved, err)
	}
	j.log.Debug("journal log cut", "group", j.group.String(), "from", from+1, "to", saved)
	return nil
}
