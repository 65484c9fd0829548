package state

// The index of all jobs, archived or not, in the order of listings.

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"time"
	"unique"

	"github.com/tidwall/btree"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
)

// Entry is the index entry of a job. Entries are ordered as listings are: newest first, then by ID. An entry has no
// pointer to its job, because the tree may keep stale copies of entries, which would keep the job in memory.
type Entry struct {
	submitted int64  // ns since 1970
	number    uint64 // the random bits of the job's ID

	// Only set for an archived job; state is zero for a job that is not archived.
	ended int64  // ns since 1970, 0 if unknown
	key   uint64 // keySum; 0 for a job without a key
	user  unique.Handle[string]
	state unique.Handle[job.State]
}

// Number returns the random bits of the job's ID; see job.ID.Drawn.
func (e Entry) Number() uint64 { return e.number }

// Submitted returns when the job was submitted.
func (e Entry) Submitted() time.Time { return time.Unix(0, e.submitted) }

// Archived reports whether the job is archived: only this entry of it is in memory.
func (e Entry) Archived() bool { return e.state != (unique.Handle[job.State]{}) }

// User returns the user of an archived job.
func (e Entry) User() string { return e.user.Value() }

// State returns the final state of an archived job.
func (e Entry) State() job.State { return e.state.Value() }

// Ended returns when an archived job ended, or zero if that is unknown.
func (e Entry) Ended() time.Time { return storepb.Time(e.ended) }

// Compare returns a negative number if e is listed before f, and a positive one if e is listed after f.
func (e Entry) Compare(f Entry) int {
	return cmp.Or(cmp.Compare(f.submitted, e.submitted), cmp.Compare(e.number, f.number))
}

// At returns an entry that has the place in listings of a job with this time of submission and number.
func At(submitted time.Time, number uint64) Entry {
	return Entry{submitted: submitted.UnixNano(), number: number}
}

// entryOf returns the entry of a job that is not archived.
func entryOf(j *Job) Entry { return At(j.Submitted, j.ID.Drawn()) }

// ArchivedEntry returns the entry of an archived job. ended is when it ended; zero if the caller does not know.
func ArchivedEntry(j *Job, ended time.Time) Entry {
	e := entryOf(j)
	e.key, e.user, e.state, e.ended = keySum(j.User, j.Key), unique.Make(j.User), unique.Make(j.State()), storepb.Nanos(ended)
	return e
}

// keyOf joins user and idempotency key. Different users may use the same key.
func keyOf(user, key string) string { return user + "\x00" + key }

// keySum returns a hash of a user's idempotency key. Two keys have the same hash on one of 10^9 daemons with 100,000
// keys each. The second key is then refused.
func keySum(user, key string) uint64 {
	if key == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(keyOf(user, key)))
	return max(1, binary.BigEndian.Uint64(sum[:]))
}

// index holds the entries of all jobs, and maps for look-ups of archived jobs.
type index struct {
	entries   *btree.BTreeG[Entry]
	submitted map[uint64]int64  // of archived jobs, by number
	keys      map[uint64]uint64 // number of archived jobs, by keySum
	states    map[job.State]int // number of archived jobs in each state
}

// indexDegree makes the nodes of the tree larger than 32 KiB, so that the Go runtime allocates pages for each node
// alone. A smaller node shares its page with short-lived objects. As nodes live for days, such a page would not become
// free.
const indexDegree = 512

func newIndex() index {
	return index{
		entries:   btree.NewBTreeGOptions(func(a, b Entry) bool { return a.Compare(b) < 0 }, btree.Options{NoLocks: true, Degree: indexDegree}),
		submitted: map[uint64]int64{}, keys: map[uint64]uint64{}, states: map[job.State]int{},
	}
}

func (x *index) add(j *Job) { x.entries.Set(entryOf(j)) }

// put adds the entry of an archived job. It replaces the entry that the job had before.
func (x *index) put(e Entry) {
	x.entries.Set(e)
	x.submitted[e.number] = e.submitted
	x.states[e.State()]++
	if e.key != 0 {
		x.keys[e.key] = e.number
	}
}

// find returns the entry of an archived job.
func (x *index) find(number uint64) (Entry, bool) {
	at, there := x.submitted[number]
	if !there {
		return Entry{}, false
	}
	return x.entries.Get(Entry{submitted: at, number: number})
}

// drop removes the entry of an archived job.
func (x *index) drop(e Entry) {
	x.entries.Delete(e)
	delete(x.submitted, e.number)
	if x.states[e.State()]--; x.states[e.State()] == 0 {
		delete(x.states, e.State())
	}
	if x.keys[e.key] == e.number {
		delete(x.keys, e.key)
	}
}
