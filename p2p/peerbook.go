package p2p

// The peer book: all members that were ever admitted, with the addresses of those that were connected. With it a restarted
// daemon finds the cluster without its bootstrap hosts.

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	ma "github.com/multiformats/go-multiaddr"
)

const (
	bookFile   = "peers.json"
	bookSchema = "muster.peers/v1"
	// aside is appended to the name of a book that cannot be read.
	aside = ".damaged"
	// maxBook bounds the members in the book; the one not seen for the longest time is dropped first.
	maxBook = 4096
	// maxGone bounds the revoked members whose names are kept; the oldest entries are dropped first.
	maxGone = 1024
	// maxAddrs bounds the addresses of one member.
	maxAddrs = 16
	// maxAddr bounds the bytes of an address.
	maxAddr = 256
)

// contact is a member in the book.
type contact struct {
	Peer     string    `json:"peer"`
	Name     string    `json:"name,omitempty"`
	Roles    Roles     `json:"roles,omitempty"`
	Addrs    []string  `json:"addrs"`
	LastSeen time.Time `json:"last_seen"`
	// LetInBy is the lineage of the member: who let it in, then who let that one in. Only these, the member itself and the
	// cluster key may revoke it.
	LetInBy []string `json:"let_in_by,omitempty"`

	id    peer.ID
	by    []peer.ID      // LetInBy, parsed; never changed in place
	dial  []ma.Multiaddr // Addrs, parsed; never changed in place
	saved time.Time      // LastSeen as it is on disk
}

type bookJSON struct {
	Schema  string    `json:"schema"`
	Cluster string    `json:"cluster"`
	Peers   []contact `json:"peers"`
	Gone    []contact `json:"gone,omitempty"`
}

var errBook = errors.New("damaged peer book")

// parseBook parses peers.json. A value out of range is an error.
func parseBook(b []byte) (bookJSON, error) {
	var j bookJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return j, fmt.Errorf("%w: %w", errBook, err)
	}
	if len(j.Peers) > maxBook || len(j.Gone) > maxGone {
		return j, fmt.Errorf("%w: %d peers, and %d revoked ones", errBook, len(j.Peers), len(j.Gone))
	}
	return j, errors.Join(parseContacts(j.Peers), parseContacts(j.Gone))
}

func parseContacts(list []contact) error {
	for i := range list {
		c := &list[i]
		id, err := peer.Decode(c.Peer)
		if err != nil || id.String() != c.Peer || len(c.Addrs) > maxAddrs || len(c.Name) > MaxName || c.Roles&^AllRoles != 0 {
			return fmt.Errorf("%w: peer %d", errBook, i)
		}
		if len(c.LetInBy) >= MaxChain {
			return fmt.Errorf("%w: peer %d", errBook, i)
		}
		for _, text := range c.LetInBy {
			by, err := peer.Decode(text)
			if err != nil {
				return fmt.Errorf("%w: who let in peer %d", errBook, i)
			}
			c.by = append(c.by, by)
		}
		for _, text := range c.Addrs {
			a, err := ma.NewMultiaddr(text)
			if err != nil || len(text) > maxAddr {
				return fmt.Errorf("%w: address of peer %d", errBook, i)
			}
			c.dial = append(c.dial, a)
		}
		c.id, c.saved = id, c.LastSeen
	}
	return nil
}

// book is the peer book. Nothing that blocks runs under its lock.
type book struct {
	disk     disk
	newcomer chan struct{} // holds a token if there are new members since the last save

	mu      sync.Mutex
	cluster clusterID            // guarded by mu
	peers   map[peer.ID]*contact // guarded by mu
	gone    []contact            // guarded by mu; members that were revoked, without addresses
	dirty   bool                 // guarded by mu
}

func newBook(d disk) *book { return &book{disk: d, newcomer: make(chan struct{}, 1)} }

