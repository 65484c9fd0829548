package sim

// How schedulers hear of the capacity of hosts if the sessions do not carry it, or if it comes late.
//
// A host tells a part of its own daemon what is free, as it tells a scheduler, and that part publishes it. A scheduler
// gets what has arrived, instead of what the session would have told. The sessions still carry the rest: the profile of
// a host and what is free when a session begins, offers and their answers, forecasts, and what users have used. A host
// that declines an offer says what is free. News is dropped if the host itself has said something newer. Otherwise late news
// would give back what a Commit has just taken.
//
// The cores stay as they are. The content of the news stays here, and an overlay carries numbers of versions only, or it would
// be copied for each pair of hosts. At the beginning all is known. A neighbour that passes nothing on ends no job: a scheduler
// that has heard of no host looks in the table of classes. A host that lies declines offers, and is paused after some.
//
// A copied view of the whole cluster every few seconds would bypass the cores, and no protocol does that. If all messages of
// a session were delayed, offers would be late, not beliefs. The results are in docs/study.md.

import (
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
	"github.com/musterhq/muster/worker"
)

// Contact says how schedulers find hosts, and hear what is free there.
type Contact struct {
	// Standing is the number of hosts with which each scheduler keeps a session even when nothing needs it; 0: 32,
	// which is the number of a daemon's neighbours in a large cluster.
	Standing int
	// Quiet says that schedulers do not announce what they look for.
	Quiet bool
	// News carries what hosts tell about their capacity; nil: the sessions carry it, as in the daemons.
	News News
	// Stale delays what schedulers hear about the capacity.
	Stale time.Duration
	// Measured makes the world fill in Result.Told.
	Measured bool
}

// News carries news of the capacity of machines to those whose daemons accept jobs. Machines are named by their indices in
// load.Load.Machines. The content of the news is kept by the World.
type News interface {
	// Begin is called once, before anything else. The News must call heard when the news of a machine has reached one
	// of the readers, but not before Publish has returned. Versions may come late, in any order, several times, or not
	// at all.
	Begin(readers []int, heard func(reader, about int, version uint32))
	// Publish says that there is a newer version of the news of a machine.
	Publish(about int, version uint32)
	// SetUp says whether the daemon of a machine runs. At first all run. A restarted daemon has forgotten what it had
	// heard, and must hear it again.
	SetUp(machine int, up bool)
}

// bulletin is what a host published at one moment about what is free there.
type bulletin struct {
	version  uint32
	at       time.Duration
	free     contract.Free
	draining bool
	detail   string
}

// bulletins are those bulletins of a host that some scheduler may still hear; the newest is the last.
type bulletins struct {
	all     []*bulletin
	version uint32
}

// maxBulletins bounds the bulletins of a host that are kept. At the bound, every second one of the older half is
// dropped.
const maxBulletins = 64

// belief is what a scheduler has heard of a host.
type belief struct {
	*bulletin

	heard time.Duration
}

// listener is the part of a daemon that publishes what its worker tells.
const listener = job.Peer("listener")

// heeds reports whether the hosts' capacity reaches schedulers as bulletins: by News, or late by the sessions.
func heeds(w *World) bool { return w.cfg.News != nil || w.cfg.Stale > 0 }

// listen makes the worker of a host tell what is free to the listener, which publishes it.
func listen(h *host) {
	if heeds(h.w) {
		h.tell(worker.Up{Peer: listener})
	}
}

// overheard receives what a host has told the listener.
func overheard(h *host, m contract.ToScheduler) {
	w := h.w
	b := &bulletin{at: w.now}
	switch m := m.(type) {
	case contract.Hello:
		b.free = m.Free
	case contract.Availability:
		if m.Usage != nil {
			return // what is free has not changed
		}
		b.free, b.draining, b.detail = m.Free, m.Draining, m.Detail
	default:
		return
	}
	if w.lies != nil {
		w.lies(h, b)
	}
	publish(h, b)
}

// publish makes b the newest bulletin of the host. The host's own scheduler knows it at once.
func publish(h *host, b *bulletin) {
	w, x := h.w, &h.news
	x.version++
	b.version = x.version
	w.counts.Bulletins++
	if w.cfg.News == nil { // the sessions carry it
		x.trim(x.heardBy(w.now - w.cfg.Stale))
		x.all = append(x.all, b)
		return
	}
	x.trim(leastHeard(w, h))
	x.all = append(x.all, b)
	if h.local != nil {
		believe(h.local, h, b)
	}
	if w.now >= warmUp {
		w.cfg.News.Publish(h.index, b.version)
		return
	}
	for _, o := range w.owners { // when a simulation begins, the daemons have been up for long
		believe(o, h, b)
	}
}

