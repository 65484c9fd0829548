package api

// Looking at the cluster: the picture is made when somebody looks, and dropped when nobody has for a while.

import (
	"context"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
)

// keepView is how long the picture is kept after the last look.
const keepView = 30 * time.Second

// viewer has the picture while somebody looks.
type viewer struct {
	make  func() *clusterView
	until func(context.Context) (context.Context, context.CancelFunc) // ends the picture when the server stops

	mu      sync.Mutex
	now     *clusterView // guarded by mu; nil: nobody looks
	end     func()       // guarded by mu: of now
	holders int          // guarded by mu: open streams of events
	looked  time.Time    // guarded by mu: when somebody looked last
	timer   *time.Timer  // guarded by mu
}

// look returns the picture for a listing; nil for the first look in a while, which asks the members itself. A single
// listing is thus no dearer than its answers.
func (v *viewer) look(ctx context.Context) *clusterView {
	v.mu.Lock()
	defer v.mu.Unlock()
	again := !v.looked.IsZero() && time.Since(v.looked) < keepView
	v.looked = time.Now()
	if v.now == nil && again {
		v.beginLocked(ctx)
	}
	v.waitLocked()
	return v.now
}

// hold returns the picture for a stream, which keeps it until it calls leave.
func (v *viewer) hold(ctx context.Context) (now *clusterView, leave func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.looked = time.Now()
	if v.now == nil {
		v.beginLocked(ctx)
	}
	v.now.followOwn()
	v.holders++
	return v.now, sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.holders--
		v.looked = time.Now()
		v.waitLocked()
	})
}

func (v *viewer) beginLocked(ctx context.Context) {
	ctx, cancel := v.until(job.WithAsker(context.WithoutCancel(ctx), "")) // it looks for all
	v.now, v.end = v.make(), cancel
	go v.now.run(ctx)
}

// waitLocked drops the picture when nobody has looked for keepView.
func (v *viewer) waitLocked() {
	if v.now == nil {
		return
	}
	if v.timer == nil {
		v.timer = time.AfterFunc(keepView, v.drop)
		return
	}
	v.timer.Reset(keepView)
}

func (v *viewer) drop() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.now != nil && v.holders == 0 && time.Since(v.looked) >= keepView {
		v.end()
		v.now, v.end = nil, nil
	}
}

// The states of what the picture has of a member.
type contact int

const (
	contactAsk    contact = iota // it must be asked
	contactKnown                 // the picture has its present state
	contactSilent                // it does not answer; the picture has what it said last
)

// contact says how a listing learns of a member.
func (w *clusterView) contact(m *viewMember, now time.Time) contact {
	quiet := !m.silent.IsZero() && now.Sub(m.silent) > freshFor
	switch {
	case m.State == NodeLost && !m.Self, quiet:
		return contactSilent
	case m.synced && m.sync == nil && !m.broken && m.node != nil && now.Sub(m.told) < freshFor && !w.changes.since(m.Peer, now.Add(-freshFor)):
		return contactKnown
	}
	return contactAsk
}

// see calls each with what the picture has of every member that need not be asked, and returns those that must be. A nil
// picture has none. told is when the member said something last; zero: never.
func (w *clusterView) see(members []Member, each func(m *viewMember, c contact, told time.Time)) (ask []Member) {
	if w == nil {
		return members
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, x := range members {
		m := w.members[x.Peer]
		if m == nil {
			ask = append(ask, x)
			continue
		}
		switch c := w.contact(m, now); c {
		case contactAsk:
			ask = append(ask, x)
		case contactKnown, contactSilent:
			told := m.told
			if told.IsZero() {
				told = m.LastSeen
			}
			each(m, c, told)
		}
	}
	return ask
}

// unanswered notes that a member did not answer a listing.
func (w *clusterView) unanswered(p job.Peer) {
	if w == nil {
		return
	}
	w.with(p, func(m *viewMember) {
		if m.silent.IsZero() && time.Since(m.told) >= freshFor {
			m.silent = time.Now().Add(-freshFor - 1)
		}
	})
}

// changes remembers which members were just sent a request that changes something. Until it has told of it, a listing
// asks the member itself: who has changed something sees it.
type changes struct {
	mu sync.Mutex
	at map[job.Peer]time.Time // guarded by mu
}

func (c *changes) sent(p job.Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for p, at := range c.at {
		if now.Sub(at) > freshFor {
			delete(c.at, p)
		}
	}
	if c.at == nil {
		c.at = map[job.Peer]time.Time{}
	}
	c.at[p] = now
}

// since reports whether the member was sent a change after that time.
func (c *changes) since(p job.Peer, t time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[p].After(t)
}
