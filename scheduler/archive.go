package scheduler

// What is kept of jobs that ended. One that no record can change any more is
// archived as soon as its row is on disk and enough others have ended since: it
// leaves the core, but for a card that lists it and has it forgotten in its turn.

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
	"unique"

	"github.com/tidwall/btree"

	"github.com/musterhq/muster/job"
)

// card is a job's place in listings: the newest first, then by id. Of an
// archived job it is all that the core has. It holds no entry: a tree may keep
// copies of cards behind those that it shows.
type card struct {
	submitted int64  // ns since 1970
	number    uint64 // the drawn bits of its id

	// Of an archived job alone; state is zero for one that is whole.
	ended int64  // ns since 1970, 0 if it is not known
	key   uint64 // keySum; 0 for a job without a key
	user  unique.Handle[string]
	state unique.Handle[job.State]
}

func compareCards(a, b card) int {
	return cmp.Or(cmp.Compare(b.submitted, a.submitted), cmp.Compare(a.number, b.number))
}

// archive is the cards of all jobs, and what is asked of the archived ones.
type archive struct {
	whole  map[uint64]*entry // by number
	cards  *btree.BTreeG[card]
	places map[uint64]int64  // archived: number to submitted
	keys   map[uint64]uint64 // archived: keySum to number
	states map[job.State]int // archived jobs in each
}

// cardDegree makes the nodes of the tree of cards larger than 32 KiB, which the
// runtime keeps in pages of their own: small ones that live for days would each
// hold a page that is else garbage by the next collection.
const cardDegree = 512

func newArchive() archive {
	return archive{
		whole:  map[uint64]*entry{},
		cards:  btree.NewBTreeGOptions(func(a, b card) bool { return compareCards(a, b) < 0 }, btree.Options{NoLocks: true, Degree: cardDegree}),
		places: map[uint64]int64{}, keys: map[uint64]uint64{}, states: map[job.State]int{},
	}
}

// keySum stands for an idempotency key of a user. That two are equal happens
// once in 10^9 daemons with 100,000 keys each; then the second is refused.
func keySum(user, key string) uint64 {
	if key == "" {
		return 0
	}
	sum := sha256.Sum256([]byte(keyOf(user, key)))
	return max(1, binary.BigEndian.Uint64(sum[:]))
}

// final says that no record can change the job: it ended, and there is no
// attempt that was given up and may yet turn out to have succeeded.
func final(j *job.Job) bool {
	for i := range j.Tasks {
		s := j.Tasks[i].State
		if !s.Ended() || s == job.NodeFail && j.Cancelled == "" {
			return false
		}
	}
	return true
}

// cardOf is the card of a job that was archived.
func cardOf(j *job.Job, ended time.Time) card {
	x := card{
		submitted: j.Submitted.UnixNano(), number: j.ID.Drawn(), key: keySum(j.User, j.Key),
		user: unique.Make(j.User), state: unique.Make(j.State()),
	}
	if !ended.IsZero() {
		x.ended = ended.UnixNano()
	}
	return x
}

func (e *entry) card() card {
	return card{submitted: e.job.Submitted.UnixNano(), number: e.job.ID.Drawn()}
}

// put takes in an archived job, in place of its card as a whole one.
func (a *archive) put(x card) {
	a.cards.Set(x)
	a.places[x.number] = x.submitted
	a.states[x.state.Value()]++
	if x.key != 0 {
		a.keys[x.key] = x.number
	}
}

// add takes in a whole job.
func (a *archive) add(e *entry) {
	x := e.card()
	a.whole[x.number] = e
	a.cards.Set(x)
}

// entry is the job of a card; nil if it is archived.
func (a *archive) entry(x card) *entry {
	if x.state != (unique.Handle[job.State]{}) {
		return nil
	}
	return a.whole[x.number]
}

// find is the card of an archived job.
func (a *archive) find(number uint64) (card, bool) {
	at, there := a.places[number]
	if !there {
		return card{}, false
	}
	return a.cards.Get(card{submitted: at, number: number})
}

// drop forgets an archived job.
func (a *archive) drop(x card) {
	a.cards.Delete(x)
	delete(a.places, x.number)
	if a.states[x.state.Value()]--; a.states[x.state.Value()] == 0 {
		delete(a.states, x.state.Value())
	}
	if a.keys[x.key] == x.number {
		delete(a.keys, x.key)
	}
}

// archived is the card of a job that is archived here.
func (c *Core) archived(id job.ID) (card, bool) {
	x, there := c.archive.find(id.Drawn())
	return x, there && c.idOf(x) == id
}

func (c *Core) idOf(x card) job.ID { return job.NewID(c.cfg.Group, x.number) }

// retire archives the final jobs beyond those that are kept whole. One whose row
// is not on disk yet waits, and so do those after it.
func (c *Core) retire() {
	for len(c.final) > c.cfg.KeepWhole {
		e := c.final[0]
		if c.jobs[e.job.ID] == e {
			if e.changedAt > c.rows {
				return
			}
			c.archiveEntry(e)
		}
		c.final[0] = nil
		c.final = c.final[1:]
	}
}

func (c *Core) archiveEntry(e *entry) {
	c.forgetEntry(e)
	c.archive.put(cardOf(&e.job, c.endOf(e)))
}

// Listed is a job of a listing.
type Listed struct {
	ID        job.ID
	Submitted time.Time
	Job       *job.Job // as it looks now; nil if it is archived: its row tells
	// Ended is when an archived job ended, as well as this daemon can tell.
	Ended time.Time
}

func (c *Core) listed(x card) Listed {
	l := Listed{ID: c.idOf(x), Submitted: time.Unix(0, x.submitted)}
	if e := c.archive.entry(x); e != nil {
		j := c.view(e)
		l.Job = &j
	} else {
		l.Ended = time.Unix(0, x.ended)
	}
	return l
}

// Find is a job that is kept here, whole or archived.
func (c *Core) Find(id job.ID) (Listed, bool) {
	if e := c.jobs[id]; e != nil {
		return c.listed(e.card()), true
	}
	x, there := c.archived(id)
	if !there {
		return Listed{}, false
	}
	return c.listed(x), true
}

// whole is a listed job with all that its row tells: ErrNotFound if it was
// forgotten since it was listed.
func (l *Loop) whole(x Listed) (job.Job, error) {
	if x.Job != nil {
		return *x.Job, nil
	}
	j, there, err := l.needs.Journal.Row(x.ID)
	if err != nil {
		return job.Job{}, fmt.Errorf("scheduler: read job %s: %w", x.ID, err)
	}
	if !there {
		return job.Job{}, fmt.Errorf("%w: %s", ErrNotFound, x.ID)
	}
	j.Owner = l.self
	for i := range j.Tasks {
		if t := &j.Tasks[i]; t.Ended.IsZero() {
			t.Ended = x.Ended
		}
	}
	return j, nil
}
