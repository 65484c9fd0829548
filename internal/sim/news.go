package sim

// What schedulers hear of the capacity of hosts, if it does not come by their sessions, or comes late.
//
// A host tells what is free to a part of its own daemon, as it tells it to a scheduler, and that part publishes it. A
// scheduler is given what has arrived, in place of what the session would have told. All else goes by the sessions: the
// profile of a host and what is free when a session begins, offers and their answers, forecasts, and what users have used.
// Who declines an offer says what is free. News that is older than what the host has said itself since is dropped.

import (
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	"github.com/musterhq/muster/worker"
)

// Contact is how schedulers find hosts, and hear what is free there.
type Contact struct {
	// Standing is with how many hosts each scheduler has a session without need; 0: 32, as many as a daemon has neighbours
	// in a large cluster.
	Standing int
	// Quiet says that schedulers do not announce what they look for.
	Quiet bool
	// News carries what hosts tell of their capacity; nil: the sessions do, as in the daemons.
	News News
	// Stale is by how much later schedulers get to know of it.
	Stale time.Duration
	// Measured says that Result.Told is wanted.
	Measured bool
}

// News carries news of the capacity of machines to those whose daemons accept jobs. Machines are named by their indices in
// load.Load.Machines. The content of the news is kept by the World.
type News interface {
	// Begin is called once, before all else. Heard is to be called when the news of a machine has come to one of the readers,
	// not before Publish has returned. Versions may come late, in any order, several times, or not at all.
	Begin(readers []int, heard func(reader, about int, version uint32))
	// Publish tells that there is a newer version of the news of a machine.
	Publish(about int, version uint32)
	// SetUp says whether the daemon of a machine runs. At first all do. One that begins again has forgotten what it has heard,
	// and is to hear it again.
	SetUp(machine int, up bool)
}

// bulletin is what a host has told at one moment of what is free there.
type bulletin struct {
	version  uint32
	at       time.Duration
	free     contract.Free
	draining bool
	detail   string
}

// bulletins are what a host has told, as far as some scheduler may yet hear of it: the newest last.
type bulletins struct {
	all     []*bulletin
	version uint32
}

// maxBulletins bounds the bulletins of a host that are kept. Of the older half every second one goes then.
const maxBulletins = 64

// belief is what a scheduler has heard of a host.
type belief struct {
	*bulletin

	heard time.Duration
}

// listener is the part of a daemon that publishes what its worker tells.
const listener = job.Peer("listener")

// heeds says whether schedulers hear of capacity other than by their sessions alone.
func heeds(w *World) bool { return w.cfg.News != nil || w.cfg.Stale > 0 }

// listen has the worker of a host tell what is free to the part that publishes it.
func listen(h *host) {
	if heeds(h.w) {
		h.tell(worker.Up{Peer: listener})
	}
}

// overheard takes in what a host has told to that part.
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

// publish makes a bulletin the newest of the host, and known to its own scheduler.
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
	for _, o := range w.owners { // the daemons have been up for long when a simulation begins
		believe(o, h, b)
	}
}

// recall has the daemon of an owner that begins again hear from its neighbours what has not changed since the simulation
// began. What has changed comes as news.
func recall(o *owner) {
	clear(o.beliefs)
	for _, h := range o.w.hosts {
		if x := h.news.all; o.w.cfg.News != nil && len(x) > 0 && x[len(x)-1].at < warmUp {
			believe(o, h, x[len(x)-1])
		}
	}
}

// leastHeard is the oldest version of the host's news that some scheduler has.
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

// heardBy is the newest version that was there at some time.
func (x *bulletins) heardBy(t time.Duration) uint32 {
	for i, b := range x.all {
		if b.at >= t {
			return x.all[max(i-1, 0)].version
		}
	}
	return x.version
}

// trim drops the bulletins that all schedulers have, but the newest.
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

// of returns a version, or if it is not kept the newest that is older; nil if there is none.
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

// late has an owner believe a bulletin once it is as stale as it is to be.
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

// hear tells the core what is free at a host, if there is a session, and if the host has not said anything later itself.
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
	met  bool                  // the host has said Hello
	free contract.Availability // what is free there, as the core was told last
	seq  uint64                // of that

	word        time.Duration // when the host sent the last word that did not come as news
	since, came time.Duration // when what is believed was so, and when the core got to know it
}

// given gives the core what is free there. It was so at some time.
func (l *link) given(at time.Duration) {
	l.seq++
	l.free.Seq = l.seq
	l.since, l.came = at, l.w.now
	l.o.tell(scheduler.FromWorker{Peer: l.h.peer, Msg: l.free})
}

// aged is how old what the core believes is: for how long the host has told something else by now, or if it has not, how
// late it came.
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

// extra says whether an Availability tells something that is meant for one scheduler alone.
func extra(m *contract.Availability) bool {
	return m.UnderQuota != nil || m.Forecasts != nil || m.Usage != nil
}

// beginning says whether the messages of this turn begin a session.
func (d *direction[M]) beginning() bool {
	return d.newest != nil && slices.ContainsFunc(d.newest.msgs, func(m M) bool { _, hello := any(m).(contract.Hello); return hello })
}

// bared is what a session carries of an Availability if news carries the rest; false: nothing.
func (l *link) bared(m contract.Availability) (contract.Availability, bool) {
	if l.w.cfg.News == nil || l.local || l.toOwner.beginning() {
		return m, true
	}
	m.Free, m.Draining, m.Detail, m.Kept = contract.Free{}, false, "", nil
	return m, extra(&m)
}

// hears gives the core a message of a session, without what is to come as news.
func (l *link) hears(b *batch[contract.ToScheduler], m contract.ToScheduler, hello bool) {
	o, w := l.o, l.w
	switch x := m.(type) {
	case contract.Hello:
		l.said = said{met: true, word: b.sentAt, free: contract.Availability{Free: x.Free}}
		o.tell(scheduler.FromWorker{Peer: l.h.peer, Msg: m})
		l.given(b.sentAt) // so that the core has a number to which the later ones compare
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
	o.tell(scheduler.FromWorker{Peer: l.h.peer, Msg: m})
}

// heardExtra gives the core what is meant for it alone. A number that is not new has it ignore what is free. Only that users
// are under their quota comes with what is believed to be free: the core takes both or none.
func (l *link) heardExtra(m contract.Availability) {
	if m.UnderQuota != nil {
		l.seq++
		m.Seq = l.seq
		m.Free, m.Draining, m.Detail = l.free.Free, l.free.Draining, l.free.Detail
	} else {
		m.Free, m.Seq = contract.Free{}, 1
	}
	l.o.tell(scheduler.FromWorker{Peer: l.h.peer, Msg: m})
}

// known are some hosts of a class: if News carries what is free, those of which the owner has heard that something is free,
// and then others that it has heard of; otherwise, or if it has heard of none, those that the table of classes names.
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

// roomFor says whether anything is free that hosts of the class are looked for.
func (b *bulletin) roomFor(class string) bool {
	switch {
	case b.draining || b.free.Exclusive:
		return false
	case strings.HasPrefix(class, "gpu"):
		return slices.ContainsFunc(b.free.GPUs, func(g contract.FreeGPU) bool { return g.Milli > 0 })
	}
	return b.free.CPUs > 0
}

// beginNews tells the carrier of the news who reads it.
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

// setUp tells the carrier of the news whether a daemon runs.
func setUp(w *World, machine int, up bool) {
	if w.cfg.News != nil {
		w.cfg.News.SetUp(machine, up)
	}
}
