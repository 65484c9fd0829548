package worker

// The ledger: the changes that must be written to it, and those that are being written.

import (
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/admission"
	"github.com/musterhq/muster/worker/leaseclock"
)

// ledger holds the changes that are not on disk.
type ledger struct {
	dirty  []*attempt               // records to write
	gone   map[job.Attempt]struct{} // records to delete
	claims []*group                 // groups whose claim has to be written
	batch  batch
	failed error               // of the last save; nil if it succeeded
	retry  leaseclock.BootTime // no save before this time, if the last one failed
}

// batch is what is being written between Step and Saved.
type batch struct {
	attempts []*attempt
	gone     []job.Attempt
	groups   []*group
	open     bool
}

// put marks the record of an attempt to be written.
func (l *ledger) put(a *attempt) {
	delete(l.gone, a.rec.Attempt)
	if !a.dirty {
		a.dirty = true
		l.dirty = append(l.dirty, a)
	}
}

// drop marks the record of an attempt to be deleted, if there may be one on disk.
func (l *ledger) drop(a *attempt) {
	a.dirty = false
	if a.saved {
		l.gone[a.rec.Attempt] = struct{}{}
	}
}

// claim marks the owner and the epoch of a group to be written.
func (l *ledger) claim(g *group) {
	if !g.unsaved {
		g.unsaved = true
		l.claims = append(l.claims, g)
	}
}

// changed returns the attempts whose records must be written.
func (l *ledger) changed() []*attempt {
	l.dirty = slices.DeleteFunc(l.dirty, func(a *attempt) bool { return !a.dirty })
	return l.dirty
}

// writes returns what must be written now, and makes it the batch. After a failed save it returns nothing until retry.
func (l *ledger) writes(now leaseclock.Moment) Writes {
	if l.failed != nil && now.Boot < l.retry || len(l.dirty)+len(l.gone)+len(l.claims) == 0 {
		return Writes{}
	}
	w := Writes{Sync: len(l.claims) > 0}
	for _, a := range l.dirty {
		w.Put = append(w.Put, a.rec)
		w.Sync = w.Sync || a.lasting()
	}
	l.batch = batch{attempts: l.dirty, groups: l.claims, open: true}
	l.dirty, l.claims = nil, nil
	for _, g := range l.batch.groups {
		w.Claims = append(w.Claims, g.claim())
	}
	for a := range l.gone {
		l.batch.gone = append(l.batch.gone, a)
	}
	slices.SortFunc(l.batch.gone, admission.CompareAttempts)
	w.Gone = l.batch.gone
	return w
}

// saved records the result of a save and returns the batch. After an error the batch may be on disk or not. The claims
// and deletions are then written again; the caller decides about the records.
func (l *ledger) saved(now leaseclock.Moment, err error) batch {
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
		l.claims = b.groups
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
