package audit

// Allowances: how many entries each actor may write, and the counting of further entries.

import (
	"slices"
	"time"

	"golang.org/x/time/rate"
)

const (
	// foldEvery is how often what was only counted is written.
	foldEvery = 5 * time.Minute
	// maxActors bounds the actors with an allowance of their own; all further actors share one.
	maxActors = 1024
	// maxFolds and strangerFolds bound the kinds of entries that are counted separately, for one actor and for all
	// strangers.
	maxFolds      = 8
	strangerFolds = 32
	// forgetAfter is when an actor that did nothing has its whole allowance again: the longest time in which an
	// allowance refills.
	forgetAfter = 4 * time.Hour
)

// allowance is how many entries of a class an actor may write at once, and how often one more.
type allowance struct {
	burst int
	every time.Duration
}

// allowances are those of one actor, by class. An actor that uses them up for a whole day writes about 5 MB.
var allowances = [classCount]allowance{
	changes:  {1000, 10 * time.Second},
	steering: {200, time.Minute},
	reads:    {200, time.Minute},
	refusals: {50, time.Minute},
}

// ofStrangers is the allowance of all strangers together. Anyone can pretend to be any number of strangers.
var ofStrangers = allowance{100, time.Minute}

// actor is somebody who acts, with the entries that were counted but not written so far.
type actor struct {
	limits [classCount]*rate.Limiter
	folds  map[kind]*Entry
	order  []kind // of folds, in the order of their first entries
	seen   time.Time
}

// kind is what entries that are counted as one have in common.
type kind struct {
	action  Action
	outcome Outcome
	code    string
	user    string
	network string // of strangers
}

func newActor(strangers bool) *actor {
	a := &actor{folds: map[kind]*Entry{}}
	for c, l := range allowances {
		if strangers {
			l = ofStrangers
		}
		a.limits[c] = rate.NewLimiter(rate.Every(l.every), l.burst)
	}
	return a
}

// actors are all actors, by name.
type actors map[string]*actor

// of returns the actor of an entry.
func (as actors) of(e *Entry) *actor {
	name := e.actor()
	if as[name] == nil && len(as) >= maxActors {
		name = "others"
	}
	a := as[name]
	if a == nil {
		a = newActor(e.stranger())
		as[name] = a
	}
	return a
}

// admit reports whether an entry is to be written. Otherwise it is counted.
func (as actors) admit(e *Entry, now time.Time) bool {
	a := as.of(e)
	a.seen = now
	if a.limits[e.classOf()].AllowN(now, 1) {
		return true
	}
	a.count(e)
	return false
}

// count adds an entry to the count of its kind.
func (a *actor) count(e *Entry) {
	k, most := kind{action: e.Action, outcome: e.Outcome, code: e.Code, user: e.User}, maxFolds
	if e.stranger() {
		k.network, most = e.network(), strangerFolds
	}
	f := a.folds[k]
	if f == nil && len(a.folds) >= most {
		k = kind{action: Various, outcome: e.Outcome}
		f = a.folds[k]
	}
	if f == nil {
		begun, object := e.Time, e.Object
		f = &Entry{
			First: &begun, Action: k.action, Outcome: e.Outcome, Code: k.code, User: k.user, From: e.From, Object: object,
		}
		if k.action != Various {
			f.Reason, f.UID, f.PID, f.Address, f.Peer, f.PeerName = e.Reason, e.UID, e.PID, e.Address, e.Peer, e.PeerName
		}
		a.folds[k] = f
		a.order = append(a.order, k)
	}
	f.Count++
	f.Time, f.Last = e.Time, e.Object
}

// take returns what was counted, and forgets actors that did nothing for long.
func (as actors) take(now time.Time) []Entry {
	var all []Entry
	for name, a := range as {
		for _, k := range a.order {
			f := a.folds[k]
			if f.Count == 1 {
				f.First, f.Last = nil, ""
			}
			all = append(all, *f)
		}
		clear(a.folds)
		a.order = nil
		if now.Sub(a.seen) >= forgetAfter {
			delete(as, name)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.Time.Compare(b.Time) })
	return all
}
