package scheduler

// Allotments: which part of a user's limits over the whole cluster the jobs of this daemon may use.
//
// No server counts over all hosts. Each daemon counts what the tasks of its own jobs hold, and starts further tasks
// only within its own allotment. To allot itself more, it asks all other daemons. They note its wish, and it takes what
// they leave. If two daemons ask at the same time, at least one of them hears of the other before it decides.
// See docs/adr, ADR 174.

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/step"
)

const (
	// askAgainFirst is the pause before the other daemons are asked again for a user whose tasks wait for an allotment. It
	// doubles up to askAgainMost. A daemon that gives something back says so at once.
	askAgainFirst = time.Second
	askAgainMost  = 10 * time.Second
	// askGap is the pause before the next round after another daemon has given something back, or if this daemon's wish
	// goes first. askAfterGiving is the pause after tasks here have freed something. It is longer, so that a daemon to
	// which that is given asks first.
	askGap         = 50 * time.Millisecond
	askAfterGiving = 500 * time.Millisecond
	// askLimit is after how long a round that has brought no answers at all is begun again. A daemon that cannot be
	// reached does not cause this: it is only missing among the answers.
	askLimit = time.Minute
	// wishKept is how long a wish counts if its daemon does not repeat it: longer than askAgainMost with its jitter.
	wishKept = 20 * time.Second
	// heldKept is how long what the tasks of a daemon hold counts after the daemon was last heard of.
	heldKept = time.Hour
	// unusedFor is after how long an unused allotment is given back.
	unusedFor = time.Minute
)

// allotments keeps the allotments of this owner. Users without a limit over the cluster have none.
type allotments struct {
	*step.Turn
	entries *entries
	hosts   *hosts
	pending *pending

	users map[string]*allotment
	heard *heardAllotments
	due   []*allotment // of users who hold less than before
	// wishes are the allotments for which the other daemons are asked at the end of the step.
	wishes []*allotment
	life   uint64 // identifies this life of the owner
	seq    uint64 // numbers what was told, and the rounds
}

func newAllotments(t *step.Turn, es *entries, hs *hosts, p *pending) *allotments {
	return &allotments{Turn: t, entries: es, hosts: hs, pending: p, users: map[string]*allotment{}, heard: newHeardAllotments(), life: lifeOf(&t.Config)}
}

// lifeOf returns a number that identifies this life of the owner. It is a hash of the seed, so that it does not reveal
// the seed.
func lifeOf(cfg *step.Config) uint64 {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, cfg.Seed))
	return binary.LittleEndian.Uint64(sum[:])
}

// allotment is what this owner may use of the limits of one user.
type allotment struct {
	capped

	has    contract.Held // what the tasks here may hold; at least what they do hold
	asks   *asking       // nil: no round is under way
	again  *step.Timer   // begins the next round
	pause  time.Duration // before the next round
	eased  bool          // another daemon has given something back since the round began
	used   bool          // it has admitted a task since the timer of watchUse last fired
	idle   bool          // the timer of watchUse is set
	noted  bool          // it is in allotments.due
	wishes bool          // it is in allotments.requests
}

// asking is a round: all other daemons are asked.
type asking struct {
	round uint64
	began time.Time
	wish  contract.Allotment // as it was told when the round began
}

// held is what the tasks of a user hold.
func (a *allotments) held(user string) contract.Held {
	if h := a.entries.holders[user]; h != nil {
		return h.Held
	}
	return contract.Held{}
}

// room returns what further tasks of a user may hold within the allotment, and whether the user has limits over the
// cluster.
func (a *allotments) room(user string) (room contract.Held, limited bool) {
	most, limited := a.Config.Limits.InCluster(user)
	if !limited {
		return room, false
	}
	x := a.of(user)
	return x.has.Least(most).Minus(a.held(user)), true
}

