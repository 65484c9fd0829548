package jobs

// The index of all jobs, whole and archived ones, in the order of listings.

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"time"
	"unique"

	"github.com/tidwall/btree"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/store/storepb"
)

// Entry is a job's place in listings: the newest first, then by id. It points to no job:
// a tree may keep copies of entries behind those that it shows.
type Entry struct {
	submitted int64  // ns since 1970
	number    uint64 // the drawn bits of its id

	// Of an archived job alone; state is zero for one that is whole.
	ended int64  // ns since 1970, 0 if it is not known
	key   uint64 // keySum; 0 for a job without a key
	user  unique.Handle[string]
	state unique.Handle[job.State]
}

// Number is the drawn bits of the job's id.
func (e Entry) Number() uint64 { return e.number }

// Submitted is when the job was submitted.
func (e Entry) Submitted() time.Time { return time.Unix(0, e.submitted) }

// Archived says whether the rest of the job is on disk alone.
func (e Entry) Archived() bool { return e.state != (unique.Handle[job.State]{}) }

// User is who submitted an archived job.
func (e Entry) User() string { return e.user.Value() }

// State is how an archived job ended.
func (e Entry) State() job.State { return e.state.Value() }

// Ended is when an archived job ended; zero if it is not known.
func (e Entry) Ended() time.Time { return storepb.Time(e.ended) }

// Compare orders entries as listings do.
func (e Entry) Compare(f Entry) int {
	return cmp.Or(cmp.Compare(f.submitted, e.submitted), cmp.Compare(e.number, f.number))
}

// At is the place in listings of a job of this submission and id.
func At(submitted time.Time, number uint64) Entry {
	return Entry{submitted: submitted.UnixNano(), number: number}
}

// entryOf is the entry of a whole job.
func entryOf(j *Job) Entry { return At(j.Submitted, j.ID.Drawn()) }

// ArchivedEntry is the entry of a job that is archived. ended is when it ended, as well as
// the caller can tell; zero if it is not known.
func ArchivedEntry(j *Job, ended time.Time) Entry {
	e := entryOf(j)
	e.key, e.user, e.state, e.ended = keySum(j.User, j.Key), unique.Make(j.User), unique.Make(j.State()), storepb.Nanos(ended)
	return e
}

// keyOf joins user and idempotency key: a key is its user's own.
func keyOf(user, key string) string { return user + "\x00" + key }

// keySum stands for an idempotency key of a user. That two are equal happens once in 10^9
// daemons with 100,000 keys each; then the second is refused.
func keySum(user, key string) uint64 {
	if key == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(keyOf(user, key)))
	return max(1, binary.BigEndian.Uint64(sum[:]))
}

// index is the entries of all jobs, and what is asked of the archived ones.
type index struct {
	entries *btree.BTreeG[Entry]
	places  map[uint64]int64  // archived: number to submitted
	keys    map[uint64]uint64 // archived: keySum to number
	states  map[job.State]int // archived jobs in each
}

// indexDegree makes the nodes of the tree larger than 32 KiB, which the runtime keeps in
// pages of their own: small ones that live for days would each hold a page that is
// otherwise garbage by the next collection.
const indexDegree = 512

func newIndex() index {
	return index{
		entries: btree.NewBTreeGOptions(func(a, b Entry) bool { return a.Compare(b) < 0 }, btree.Options{NoLocks: true, Degree: indexDegree}),
		places:  map[uint64]int64{}, keys: map[uint64]uint64{}, states: map[job.State]int{},
	}
}

func (x *index) add(j *Job) { x.entries.Set(entryOf(j)) }

// put takes in an archived job, in place of its entry as a whole one.
func (x *index) put(e Entry) {
	x.entries.Set(e)
	x.places[e.number] = e.submitted
	x.states[e.State()]++
	if e.key != 0 {
		x.keys[e.key] = e.number
	}
}

// find is the entry of an archived job.
func (x *index) find(number uint64) (Entry, bool) {
	at, there := x.places[number]
	if !there {
		return Entry{}, false
	}
	return x.entries.Get(Entry{submitted: at, number: number})
}

// drop forgets an archived job.
func (x *index) drop(e Entry) {
	x.entries.Delete(e)
	delete(x.places, e.number)
	if x.states[e.State()]--; x.states[e.State()] == 0 {
		delete(x.states, e.State())
	}
	if x.keys[e.key] == e.number {
		delete(x.keys, e.key)
	}
}
