// Package ledger keeps the state of a worker on disk: one record for each attempt that was assigned to this host, one row for
// each job file that records refer to, and the owners of journal groups. It writes them into the store of the daemon.
package ledger

// The worker's ledger: one record for each attempt that was assigned to this host.

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
)

const (
	attemptPrefix = "w/a/"
	epochPrefix   = "w/e/"
)

// Ledger is the worker's part of a store. A job file has one row, whatever the number of attempts with it. Load must be
// called before Save, and Save by one goroutine at a time.
type Ledger struct {
	store *store.Store
	files jobFiles
}

// New returns the ledger of a store.
func New(s *store.Store) *Ledger {
	return &Ledger{store: s, files: jobFiles{records: map[job.Digest]int{}, of: map[job.Attempt]job.Digest{}}}
}

func attemptKey(a job.Attempt) []byte { return []byte(attemptPrefix + a.String()) }
func epochKey(g job.Group) []byte     { return []byte(epochPrefix + g.String()) }

// Save writes records and claims and deletes the attempts in gone and the claims without an epoch, all together or not at all. With sync, this and
// all earlier saves survive a power cut once it returns; without, a crash may lose them. While the disk is nearly
// full, it fails with ErrNoRoom if a record begins work (a new reservation or a new start).
func (l *Ledger) Save(put []contract.Record, gone []job.Attempt, claims []contract.Claim, sync bool) error {
	if err := l.admit(put); err != nil {
		return err
	}
	write := l.store.Write
	if sync {
		write = l.store.WriteSync
	}
	fs := l.files.changes(put, gone)
	err := write(func(b store.Batch) error { return errors.Join(fs.fill(b), fill(b, put, gone, claims)) })
	if err != nil {
		return fmt.Errorf("store: save %d records of the ledger: %w", len(put), err)
	}
	fs.done()
	return nil
}

