package worker

// What has to be written into the ledger, and what is being written.

import (
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// ledger is what changed and is not on disk.
type ledger struct {
	dirty  []*attempt
	gone   map[job.Attempt]struct{}
	epochs []*group
	batch  batch
	failed error // of the last save; nil while the disk works
	retry  BootTime
}

// batch is what is being saved between Step and Saved.
type batch struct {
	attempts []*attempt
	gone     []job.Attempt
	groups   []*group
	open     bool
}

// put has the record of an attempt written.
func (l *ledger) put(a *attempt) {
	delete(l.gone, a.rec.Attempt)
	if !a.dirty {
		a.dirty = true
		l.dirty = append(l.dirty, a)
	}
}

// drop has the record of an attempt erased, if there is one.
func (l *ledger) drop(a *attempt) {
	a.dirty = false
	if a.saved {
		l.gone[a.rec.Attempt] = struct{}{}
	}
}

// epoch has the newer epoch of a group written.
func (l *ledger) epoch(g *group) {
	if !g.unsaved {
		g.unsaved = true
		l.epochs = append(l.epochs, g)
	}
}

// changed returns the attempts whose records have to be written.
func (l *ledger) changed() []*attempt {
	l.dirty = slices.DeleteFunc(l.dirty, func(a *attempt) bool { return !a.dirty })
	return l.dirty
}

// writes returns what has to be written now; nothing while a failing disk is left alone. What it returns is the batch.
func (l *ledger) writes(now Moment) Writes {
	if l.failed != nil && now.Boot < l.retry || len(l.dirty)+len(l.gone)+len(l.epochs) == 0 {
		return Writes{}
	}
	w := Writes{Sync: len(l.epochs) > 0}
	for _, a := range l.dirty {
		w.Put = append(w.Put, a.rec)
		w.Sync = w.Sync || a.lasting()
	}
	l.batch = batch{attempts: l.dirty, groups: l.epochs, open: true}
	l.dirty, l.epochs = nil, nil
	for _, g := range l.batch.groups {
		w.Epochs = append(w.Epochs, lease.GroupEpoch{Group: g.id, Epoch: g.epoch})
	}
	for a := range l.gone {
		l.batch.gone = append(l.batch.gone, a)
	}
	slices.SortFunc(l.batch.gone, compareAttempts)
	w.Gone = l.batch.gone
	return w
}

// saved takes the outcome of the write, and returns the batch. After an error its epochs have to be written again, and
// its records may be on disk for all we know.
func (l *ledger) saved(now Moment, err error) batch {
	b := l.batch
	l.batch = batch{}
	if !b.open {
		return b
	}
	for _, a := range b.attempts {
		a.dirty, a.saved = false, true
	}
	if l.failed = err; err != nil {
		l.retry = now.Boot.Add(retrySave)
		l.epochs = b.groups
		return b
	}
	for _, g := range b.groups {
		g.unsaved = false
	}
	for _, a := range b.gone {
		delete(l.gone, a)
	}
	return b
}
