package api

// The lifetime of the view of the cluster: it is made when clients need it, and dropped when none has for a while.

import (
	"context"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
)

// keepView is how long the view is kept after the last request that used it.
const keepView = 30 * time.Second

// viewer holds the view while clients need it.
type viewer struct {
	make  func() *clusterView
	until func(context.Context) (context.Context, context.CancelFunc) // returns a context that ends when the server stops

	mu      sync.Mutex
	now     *clusterView // guarded by mu; nil: no client needs it
	end     func()       // guarded by mu: ends now
	holders int          // guarded by mu: open streams of events
	looked  time.Time    // guarded by mu: the time of the last listing, or of the last change of holders
	timer   *time.Timer  // guarded by mu
}

// look returns the view for a listing. It returns nil for the first listing in a while, which must ask the members itself.
// So a single listing does not pay for a view.
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

// hold returns the view for a stream of events. The view is kept until the stream calls leave.
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
	ctx, cancel := v.until(job.WithAsker(context.WithoutCancel(ctx), "")) // the view serves all users
	v.now, v.end = v.make(), cancel
	go v.now.run(ctx)
}

// waitLocked restarts the timer that drops the view if it is not used for keepView.
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

// contact says how a listing gets the state of a member.
type contact int

const (
	contactAsk    contact = iota // the listing must ask the member
	contactKnown                 // the view has its present state
	contactSilent                // it does not answer; the view has its last known state
)

// contact returns how a listing gets the state of a member.
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

// see calls each for every member that need not be asked, and returns the members that the caller must ask: all of them if
// the view is nil. told is when the member was last heard; zero: never.
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

// unanswered marks a member as silent because it did not answer a listing.
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

// changes remembers which members were sent a request within freshFor that changes something. Listings ask these members
// directly, so that users see what they have just changed.
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