// recall gives a restarted owner the bulletins that have not changed since the simulation began, as its neighbours
// would. Those that have changed come as news.
func recall(o *owner) {
	clear(o.beliefs)
	for _, h := range o.w.hosts {
		if x := h.news.all; o.w.cfg.News != nil && len(x) > 0 && x[len(x)-1].at < warmUp {
			believe(o, h, x[len(x)-1])
		}
	}
}

// leastHeard returns the oldest of the versions that schedulers have of the host's news; 0 if a scheduler has none.
func leastHeard(w *World, h *host) uint32 {
	least := h.news.version
	for _, o := range w.owners {
		b := o.beliefs[h.index].bulletin
		if b == nil {
			return 0
		}
		least = min(least, b.version)
	}
	return least
}

// heardBy returns the newest version from before t.
func (x *bulletins) heardBy(t time.Duration) uint32 {
	for i, b := range x.all {
		if b.at >= t {
			return x.all[max(i-1, 0)].version
		}
	}
	return x.version
}

// trim drops the bulletins that all schedulers have replaced: those older than version heard. The newest stays.
func (x *bulletins) trim(heard uint32) {
	i := 0
	for i+1 < len(x.all) && x.all[i].version <= heard {
		i++
	}
	x.all = slices.Delete(x.all, 0, i)
	if len(x.all) < maxBulletins {
		return
	}
	kept := x.all[:0]
	for i, b := range x.all {
		if i >= maxBulletins/2 || i%2 == 0 {
			kept = append(kept, b)
		}
	}
	clear(x.all[len(kept):])
	x.all = kept
}

// of returns a version. If it is not kept, it returns the newest older version, or nil if there is none.
func (x *bulletins) of(version uint32) *bulletin {
	i, found := slices.BinarySearchFunc(x.all, version, func(b *bulletin, v uint32) int { return int(int64(b.version) - int64(v)) })
	switch {
	case found:
		return x.all[i]
	case i > 0:
		return x.all[i-1]
	}
	return nil
}

// late gives a bulletin to an owner after the delay of Contact.Stale.
func late(o *owner, h *host, b *bulletin) {
	life := o.life
	if o.w.cfg.Stale == 0 {
		hear(o, h, b)
		return
	}
	o.w.after(o.w.cfg.Stale, func() {
		if o.life == life {
			hear(o, h, b)
		}
	})
}

// believe notes what the owner has heard of a host. It reports whether that is news.
func believe(o *owner, h *host, b *bulletin) bool {
	x := &o.beliefs[h.index]
	if x.bulletin != nil && x.at > b.at {
		return false
	}
	*x = belief{b, o.w.now}
	return true
}

// hear tells the core what is free at a host, if there is a session, and the host has said nothing newer in it.
func hear(o *owner, h *host, b *bulletin) {
	if !o.up || !believe(o, h, b) {
		return
	}
	if l := o.links[h.peer]; l != nil && !l.local && l.oUp && l.met && b.at >= l.word {
		l.free = contract.Availability{Free: b.free, Draining: b.draining, Detail: b.detail}
		l.given(b.at)
	}
}

// said is what an owner was last told of the capacity of a host in a session.
type said struct {
	met  bool                  // the host has sent Hello
	free contract.Availability // what is free there, as the core was last told
	seq  uint64                // number of free

	word        time.Duration // when the host sent the last message about its capacity that was not news
	since, came time.Duration // when the host had what the core believes, and when the core was told
}

// given tells the core what is free there. at is when that was true.
func (l *link) given(at time.Duration) {
	l.seq++
	l.free.Seq = l.seq
	l.since, l.came = at, l.w.now
	l.o.tell(step.FromWorker{Peer: l.h.peer, Msg: l.free})
}

// aged returns how outdated the core's belief is: the time since the host first published something newer. If it has
// not, aged returns how late the belief arrived.
func (l *link) aged() time.Duration {
	for _, b := range l.h.news.all {
		if b.at > l.since {
			return l.w.now - b.at
		}
	}
	return l.came - l.since
}

// add counts a message of a session that tells what is free. The first one in its turn pays for the frame.
func (x *Told) add(l *link, bytes int, first bool) {
	if first {
		bytes += frame
	}
	x.Messages++
	x.Bytes += int64(bytes)
	x.LinkBytes += int64(bytes) * int64(max(0, l.w.net.Hops(l.h.index, l.o.at)))
}

// extra reports whether an Availability has something that is meant for one scheduler only.
func extra(m *contract.Availability) bool {
	return m.UnderQuota != nil || m.Forecasts != nil || m.Usage != nil
}

