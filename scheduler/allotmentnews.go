package scheduler

// What other daemons say of users whose tasks are limited in the cluster.

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// heardAllotments is what other daemons have said of users who hold or want something there.
type heardAllotments struct {
	of    map[string]map[speaker]*heardAllotment // by user
	count map[job.Peer]int                       // how many sayings of a daemon are kept
}

func newHeardAllotments() *heardAllotments {
	return &heardAllotments{of: map[string]map[speaker]*heardAllotment{}, count: map[job.Peer]int{}}
}

// speaker is an owner of another daemon, or another one of this daemon.
type speaker struct {
	peer  job.Peer
	group job.Group
}

type heardAllotment struct {
	contract.Allotment

	at time.Time
}

const (
	// maxHeardAllotments bounds the sayings that are kept of one daemon. No daemon has jobs of as many users.
	maxHeardAllotments = 4096
	// maxGroups bounds the groups of one daemon whose sayings about one user are kept. A daemon has one group, or two
	// after an update.
	maxGroups = 8
)

// hear notes what an owner says, unless the owner has said something newer. It returns nil if what it says is invalid
// or too much, or if the user neither holds nor wants anything there.
func (ts *heardAllotments) hear(from job.Peer, s contract.Allotment, now time.Time) *heardAllotment {
	s, ok := s.Valid()
	if !ok {
		return nil
	}
	key := speaker{from, s.Group}
	x := ts.of[s.User][key]
	if x != nil && x.Life == s.Life && x.Seq >= s.Seq {
		return x
	}
	if s.Wants == (contract.Held{}) {
		ts.forget(s.User, key)
		return nil
	}
	if x == nil {
		if ts.count[from] >= maxHeardAllotments || ts.groups(s.User, from) >= maxGroups {
			return nil
		}
		if ts.of[s.User] == nil {
			ts.of[s.User] = map[speaker]*heardAllotment{}
		}
		x = &heardAllotment{}
		ts.of[s.User][key] = x
		ts.count[from]++
	}
	x.Allotment, x.at = s, now
	return x
}

// groups counts the groups of a daemon that have said something about a user.
func (ts *heardAllotments) groups(user string, from job.Peer) (n int) {
	for key := range ts.of[user] {
		if key.peer == from {
			n++
		}
	}
	return n
}

// answer notes what a daemon has answered about a user. It forgets the sayings of groups that are missing in the
// answer.
func (ts *heardAllotments) answer(user string, from step.AllotmentAnswer, now time.Time) {
	for key := range ts.of[user] {
		if key.peer == from.Peer && !slices.ContainsFunc(from.States, func(s contract.Allotment) bool { return s.User == user && s.Group == key.group }) {
			ts.forget(user, key)
		}
	}
	for _, s := range from.States {
		if s.User == user {
			ts.hear(from.Peer, s, now)
		}
	}
}

func (ts *heardAllotments) forget(user string, key speaker) {
	if ts.of[user][key] == nil {
		return
	}
	delete(ts.of[user], key)
	if len(ts.of[user]) == 0 {
		delete(ts.of, user)
	}
	if ts.count[key.peer]--; ts.count[key.peer] == 0 {
		delete(ts.count, key.peer)
	}
}

// forgetOld forgets what was told before a time.
func (ts *heardAllotments) forgetOld(before time.Time) {
	for user, all := range ts.of {
		for _, key := range slices.Collect(maps.Keys(all)) {
			if all[key].at.Before(before) {
				ts.forget(user, key)
			}
		}
	}
}