func fill(b store.Batch, put []contract.Record, gone []job.Attempt, claims []contract.Claim) error {
	for i := range put {
		if err := b.SetMessage(attemptKey(put[i].Attempt), heldPB(&put[i])); err != nil {
			return err
		}
	}
	for _, a := range gone {
		if err := b.Delete(attemptKey(a)); err != nil {
			return err
		}
	}
	for _, c := range claims {
		var err error
		if c.Epoch == (contract.Epoch{}) {
			err = b.Delete(epochKey(c.Group))
		} else {
			err = b.SetMessage(epochKey(c.Group), &storepb.Claim{Generation: c.Epoch.Generation, Term: c.Epoch.Term, Owner: string(c.Owner)})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// admit refuses records that begin work while the disk is nearly full, and records of attempts that cannot exist.
func (l *Ledger) admit(put []contract.Record) error {
	for i := range put {
		if err := put[i].Attempt.Valid(); err != nil {
			return fmt.Errorf("store: save the ledger: %w", err)
		}
	}
	full := l.store.CheckSpace()
	if full == nil {
		return nil
	}
	for i := range put {
		begins, err := l.begins(&put[i])
		if err != nil {
			return err
		}
		if begins {
			return fmt.Errorf("attempt %s: %w", put[i].Attempt, full)
		}
	}
	return nil
}

// begins reports whether a record newly reserves or starts its attempt, compared with what is on disk.
func (l *Ledger) begins(r *contract.Record) (bool, error) {
	switch r.Phase {
	case contract.PhaseDone, contract.PhaseRefused:
		return false, nil
	case contract.PhaseReserved, contract.PhaseStarted:
	}
	v, err := l.store.Read(attemptKey(r.Attempt))
	if err != nil {
		return false, fmt.Errorf("store: read attempt %s: %w", r.Attempt, err)
	}
	if v == nil {
		return true, nil
	}
	var old storepb.Held
	if err := proto.Unmarshal(v, &old); err != nil {
		return false, fmt.Errorf("store: read attempt %s: %w", r.Attempt, err)
	}
	return contract.Phase(old.GetPhase()) == contract.PhaseReserved && r.Phase == contract.PhaseStarted, nil
}

// Load reads all records and claims.
func (l *Ledger) Load() (records []contract.Record, claims []contract.Claim, err error) {
	files, err := readFiles(l.store)
	if err != nil {
		return nil, nil, err
	}
	err1 := l.store.ReadPrefix([]byte(attemptPrefix), func(_, v []byte) error {
		r, err := decodeHeld(v, files)
		records = append(records, r)
		return err
	})
	err2 := l.store.ReadPrefix([]byte(epochPrefix), func(k, v []byte) error {
		g, err := job.ParseGroup(string(k[len(epochPrefix):]))
		if err != nil {
			return err
		}
		var m storepb.Claim
		if err := proto.Unmarshal(v, &m); err != nil {
			return err
		}
		claims = append(claims, contract.Claim{
			Group: g, Epoch: contract.Epoch{Generation: m.GetGeneration(), Term: m.GetTerm()}, Owner: job.Peer(m.GetOwner()),
		})
		return nil
	})
	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, fmt.Errorf("store: load the ledger: %w", err)
	}
	l.files.count(records, files)
	return records, claims, nil
}

func heldPB(r *contract.Record) *storepb.Held {
	n := r.Need
	m := &storepb.Held{
		Attempt: storepb.FromAttempt(r.Attempt), Group: uint64(r.Group), Epoch: storepb.FromEpoch(r.Epoch), Session: uint64(r.Session),
		Owner: string(r.Owner), Phase: string(r.Phase), Offer: r.Offer, User: r.User, Project: r.Project,
		Need: &storepb.Need{
			Cpus: int64(n.CPUs), Memory: int64(n.Memory), Gpus: int64(n.GPUs),
			GpuModel: n.GPUModel, GpuMemory: int64(n.GPUMemory), GpuShare: n.GPUShare, Exclusive: n.Exclusive,
		},
		Devices: r.Devices, Milli: int64(r.Milli), Lease: int64(r.Lease), Hold: r.Hold, Boot: r.Boot,
		Pid: int64(r.PID), Started: storepb.Nanos(r.Started), Exit: storepb.FromExit(r.Exit), EventN: r.EventN, AckedN: r.AckedN,
		Reason: r.Reason, Recorded: storepb.Nanos(r.Recorded), Preempted: r.Preempted, Isolation: r.Isolation,
		Array: r.Element.Array, Index: int64(r.Element.Index), Entry: r.Element.Entry, PreemptedBefore: r.Element.Preempted,
		Rank: int64(r.Element.Rank), Gang: gangPB(r.Gang),
	}
	if r.File != nil {
		sum := r.File.Digest()
		m.File = sum[:]
	}
	return m
}

// decodeHeld decodes a record. Its job file is one of files, or in the record itself if an older version wrote it.
func decodeHeld(b []byte, files map[job.Digest]*job.File) (contract.Record, error) {
	var m storepb.Held
	if err := proto.Unmarshal(b, &m); err != nil {
		return contract.Record{}, err
	}
	attempt, err := m.GetAttempt().Value()
	if err != nil {
		return contract.Record{}, err
	}
	file, err := fileOf(&m, files)
	if err != nil {
		return contract.Record{}, fmt.Errorf("job file of %s: %w", attempt, err)
	}
	n := m.GetNeed()
	return contract.Record{
		Attempt: attempt, Group: job.Group(m.GetGroup()), Epoch: m.GetEpoch().Value(), Session: contract.Session(m.GetSession()),
		Owner: job.Peer(m.GetOwner()), Phase: contract.Phase(m.GetPhase()), Offer: m.GetOffer(), User: m.GetUser(), Project: m.GetProject(),
		Need: job.Resources{
			CPUs: int(n.GetCpus()), Memory: job.Size(n.GetMemory()), GPUs: int(n.GetGpus()),
			GPUModel: n.GetGpuModel(), GPUMemory: job.Size(n.GetGpuMemory()), GPUShare: n.GetGpuShare(), Exclusive: n.GetExclusive(),
		},
		Devices: m.GetDevices(), Milli: int(m.GetMilli()), File: file, Lease: time.Duration(m.GetLease()), Hold: m.GetHold(),
		Boot: m.GetBoot(), PID: int(m.GetPid()), Started: storepb.Time(m.GetStarted()), Exit: m.GetExit().Value(),
		EventN: m.GetEventN(), AckedN: m.GetAckedN(), Reason: m.GetReason(), Recorded: storepb.Time(m.GetRecorded()), Preempted: m.GetPreempted(), Isolation: m.GetIsolation(),
		Element: contract.Element{Array: m.GetArray(), Index: int(m.GetIndex()), Entry: m.GetEntry(), Preempted: m.GetPreemptedBefore(), Rank: int(m.GetRank())},
		Gang:    gangOf(m.GetGang()),
	}, nil
}

func gangPB(g *contract.Gang) *storepb.Gang {
	if g == nil {
		return nil
	}
	m := &storepb.Gang{Port: int64(g.Port)}
	for _, x := range g.Members {
		m.Members = append(m.Members, &storepb.Member{Node: string(x.Node), Name: x.Name, Address: x.Address})
	}
	return m
}

func gangOf(m *storepb.Gang) *contract.Gang {
	if m == nil {
		return nil
	}
	g := &contract.Gang{Port: int(m.GetPort())}
	for _, x := range m.GetMembers() {
		g.Members = append(g.Members, contract.Member{Node: job.Peer(x.GetNode()), Name: x.GetName(), Address: x.GetAddress()})
	}
	return g
}