// beginning reports whether the messages of this turn begin a session.
func (d *direction[M]) beginning() bool {
	return d.newest != nil && slices.ContainsFunc(d.newest.msgs, func(m M) bool { _, hello := any(m).(contract.Hello); return hello })
}

// bared returns the part of an Availability that the session carries if News carries the rest. It returns false if the
// session carries nothing.
func (l *link) bared(m contract.Availability) (contract.Availability, bool) {
	if l.w.cfg.News == nil || l.local || l.toOwner.beginning() {
		return m, true
	}
	m.Free, m.Draining, m.Detail, m.Kept = contract.Free{}, false, "", nil
	return m, extra(&m)
}

// hears gives the core a message of a session, without the part that comes as news.
func (l *link) hears(b *batch[contract.ToScheduler], m contract.ToScheduler, hello bool) {
	o, w := l.o, l.w
	switch x := m.(type) {
	case contract.Hello:
		l.said = said{met: true, word: b.sentAt, free: contract.Availability{Free: x.Free}}
		o.tell(step.FromWorker{Peer: l.h.peer, Msg: m})
		l.given(b.sentAt) // so that the core has a number with which it compares later ones
		return
	case contract.Availability:
		if hello {
			l.free, l.word = x, b.sentAt
			l.given(b.sentAt)
			return
		}
		if w.cfg.News == nil {
			late(o, l.h, &bulletin{at: b.sentAt, free: x.Free, draining: x.Draining, detail: x.Detail})
		}
		if extra(&x) {
			l.heardExtra(x)
		}
		return
	case contract.Commit:
		l.word = b.sentAt
	case contract.Decline:
		l.word, l.free.Free = b.sentAt, x.Free
		l.since, l.came = b.sentAt, w.now
	}
	o.tell(step.FromWorker{Peer: l.h.peer, Msg: m})
}

// heardExtra gives the core what is meant for it alone. An old number makes the core ignore the free capacity in the
// message. UnderQuota gets a new number and the believed free capacity, because the core takes both or neither.
func (l *link) heardExtra(m contract.Availability) {
	if m.UnderQuota != nil {
		l.seq++
		m.Seq = l.seq
		m.Free, m.Draining, m.Detail = l.free.Free, l.free.Draining, l.free.Detail
	} else {
		m.Free, m.Seq = contract.Free{}, 1
	}
	l.o.tell(step.FromWorker{Peer: l.h.peer, Msg: m})
}

// known returns some hosts of a class. If News carries what is free, it returns hosts of which the owner has heard that
// something is free, then others that it has heard of. Otherwise, or if it has heard of none, it returns hosts from the
// table of classes.
func known(o *owner, class string, most int) []*host {
	if o.w.cfg.News == nil {
		return o.w.ofClass(class, most)
	}
	var free, others []*host
	all := o.w.classes[class]
	at := 0
	if len(all) > most {
		at = o.w.chance.IntN(len(all))
	}
	for i := 0; i < len(all) && len(free) < most; i++ {
		h := all[(at+i)%len(all)]
		switch b := o.beliefs[h.index].bulletin; {
		case b == nil:
		case b.roomFor(class):
			free = append(free, h)
		case len(others) < most:
			others = append(others, h)
		}
	}
	if out := append(free, others...); len(out) > 0 {
		return out[:min(len(out), most)]
	}
	return o.w.ofClass(class, most)
}

// roomFor reports whether the host has something free that a search for this class is about.
func (b *bulletin) roomFor(class string) bool {
	switch {
	case b.draining || b.free.Exclusive:
		return false
	case strings.HasPrefix(class, "gpu"):
		return slices.ContainsFunc(b.free.GPUs, func(g contract.FreeGPU) bool { return g.Milli > 0 })
	}
	return b.free.CPUs > 0
}

// beginNews tells the News who reads it.
func beginNews(w *World) {
	for _, o := range w.owners {
		if heeds(w) {
			o.beliefs = make([]belief, len(w.hosts))
		}
	}
	if w.cfg.News == nil {
		return
	}
	readers := make([]int, len(w.owners))
	by := map[int]*owner{}
	for i, o := range w.owners {
		readers[i], by[o.at] = o.at, o
	}
	w.cfg.News.Begin(readers, func(reader, about int, version uint32) {
		if o := by[reader]; o != nil && o.up && about >= 0 && about < len(w.hosts) {
			if b := w.hosts[about].news.of(version); b != nil {
				late(o, w.hosts[about], b)
			}
		}
	})
	for _, h := range w.hosts {
		if !h.power {
			w.cfg.News.SetUp(h.index, false)
		}
	}
}

// setUp tells the News whether a daemon runs.
func setUp(w *World, machine int, up bool) {
	if w.cfg.News != nil {
		w.cfg.News.SetUp(machine, up)
	}
}
