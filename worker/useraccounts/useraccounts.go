// Package useraccounts knows which users of offers have an account on this host. It looks them up, and holds their offers meanwhile.
package useraccounts

// Residents: whether a user of an offer has an account on this host. The host looks this up at the first offer, because at
// the start of a task the attempt would be spent. The lookup may be slow, so it is an effect, and its answer an event.
// Unknown is not no: without an answer in time an offer is decided as if there were an account. The scheduler remembers a
// refusal by host and user, as it does refusals for quota, and one task asks again after 1, 2, 4 and then every 5 minutes.
// The profile has no list of the accounts: it would be long, other hosts need not know it, and directory services do not
// list theirs.

import (
	"container/list"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

const (
	// lookUpWait is how long offers wait for the answer of a lookup. Then they are decided as if the user had an account:
	// a missing answer is no reason to decline.
	lookUpWait = time.Second
	// presentFor and absentFor are how long an answer counts. unknownFor is the pause before another lookup if a lookup
	// has failed.
	presentFor = 5 * time.Minute
	absentFor  = 15 * time.Second
	unknownFor = 30 * time.Second
	// maxResidents bounds the users that are remembered. If a scheduler has too many, the user whose last offer is oldest
	// is dropped first.
	maxResidents = 4096
	// MaxLookUps bounds the lookups at a time, and maxHeld the offers that wait for them. Each scheduler has a portion of
	// them. Beyond it no user is looked up for that scheduler, and its offers are decided without an answer.
	MaxLookUps = 64
	maxHeld    = 1024
)

// Presence says whether a user has an account on this host.
type Presence int

// The answers of a lookup.
const (
	Unknown Presence = iota // it failed, or there was none yet
	Present
	Absent
)

// Accounts remembers who has an account, and holds the offers whose users are being looked up.
type Accounts struct {
	lookUp bool // users are looked up
	turn   *step.Turn

	of    map[string]*list.Element // by user; of *resident
	order *list.List               // the user of the newest offer last
	known *Portions                // users that are remembered
	open  *Portions                // lookups without an answer
	held  *Portions                // offers that wait
}

// resident is what is known of one user.
type resident struct {
	user  string
	by    job.Peer // the scheduler that named the user first
	is    Presence
	until leaseclock.BootTime // when it is to be looked up again
	asked bool                // a lookup has no answer yet
	asker job.Peer            // the scheduler for which it is made
	timer *step.Timer         // ends the wait of the offers
	held  []heldOffer
}

type heldOffer struct {
	from job.Peer
	msg  contract.Offer
}

// New returns what is known before the first lookup. With lookUp false every user counts as present.
func New(lookUp bool, t *step.Turn) *Accounts {
	return &Accounts{
		lookUp: lookUp, turn: t, of: map[string]*list.Element{}, order: list.New(),
		known: NewPortions(maxResidents), open: NewPortions(MaxLookUps), held: NewPortions(maxHeld),
	}
}

// Hold keeps an offer until its user was looked up, and then passes it to decide. It returns false if there is nothing to
// wait for; is says then whether the user has an account.
func (r *Accounts) Hold(now leaseclock.Moment, from job.Peer, m contract.Offer, decide func(now leaseclock.Moment, from job.Peer, m contract.Offer)) (is Presence, held bool) {
	if !r.lookUp {
		return Present, false
	}
	u := r.find(m.User)
	if u == nil || !u.asked && now.Boot >= u.until {
		if u = r.ask(now, from, m.User, decide); u == nil {
			return Unknown, false
		}
	}
	if u.timer == nil || !r.held.Fits(from) {
		return u.is, false
	}
	r.held.Add(from, 1)
	u.held = append(u.held, heldOffer{from, m})
	return Unknown, true
}

// Size returns how many users are remembered.
func (r *Accounts) Size() int { return len(r.of) }

// find returns what is remembered of a user, and makes the user the newest one; nil if nothing is remembered.
func (r *Accounts) find(user string) *resident {
	e := r.of[user]
	if e == nil {
		return nil
	}
	r.order.MoveToBack(e)
	return e.Value.(*resident) //nolint:forcetypeassert // the list holds nothing else
}

// remember adds a user whom a scheduler names. It returns nil if that scheduler may have no more users.
func (r *Accounts) remember(from job.Peer, user string) *resident {
	for e := r.order.Front(); e != nil && !r.known.Fits(from); {
		oldest := e
		e = e.Next()
		u := oldest.Value.(*resident) //nolint:forcetypeassert // the list holds nothing else
		if u.asked || u.by != from && r.known.of[from] > 0 {
			continue
		}
		r.order.Remove(oldest)
		delete(r.of, u.user)
		r.known.Add(u.by, -1)
	}
	if !r.known.Fits(from) {
		return nil
	}
	u := &resident{user: user, by: from}
	r.of[user] = r.order.PushBack(u)
	r.known.Add(from, 1)
	return u
}

// ask looks a user up for a scheduler. It returns nil if that scheduler has too many looked up already. Meanwhile the
// last answer counts only if the user had an account. Otherwise offers wait for the new answer.
func (r *Accounts) ask(now leaseclock.Moment, from job.Peer, user string, decide func(now leaseclock.Moment, from job.Peer, m contract.Offer)) *resident {
	if !r.open.Fits(from) {
		return nil
	}
	u := r.find(user)
	if u == nil {
		if u = r.remember(from, user); u == nil {
			return nil
		}
	}
	r.open.Add(from, 1)
	u.asked, u.asker = true, from
	r.turn.LookUp(step.UserLookup{User: user, For: from})
	if u.is != Present {
		u.is = Unknown
		u.timer = r.turn.Timers.Set(now.Boot.Add(lookUpWait), func(now leaseclock.Moment) { r.pass(now, u, decide) })
	}
	return u
}

// Answer handles the answer of a lookup. It reports whether the user has no account, which is false if the answer does
// not count.
func (r *Accounts) Answer(now leaseclock.Moment, user string, is Presence, decide func(now leaseclock.Moment, from job.Peer, m contract.Offer)) (absent bool) {
	e := r.of[user]
	if e == nil {
		return false
	}
	u := e.Value.(*resident) //nolint:forcetypeassert // the list holds nothing else
	if !u.asked {
		return false
	}
	u.asked, u.is = false, is
	r.open.Add(u.asker, -1)
	u.until = now.Boot.Add(map[Presence]time.Duration{Unknown: unknownFor, Present: presentFor, Absent: absentFor}[is])
	r.pass(now, u, decide)
	return u.is == Absent
}

// pass ends the wait of the offers of a user.
func (r *Accounts) pass(now leaseclock.Moment, u *resident, decide func(now leaseclock.Moment, from job.Peer, m contract.Offer)) {
	r.turn.Timers.Stop(u.timer)
	held := u.held
	u.timer, u.held = nil, nil
	for _, o := range held {
		r.held.Add(o.from, -1)
		decide(now, o.from, o.msg)
	}
}

// Drop forgets the offers of a scheduler that wait; if id is not 0, only that one.
func (r *Accounts) Drop(from job.Peer, id uint64) {
	if r.held.of[from] == 0 {
		return
	}
	for _, e := range r.of {
		u := e.Value.(*resident) //nolint:forcetypeassert // the list holds nothing else
		before := len(u.held)
		if before == 0 {
			continue
		}
		u.held = slices.DeleteFunc(u.held, func(o heldOffer) bool { return o.from == from && (id == 0 || o.msg.ID == id) })
		r.held.Add(from, len(u.held)-before)
	}
}