// admits reports whether the allotment of its user lets a task with this need start. What the first waiting task of a
// higher priority needs is kept for that one.
func (a *allotments) admits(t *task, need contract.Held) bool {
	room, limited := a.room(t.e.job.User)
	if !limited {
		return true
	}
	x := a.users[t.e.job.User]
	ok := room.Minus(x.keptFrom(t)).Fits(need) > 0
	if x.used = x.used || ok; ok {
		a.watchUse(x)
	}
	return ok
}

// of returns the allotment of a user. It makes one if there is none.
func (a *allotments) of(user string) *allotment {
	x := a.users[user]
	if x == nil {
		x = &allotment{capped: newCapped(a.hosts, user), has: a.held(user)}
		a.users[user] = x
	}
	if h := a.entries.holders[user]; h != nil && h.easing == nil {
		h.easing = func() { // the user holds less
			if !x.noted {
				x.noted, a.due = true, append(a.due, x)
			}
		}
	}
	x.has = x.has.Greatest(a.held(user))
	return x
}

// cap makes the shape of a task wait for an allotment.
func (a *allotments) cap(t *task) {
	g, x := t.shape, a.of(t.e.job.User)
	a.pending.unlist(g)
	x.add(g)
	if x.asks == nil && x.again == nil && !x.wishes {
		x.wishes, a.wishes = true, append(a.wishes, x)
	}
}

// askAll begins rounds for the users whose tasks have begun to wait in this step.
func (a *allotments) askAll() {
	all := a.wishes
	a.wishes = nil
	for _, x := range all {
		if x.wishes = false; a.users[x.user] == x && x.again == nil && a.gains(x) {
			a.ask(x)
		}
	}
}

// state returns what other daemons are told of a user.
func (a *allotments) state(user string) contract.Allotment {
	a.seq++
	s := contract.Allotment{User: user, Group: a.Config.Group, Life: a.life, Seq: a.seq, Held: a.held(user), Priority: -1}
	s.Has, s.Wants = s.Held, s.Held
	x := a.users[user]
	most, limited := a.Config.Limits.InCluster(user)
	if x == nil || !limited || !a.Lead {
		return s
	}
	s.Has = s.Has.Greatest(x.has.Where(most, s.Held))
	s.Wants = s.Has
	if g := x.first(); g != nil {
		s.Priority = g.queue.first().priority()
		s.Wants = s.Held.Plus(x.fitting(most.Minus(s.Held))).Where(most, s.Held).Greatest(s.Has)
	}
	s.Part = partOf(s.Held, most)
	if x.asks != nil {
		s.Asks, s.Priority, s.Part, s.Wants = true, x.asks.wish.Priority, x.asks.wish.Part, x.asks.wish.Wants.Greatest(s.Has)
	}
	return s
}

// partOf returns which part of a limit is held, in millionths. If the parts of the quantities differ, it is the largest
// one.
func partOf(held, most contract.Held) (part int) {
	for _, q := range [][2]int{{held.Tasks, most.Tasks}, {held.CPUs, most.CPUs}, {held.Milli, most.Milli}, {int(held.Memory), int(most.Memory)}} {
		part = max(part, int(1e6*float64(q[0])/float64(max(1, q[1]))))
	}
	return part
}

// ask begins a round: all other daemons hear what waits here, and say what they have.
func (a *allotments) ask(x *allotment) {
	a.Stop(x.again)
	x.again = nil
	if !a.Lead || x.asks != nil {
		return
	}
	wish := a.state(x.user)
	x.asks = &asking{round: a.seq, began: a.Now, wish: wish}
	wish.Asks = true
	round := x.asks.round
	a.Effects.Allot = append(a.Effects.Allot, step.AllotmentAsk{Round: round, State: wish})
	a.After(askLimit, func() {
		if a.users[x.user] == x && x.asks != nil && x.asks.round == round {
			x.asks = nil
			a.ask(x)
		}
	})
}

// askLater begins the next round after a while, if no sooner one is planned.
func (a *allotments) askLater(x *allotment, d time.Duration) {
	if x.asks != nil {
		return
	}
	a.Stop(x.again)
	x.again = a.After(d, func() {
		x.again = nil
		if a.users[x.user] == x && a.gains(x) {
			a.ask(x)
		}
	})
}

