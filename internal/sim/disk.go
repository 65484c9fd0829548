package sim

// The ledger of a worker, in memory.

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
)

// disk is a worker's ledger: what is written survives the daemon, what is synced survives the host.
type disk struct {
	records map[job.Attempt]*contract.Record
	claims  map[job.Group]contract.Claim
	undo    []unsynced
}

// unsynced is the old value of a record whose new value is not synced.
type unsynced struct {
	attempt job.Attempt
	before  *contract.Record
}

func newDisk() *disk {
	return &disk{records: map[job.Attempt]*contract.Record{}, claims: map[job.Group]contract.Claim{}}
}

func (d *disk) write(wr *worker.Writes) {
	for i := range wr.Put {
		a := wr.Put[i].Attempt
		if !wr.Sync {
			d.undo = append(d.undo, unsynced{a, d.records[a]})
		}
		rec := wr.Put[i]
		d.records[a] = &rec
	}
	for _, a := range wr.Gone {
		if !wr.Sync {
			d.undo = append(d.undo, unsynced{a, d.records[a]})
		}
		delete(d.records, a)
	}
	for _, c := range wr.Claims {
		if d.claims[c.Group] = c; c.Epoch == (contract.Epoch{}) {
			delete(d.claims, c.Group)
		}
	}
	if wr.Sync {
		clear(d.undo)
		d.undo = d.undo[:0]
	}
}

// powerCut discards unsynced writes.
func (d *disk) powerCut() {
	for _, u := range slices.Backward(d.undo) {
		if u.before == nil {
			delete(d.records, u.attempt)
		} else {
			d.records[u.attempt] = u.before
		}
	}
	d.undo = nil
}

// restored returns what a restarting daemon reads.
func (d *disk) restored() ([]contract.Record, []contract.Claim) {
	records := make([]contract.Record, 0, len(d.records))
	for _, r := range d.records {
		rec := *r
		rec.Started, rec.Recorded = rec.Started.Round(0), rec.Recorded.Round(0)
		records = append(records, rec)
	}
	slices.SortFunc(records, func(a, b contract.Record) int { return compareAttempts(a.Attempt, b.Attempt) })
	claims := slices.SortedFunc(maps.Values(d.claims), func(a, b contract.Claim) int { return cmp.Compare(a.Group, b.Group) })
	return records, claims
}

var errDisk = errors.New("no space left on device")
