package scheduler

// Looking for hosts: when none of those with a session has room, others are
// asked for by class, with a growing pause, and the need is announced.

import (
	"cmp"
	"slices"
	"time"

	"github.com/musterhq/muster/lease"
)

// class is what waiting requests ask for in the words of the DHT.
type class struct {
	name      string
	waiting   int // tasks
	groups    int
	looking   bool // something waits that no known host can take now
	announced bool
	pause     time.Duration
	nextAt    time.Time
	broad     bool // the next search is for any worker
}

const (
	findFirst = time.Second
	findMost  = 30 * time.Second
)

func (c *Core) classOf(name string) *class {
	k := c.classes[name]
	if k == nil {
		k = &class{name: name}
		c.classes[name] = k
	}
	return k
}

// look starts or goes on looking for hosts of the class: at once if none is
// known, else after a pause in which one may become free.
func (c *Core) look(k *class, urgent bool) {
	if !k.looking {
		k.looking = true
		if !k.nextAt.After(c.now) {
			k.pause, k.broad, k.nextAt = findFirst, false, c.now
			if !urgent {
				c.lookAt(k, c.now.Add(findFirst))
			}
		}
	}
	if k.nextAt.After(c.now) {
		return
	}
	if k.broad {
		c.find(lease.AnyWorker)
	} else {
		c.find(k.name)
	}
	k.broad = !k.broad && k.name != lease.AnyWorker
	k.announced, c.announce = true, true
	pause := c.jitter(k.pause)
	k.pause = min(2*k.pause, findMost)
	c.lookAt(k, c.now.Add(pause))
}

func (c *Core) lookAt(k *class, when time.Time) {
	k.nextAt = when
	c.at(when, func() {
		if k.looking && k.nextAt.Equal(when) {
			c.look(k, true)
		}
	})
}

func (c *Core) find(name string) {
	if len(c.fx.Find) < maxFinds && !slices.Contains(c.fx.Find, name) {
		c.fx.Find = append(c.fx.Find, name)
	}
}

// found asks for sessions with hosts that a search turned up; what they can do
// is learnt from their Hello.
func (c *Core) found(e Found) {
	for _, p := range e.Peers {
		e.Cut = c.wantFound(p) || e.Cut
	}
	for _, m := range c.asks.matches {
		m.more = m.more || e.Cut
	}
}

// announceWants tells, on change, what is looked for: most waiting first.
func (c *Core) announceWants() {
	if !c.announce {
		return
	}
	c.announce = false
	var wants []Want
	for _, k := range c.classes {
		if k.announced && k.waiting > 0 {
			wants = append(wants, Want{Class: k.name, Count: k.waiting})
		}
	}
	slices.SortFunc(wants, func(a, b Want) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Class, b.Class))
	})
	wants = wants[:min(len(wants), maxFinds)]
	if !slices.Equal(wants, c.wants) {
		c.wants = wants
		c.fx.Announce, c.fx.Wants = true, slices.Clone(wants)
	}
}
