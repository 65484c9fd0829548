package p2p

// The roster: the admitted members that are connected now, and the subscriptions to its changes.

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"golang.org/x/time/rate"

	"github.com/musterhq/muster/job"
)

// Member describes another daemon of the cluster.
type Member struct {
	Peer      job.Peer  `json:"peer"`
	Name      string    `json:"name"`
	Roles     Roles     `json:"roles"`
	Connected bool      `json:"connected"`
	Addrs     []string  `json:"addrs"`
	LastSeen  time.Time `json:"last_seen"`
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	MemberUp       EventKind = "member-up"       // admitted and connected
	MemberDown     EventKind = "member-down"     // its last connection has ended, or it was revoked: Host.Member lacks it
	ClusterChanged EventKind = "cluster-changed" // this daemon joined another cluster; Cluster() is new
)

// Event is one change that a Subscription reports. Peer is empty for ClusterChanged.
type Event struct {
	Kind EventKind
	Peer job.Peer
	Name string
}

// lingering is how long an admitted peer without a connection stays on the roster. It is longer than the gate takes
// to pass a connection to the swarm.
const lingering = time.Minute

// admittedPeer is the roster's entry for a peer.
type admittedPeer struct {
	cred   *Credential
	name   string
	digest []byte // of the revocations that the peer knows
	conns  int
	idle   time.Time // when conns became 0
	rates  map[protocol.ID]*rate.Limiter
}

// roster is the set of admitted peers. Nothing that blocks runs under its lock.
type roster struct {
	mu    sync.RWMutex
	peers map[peer.ID]*admittedPeer  // guarded by mu
	subs  map[*Subscription]struct{} // guarded by mu
}

func newRoster() *roster {
	return &roster{peers: map[peer.ID]*admittedPeer{}, subs: map[*Subscription]struct{}{}}
}

// admit adds a peer that has shown a valid credential, or updates its credential. Of two credentials with the same rights
// it keeps the one that ends later, because hellos may cross. If the rights differ, it keeps the one that was shown last,
// even if that ends sooner.
func (r *roster) admit(c *Credential, name string, digest []byte, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.peers[c.id]
	if g == nil {
		g = &admittedPeer{idle: now, rates: map[protocol.ID]*rate.Limiter{}}
		r.peers[c.id] = g
	}
	if g.cred == nil || !c.NotAfter.Before(g.cred.NotAfter) || !g.cred.sameRights(c) {
		g.cred = c
	}
	g.name, g.digest = name, digest
}

// connected counts a new connection of a peer.
func (r *roster) connected(id peer.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.peers[id]
	if g == nil {
		return
	}
	if g.conns++; g.conns == 1 {
		r.tellLocked(Event{Kind: MemberUp, Peer: g.cred.Peer, Name: g.name})
	}
}

// disconnected removes a connection from the count.
func (r *roster) disconnected(id peer.ID, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.peers[id]
	if g == nil || g.conns == 0 {
		return
	}
	if g.conns--; g.conns == 0 {
		g.idle = now
		r.tellLocked(Event{Kind: MemberDown, Peer: g.cred.Peer, Name: g.name})
	}
}

// revoked tells the subscribers that a member without a connection was revoked. A connected member is disconnected, which
// tells them as well.
func (r *roster) revoked(c contact) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.peers[c.id]; g == nil || g.conns == 0 {
		r.tellLocked(Event{Kind: MemberDown, Peer: job.Peer(c.Peer), Name: c.Name})
	}
}

// sweep removes peers that have had no connection for a while, and returns those whose credential has expired.
func (r *roster) sweep(now time.Time) (expired []peer.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, g := range r.peers {
		switch {
		case g.conns == 0 && now.Sub(g.idle) > lingering:
			delete(r.peers, id)
		case !now.Before(g.cred.NotAfter):
			expired = append(expired, id)
		}
	}
	return expired
}

// peerInfo is a copy of an admittedPeer.
type peerInfo struct {
	id        peer.ID
	cred      *Credential
	name      string
	digest    []byte
	connected bool
}

func (g *admittedPeer) info(id peer.ID) peerInfo {
	return peerInfo{id: id, cred: g.cred, name: g.name, digest: g.digest, connected: g.conns > 0}
}

func (r *roster) get(id peer.ID) (peerInfo, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.peers[id]
	if g == nil {
		return peerInfo{}, false
	}
	return g.info(id), true
}

// rolesOf returns the roles of the newest credential that a peer has shown; none if the credential has expired. It is
// called for each message.
func (r *roster) rolesOf(id peer.ID, now time.Time) Roles {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if g := r.peers[id]; g != nil && now.Before(g.cred.NotAfter) {
		return g.cred.Roles
	}
	return 0
}

// present returns the connected members, sorted by ID.
func (r *roster) present() []peerInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.presentLocked()
}

func (r *roster) presentLocked() []peerInfo {
	var list []peerInfo
	for id, g := range r.peers {
		if g.conns > 0 {
			list = append(list, g.info(id))
		}
	}
	slices.SortFunc(list, func(a, b peerInfo) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return list
}

// count returns the number of connected members.
func (r *roster) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, g := range r.peers {
		if g.conns > 0 {
			n++
		}
	}
	return n
}

// allow takes one stream from the peer's allowance for a protocol; it returns false if nothing is left.
func (r *roster) allow(id peer.ID, p Protocol, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.peers[id]
	if g == nil {
		return false
	}
	l := g.rates[p.ID]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(p.PerSecond), p.Burst)
		g.rates[p.ID] = l
	}
	return l.AllowN(now, 1)
}

// clear removes the peers without a connection, and tells the subscribers that the cluster has changed.
func (r *roster) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, g := range r.peers {
		if g.conns == 0 {
			delete(r.peers, id)
		}
	}
	r.tellLocked(Event{Kind: ClusterChanged})
}

func (r *roster) tellLocked(e Event) {
	for s := range r.subs {
		s.put(e)
	}
}

// Subscription delivers events. A slow reader may miss intermediate events of a peer, but never the last one. So its
// memory is bounded by the number of members.
type Subscription struct {
	roster *roster
	more   chan struct{} // holds one token while queue may be non-empty

	mu    sync.Mutex
	queue []Event // guarded by mu; at most one event for each peer
}

// subscribe returns a subscription that begins with a MemberUp for each connected member.
func (r *roster) subscribe() *Subscription {
	s := &Subscription{roster: r, more: make(chan struct{}, 1)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subs[s] = struct{}{}
	for _, g := range r.presentLocked() {
		s.put(Event{Kind: MemberUp, Peer: g.cred.Peer, Name: g.name})
	}
	return s
}

func (s *Subscription) put(e Event) {
	s.mu.Lock()
	s.queue = append(slices.DeleteFunc(s.queue, func(old Event) bool { return old.Peer == e.Peer }), e)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// Next waits for the next event.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			e := s.queue[0]
			s.queue = slices.Delete(s.queue, 0, 1)
			s.mu.Unlock()
			return e, nil
		}
		s.mu.Unlock()
		select {
		case <-s.more:
		case <-ctx.Done():
			return Event{}, ctx.Err()
		}
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.roster.mu.Lock()
	defer s.roster.mu.Unlock()
	delete(s.roster.subs, s)
}