// answered takes in what other daemons say of a user, and ends the round for which they were asked.
func (a *allotments) answered(e step.AllotmentsHeard) {
	if _, limited := a.Config.Limits.InCluster(e.User); !limited {
		return
	}
	a.heard.forgetOld(a.Now.Add(-heldKept))
	reached := map[job.Peer]bool{}
	for _, from := range e.Answers {
		reached[from.Peer] = true
		a.heard.answer(e.User, from, a.Now)
	}
	x := a.users[e.User]
	if x == nil || x.asks == nil || x.asks.round != e.Round {
		return
	}
	most, _ := a.Config.Limits.InCluster(x.user)
	l := a.left(x, most, reached)
	held := a.held(x.user)
	if l.rivals { // they have allowed only for the wish that they were told
		l.room = held.Plus(x.fitting(l.room.Least(x.asks.wish.Wants.Where(most, l.room)).Minus(held)))
	}
	x.asks, x.has = nil, held.Greatest(l.room)
	a.uncap(x)
	a.watchUse(x)
	switch x.pause = min(max(2*x.pause, askAgainFirst), askAgainMost); {
	case !a.gains(x):
		x.pause = 0
	case l.first, x.eased:
		x.eased = false
		a.askLater(x, a.Jitter(askGap))
	default:
		a.askLater(x, a.Jitter(x.pause))
	}
}

// left is what the other daemons leave of the limits of a user, at the end of a round.
type left struct {
	room   contract.Held
	rivals bool // some of them want more than they have
	first  bool // some of them ask at the same time, and this one's wish goes before all of theirs
}

// left returns what the others leave. For a daemon that was not reached, only what its tasks hold counts.
//
// If another daemon asks at the same time, its whole wish counts as granted, because it may have been by now. Either
// this daemon hears of that wish before it decides, or the other daemon hears of this one's wish, or of its result,
// before it decides itself. So at each decision all allotments together are within the limits, however long messages
// take. If neither daemon gets anything that way, the one whose wish goes first asks again at once, and the others ask
// later.
func (a *allotments) left(x *allotment, most contract.Held, reached map[job.Peer]bool) left {
	l := left{room: most}
	beaten := false
	for key, o := range a.heard.of[x.user] {
		if !reached[key.peer] && o.at.Before(x.asks.began) {
			l.room = l.room.Minus(o.Held)
			continue
		}
		l.room = l.room.Minus(o.Has)
		if o.More() == (contract.Held{}) || !o.Asks && a.Now.Sub(o.at) > wishKept {
			continue
		}
		before := o.Before(&x.asks.wish)
		l.rivals, l.first, beaten = true, l.first || o.Asks && !before, beaten || before
		if o.Asks || before {
			l.room = l.room.Minus(o.More())
		}
	}
	l.room, l.first = l.room.Where(most, most), l.first && !beaten
	return l
}

// gains reports whether other daemons could leave room for a task that waits. It is false if the user's tasks here hold
// so much that no waiting task would fit in any case.
func (a *allotments) gains(x *allotment) bool {
	most, _ := a.Config.Limits.InCluster(x.user)
	room := most.Minus(a.held(x.user))
	return slices.ContainsFunc(x.waiting(mostWaiting), func(g *shape) bool { return room.Fits(g.need()) > 0 })
}

// uncap lets the shapes be tried again that the allotment now allows.
func (a *allotments) uncap(x *allotment) {
	held := a.held(x.user)
	counts, _ := x.parts(x.has.Greatest(held).Minus(held))
	for _, g := range x.waiting(mostWaiting) {
		if counts[g] > 0 {
			a.release(x, g)
		}
	}
}

// release puts a shape back among those that are tried.
func (a *allotments) release(x *allotment, g *shape) {
	delete(x.shapes, g)
	if g.capped = false; g.queue.len() > 0 {
		a.pending.ready.put(g)
	}
}