// open loads the members of a cluster, and forgets the members of a former cluster. If the book cannot be read, open
// renames the file and begins an empty book; bootstrap hosts and neighbours then tell the daemon about the members again.
func (b *book) open(cluster clusterID, log *slog.Logger) {
	text, err := b.disk.read(bookFile)
	var j bookJSON
	if err == nil && text != nil {
		j, err = parseBook(text)
	}
	if err != nil {
		j = bookJSON{}
		path := filepath.Join(b.disk.dir, bookFile)
		log.Warn("peer book put aside and begun anew: members are dialled once the bootstrap hosts or neighbours tell of them", "path", path, "aside", path+aside, "error", err)
		if err := os.Rename(path, path+aside); err != nil {
			log.Warn("peer book not put aside", "path", path, "error", err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cluster, b.peers, b.gone = cluster, map[peer.ID]*contact{}, nil
	if j.Cluster == cluster.String() {
		b.gone = j.Gone
		for i := range j.Peers {
			b.peers[j.Peers[i].id] = &j.Peers[i]
		}
	}
}

// save writes the book if it has changed.
func (b *book) save() error {
	b.mu.Lock()
	if !b.dirty {
		b.mu.Unlock()
		return nil
	}
	j := bookJSON{Schema: bookSchema, Cluster: b.cluster.String(), Peers: b.listLocked(), Gone: slices.Clone(b.gone)}
	b.dirty = false
	b.mu.Unlock()
	if err := b.disk.writeJSON(bookFile, j); err != nil {
		b.mu.Lock()
		b.dirty = true
		b.mu.Unlock()
		return err
	}
	return nil
}

// listLocked returns the members, most recently seen first.
func (b *book) listLocked() []contact {
	list := make([]contact, 0, len(b.peers))
	for _, c := range b.peers {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(x, y contact) int {
		return cmp.Or(y.LastSeen.Compare(x.LastSeen), cmp.Compare(x.Peer, y.Peer))
	})
	return list
}

func (b *book) list() []contact {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listLocked()
}

// admitted adds a member.
func (b *book) admitted(c *Credential, name string, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.peers[c.id]
	if e == nil {
		e = &contact{Peer: c.id.String(), id: c.id}
		b.peers[c.id] = e
		b.gone = slices.DeleteFunc(b.gone, func(g contact) bool { return g.id == c.id })
		if len(b.peers) > maxBook {
			b.forgetOldestLocked(c.id)
		}
		select {
		case b.newcomer <- struct{}{}:
		default:
		}
	}
	e.Name, e.Roles, e.LastSeen, e.saved, b.dirty = name, c.Roles, now.UTC(), now, true
	if len(c.links) > 0 {
		e.by, e.LetInBy = c.lineage(0), nil
		for _, id := range e.by {
			e.LetInBy = append(e.LetInBy, id.String())
		}
	}
}

func (b *book) forgetOldestLocked(but peer.ID) {
	var oldest *contact
	for _, e := range b.peers {
		if e.id != but && (oldest == nil || e.LastSeen.Before(oldest.LastSeen)) {
			oldest = e
		}
	}
	if oldest != nil {
		delete(b.peers, oldest.id)
	}
}

// seen records the addresses of a connected member.
func (b *book) seen(id peer.ID, addrs []ma.Multiaddr, now time.Time) {
	texts := make([]string, 0, min(len(addrs), maxAddrs))
	for _, a := range addrs {
		if t := a.String(); len(t) <= maxAddr && len(texts) < maxAddrs {
			texts = append(texts, t)
		}
	}
	slices.Sort(texts)
	dial := toMultiaddrs(texts)
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.peers[id]
	if e == nil {
		return
	}
	e.LastSeen = now.UTC()
	if len(texts) > 0 && !slices.Equal(texts, e.Addrs) {
		e.Addrs, e.dial, b.dirty = texts, dial, true
	}
	if now.Sub(e.saved) > lastSeenEvery { // a new LastSeen alone is not worth a write each time
		e.saved, b.dirty = now, true
	}
}

// left records when the last connection to a member ended.
func (b *book) left(id peer.ID, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.peers[id]; e != nil {
		e.LastSeen, b.dirty = now.UTC(), true
	}
}

// lastSeenEvery bounds how old the LastSeen on disk of a connected member may be.
const lastSeenEvery = 10 * time.Minute

// forget removes a member that was revoked. It keeps the member's name, for people.
func (b *book) forget(id peer.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok := b.peers[id]
	if !ok {
		return
	}
	delete(b.peers, id)
	left := *c
	left.Addrs, left.dial = nil, nil
	b.gone = append(slices.DeleteFunc(b.gone, func(g contact) bool { return g.id == id }), left)
	b.gone = b.gone[max(0, len(b.gone)-maxGone):]
	b.dirty = true
}

// revoked returns what is known about a member that was revoked.
func (b *book) revoked(id peer.ID) (contact, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.gone, func(g contact) bool { return g.id == id })
	if i < 0 {
		return contact{}, false
	}
	return b.gone[i], true
}

func (b *book) knows(id peer.ID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peers[id] != nil
}

func (b *book) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.peers)
}

// get returns the entry of a member.
func (b *book) get(id peer.ID) (contact, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.peers[id]; e != nil {
		return *e, true
	}
	return contact{}, false
}

const (
	// bookEvery is how long the book on disk may be out of date. A new member is written with its address after bookSoon.
	bookEvery = 2 * time.Second
	bookSoon  = 50 * time.Millisecond
)

// bookKeeper writes the peer book.
type bookKeeper struct {
	book   *book
	roster *roster
	addrs  peerstore.AddrBook
	log    *slog.Logger
}

// run writes the book as it changes, until ctx ends. Newcomers that arrive together share a write.
func (k bookKeeper) run(ctx context.Context) {
	tick := time.NewTicker(bookEvery)
	defer tick.Stop()
	soon := time.NewTimer(bookEvery)
	defer soon.Stop()
	for more := true; more; {
		select {
		case <-k.book.newcomer:
			soon.Reset(bookSoon)
			continue
		case <-soon.C:
			k.noteAddrs()
		case <-tick.C:
			k.noteAddrs()
		case <-ctx.Done():
			more = false // save one last time
			k.noteAddrs()
		}
		if err := k.book.save(); err != nil {
			k.log.ErrorContext(ctx, "peer book not written", "error", err)
		}
	}
}

// noteAddrs records the addresses of the members that are connected now.
func (k bookKeeper) noteAddrs() {
	now := time.Now()
	for _, g := range k.roster.present() {
		k.book.seen(g.id, k.addrs.Addrs(g.id), now)
	}
}
