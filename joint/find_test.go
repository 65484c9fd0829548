package joint

// How owners find hosts: the table of classes, and calls that hosts answer.

import (
	"slices"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
)

const (
	maxFinding  = 8  // searches at a time, as in the loop
	findPeers   = 64 // hosts per search
	staleFor    = 10 * time.Minute
	maxFindTime = 900 * time.Millisecond
)

// find looks in the table of classes: it knows the hosts of a class that are up,
// and those that have died lately.
func (o *owner) find(class string) {
	if o.finding[class] || len(o.finding) >= maxFinding {
		return
	}
	o.finding[class] = true
	w, life := o.w, o.life
	w.stats.finds++
	w.after(between(w.chance, 20*time.Millisecond, maxFindTime), func() {
		if o.life != life || !o.up {
			return
		}
		delete(o.finding, class)
		all := w.ofClass(class, findPeers)
		peers := make([]job.Peer, len(all))
		for i, h := range all {
			peers[i] = h.peer
		}
		if len(peers) > 0 {
			o.tell(scheduler.Found{Class: class, Peers: peers})
		}
		o.tell(scheduler.Found{Class: class, Cut: w.chance.IntN(10) == 0 && !w.calm})
	})
}

// ofClass are some hosts of a class, in an order by chance.
func (w *world) ofClass(class string, most int) []*host {
	var all []*host
	for _, h := range w.hosts {
		known := h.up || !h.gone && w.now-h.downAt < staleFor || h.gone && w.now-h.powerAt < staleFor
		if known && slices.Contains(h.classes, class) {
			all = append(all, h)
		}
	}
	if len(all) > most {
		w.chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:most]
	}
	return all
}

func (o *owner) want(p job.Peer, wants bool) {
	if l := o.links[p]; l != nil {
		l.ownerWants = wants
		l.tend()
	}
}

// callEvery is how often what is wanted is announced again.
const callEvery = 10 * time.Second

// announce calls the hosts of the classes that are wanted; some of them come.
func (o *owner) announce(wants []scheduler.Want) {
	if o.w.opt.mute {
		return
	}
	o.wants = wants
	o.calls++
	calls, life := o.calls, o.life
	var call func()
	call = func() {
		if o.life != life || !o.up || o.calls != calls || len(o.wants) == 0 {
			return
		}
		for _, x := range o.wants {
			for _, h := range o.w.ofClass(x.Class, findPeers) {
				if l := o.links[h.peer]; h.up && !l.called {
					l.called = true
					l.tend()
				}
			}
		}
		o.w.after(callEvery, call)
	}
	o.w.after(between(o.w.chance, 100*time.Millisecond, 2*time.Second), call)
}