// rival returns another daemon whose wish goes before that of this one; nil if there is none.
func (a *allotments) rival(x *allotment) *speaker {
	own := a.state(x.user)
	for key, o := range a.heard.of[x.user] {
		if a.Now.Sub(o.at) <= wishKept && o.More() != (contract.Held{}) && o.Before(&own) {
			return &key
		}
	}
	return nil
}

// look handles the users who hold less than before. What was freed goes to other tasks here, or to another daemon whose
// wish goes first.
func (a *allotments) look() {
	due := a.due
	a.due = nil
	for _, x := range due {
		x.noted = false
		if a.users[x.user] != x {
			continue
		}
		a.trim(x)
		r := a.rival(x)
		if r == nil {
			a.uncap(x)
		} else {
			x.has = a.held(x.user)
			a.Effects.Allot = append(a.Effects.Allot, step.AllotmentAsk{State: a.state(x.user), To: r.peer})
		}
		if x.again == nil && a.gains(x) {
			a.askLater(x, a.Jitter(askAfterGiving))
		}
	}
}

// trim gives up what is allotted here beyond the limits. There can be too much if daemons that did not reach each other
// have allotted themselves more than the limit together, or if the limit was lowered.
func (a *allotments) trim(x *allotment) {
	most, _ := a.Config.Limits.InCluster(x.user)
	room := most
	for _, o := range a.heard.of[x.user] {
		switch age := a.Now.Sub(o.at); {
		case age <= wishKept:
			room = room.Minus(o.Has)
		case age <= heldKept:
			room = room.Minus(o.Held)
		}
	}
	x.has = x.has.Least(room.Where(most, most)).Greatest(a.held(x.user))
}

// swap takes in what another daemon says of users, and returns what this owner has to say of them.
func (a *allotments) swap(from job.Peer, states []contract.Allotment) (out []contract.Allotment) {
	for _, s := range states {
		if _, limited := a.Config.Limits.InCluster(s.User); limited {
			if o := a.heard.hear(from, s, a.Now); o != nil {
				a.yield(o)
			}
		}
		out = append(out, a.state(s.User))
	}
	return out
}

// yield gives back what nothing here uses to a daemon that wants more. If that daemon's wish goes first, nothing is
// kept for tasks that wait here.
func (a *allotments) yield(o *heardAllotment) {
	x := a.users[o.User]
	if x == nil || !a.Lead {
		return
	}
	held, own := a.held(x.user), a.state(x.user)
	if !o.Asks && !o.Before(&own) && a.gains(x) { // the other daemon has given something back
		x.eased = x.asks != nil
		a.askLater(x, askGap)
	}
	if o.More() == (contract.Held{}) {
		return
	}
	keep := contract.Held{}
	if !o.Before(&own) {
		keep = x.fitting(x.has.Minus(held))
	}
	x.has = held.Plus(keep)
}

// watchUse gives an allotment back once nothing has used it for unusedFor.
func (a *allotments) watchUse(x *allotment) {
	if x.idle {
		return
	}
	x.idle = true
	a.After(unusedFor, func() {
		x.idle = false
		switch used := x.used; {
		case a.users[x.user] != x:
		case used || len(x.waiting(1)) > 0 || x.asks != nil:
			x.used = false
			a.watchUse(x)
		default:
			if x.has = a.held(x.user); x.has == (contract.Held{}) {
				a.drop(x)
				return
			}
			a.watchUse(x)
		}
	})
}

// drop forgets an allotment.
func (a *allotments) drop(x *allotment) {
	a.Stop(x.again)
	for g := range x.shapes {
		a.release(x, g)
	}
	if h := a.entries.holders[x.user]; h != nil {
		h.easing = nil
	}
	delete(a.users, x.user)
}

// reset forgets all allotments, because the limits have changed, or because this daemon begins or ceases to lead.
func (a *allotments) reset() {
	for _, user := range slices.Sorted(maps.Keys(a.users)) {
		a.drop(a.users[user])
	}
}

// needAt returns what a task holds if it runs at a host, together with the other members of its gang.
func needAt(t *task, h *fleet.Host) (need contract.Held) {
	need.Add(wholeOf(h, t.shape.Need), t.e.job.Gang())
	return need
}
