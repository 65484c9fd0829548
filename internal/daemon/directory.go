package daemon

// The directory: which daemon owns which journal group. See docs/adr, ADR 114.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/job"
)

// groupKV stores the directory on disk.
type groupKV interface {
	Put(key string, val []byte) error
	Scan(prefix string) (map[string][]byte, error)
	Delete(key string) error
}

// finder looks up peers in the DHT.
type finder interface {
	Find(ctx context.Context, class string, most int) <-chan job.Peer
}

// prover asks a daemon for the proof that it has founded a group.
type prover interface {
	Founding(ctx context.Context, p job.Peer, g job.Group) (job.Founding, error)
}

// errNoOwner is a group whose owner cannot be found. Try again when the daemon that accepted the job is back.
var errNoOwner = errors.New("the daemon that owns them cannot be found; `muster peers` lists the members")

const (
	groupPrefix = "group/"
	maxGroups   = 1 << 16 // far more daemons than a cluster ever has
	// maxGroupsOf bounds the groups of one daemon. A daemon founds one with each data directory that it gets; the oldest
	// group is dropped for a new one.
	maxGroupsOf = 16
	// maxCandidates bounds the daemons that are asked to prove that they have founded a group. proofTime bounds the wait for
	// their answers.
	maxCandidates = 16
	proofTime     = 5 * time.Second
)

// groupClass is the DHT class under which the owner of a group can be found.
func groupClass(g job.Group) string { return "group/" + g.String() }

// homes are the groups of this daemon. New jobs belong to the last one. The one before it, if any, has the jobs that the
// previous version accepted.
type homes []store.Home

func (h homes) has(g job.Group) bool {
	return slices.ContainsFunc(h, func(x store.Home) bool { return x.Group == g })
}

// groups returns the IDs of the groups.
func (h homes) groups() (ids []job.Group) {
	for _, x := range h {
		ids = append(ids, x.Group)
	}
	return ids
}

// directory holds the owners of the groups that this daemon knows. An owner has proved that it has founded the group. The
// directory is safe for concurrent use.
type directory struct {
	self job.Peer
	own  homes
	kv   groupKV
	dht  finder
	ask  prover
	log  *slog.Logger

	mu    sync.Mutex
	owner map[job.Group]job.Peer   // guarded by mu
	of    map[job.Peer][]job.Group // guarded by mu: the groups of each owner, the oldest first
}

func newDirectory(self job.Peer, own homes, kv groupKV, dht finder, ask prover, log *slog.Logger) (*directory, error) {
	d := &directory{
		self: self, own: own, kv: kv, dht: dht, ask: ask, log: log, owner: map[job.Group]job.Peer{}, of: map[job.Peer][]job.Group{},
	}
	rows, err := kv.Scan(groupPrefix)
	if err != nil {
		return nil, fmt.Errorf("node: read the group directory: %w", err)
	}
	for k, v := range rows {
		g, err := job.ParseGroup(strings.TrimPrefix(k, groupPrefix))
		p, proof, _ := strings.Cut(string(v), " ")
		f, err1 := job.ParseFounding(proof)
		if err != nil || err1 != nil || !f.Proves(job.Peer(p), g) {
			continue // an earlier version has stored this owner without a proof
		}
		d.addLocked(g, job.Peer(p))
	}
	return d, nil
}

func (d *directory) addLocked(g job.Group, p job.Peer) {
	d.owner[g] = p
	d.of[p] = append(d.of[p], g)
}

func (d *directory) dropLocked(g job.Group) {
	p, known := d.owner[g]
	if !known {
		return
	}
	delete(d.owner, g)
	if d.of[p] = slices.DeleteFunc(d.of[p], func(x job.Group) bool { return x == g }); len(d.of[p]) == 0 {
		delete(d.of, p)
	}
}

// learn records that a peer owns a group, if the peer has founded it by the proof f. It returns whether the peer is known
// to own the group.
func (d *directory) learn(g job.Group, p job.Peer, f job.Founding) bool {
	if d.own.has(g) {
		return p == d.self
	}
	if d.ownerOf(g) == p {
		return true
	}
	return f.Proves(p, g) && d.bind(g, p, f)
}

// bind records that a peer has proved that it owns a group. It returns false if there is no room.
func (d *directory) bind(g job.Group, p job.Peer, f job.Founding) bool {
	d.mu.Lock()
	if d.owner[g] == "" && len(d.owner) >= maxGroups {
		d.mu.Unlock()
		return false
	}
	d.dropLocked(g)
	var oldest job.Group
	if theirs := d.of[p]; len(theirs) >= maxGroupsOf {
		oldest = theirs[0]
		d.dropLocked(oldest)
	}
	d.addLocked(g, p)
	d.mu.Unlock()
	if oldest != 0 {
		d.remove(oldest)
	}
	if err := d.kv.Put(groupPrefix+g.String(), []byte(string(p)+" "+f.String())); err != nil {
		d.log.Warn("group directory not written", "group", g.String(), "error", err)
	}
	return true
}

func (d *directory) remove(g job.Group) {
	if err := d.kv.Delete(groupPrefix + g.String()); err != nil {
		d.log.Warn("group directory not written", "group", g.String(), "error", err)
	}
}

// ownerOf returns the owner of a group if it is known, else "".
func (d *directory) ownerOf(g job.Group) job.Peer {
	if d.own.has(g) {
		return d.self
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.owner[g]
}

// knows reports whether Owner returns without a search.
func (d *directory) knows(g job.Group) bool {
	return d.ownerOf(g) != ""
}

// Owner returns the daemon that owns a group; self is true if it is this one.
func (d *directory) Owner(ctx context.Context, g job.Group) (p job.Peer, self bool, err error) {
	if d.own.has(g) {
		return d.self, true, nil
	}
	if p := d.ownerOf(g); p != "" {
		return p, false, nil
	}
	if p := d.search(ctx, g); p != "" {
		return p, false, nil
	}
	return "", false, fmt.Errorf("jobs …-%s: %w", g, errNoOwner)
}

// search looks for the owner of a group in the DHT. There any member can claim any group, so search asks all claimants at
// once for their proof.
func (d *directory) search(ctx context.Context, g job.Group) job.Peer {
	ctx, cancel := context.WithTimeout(ctx, proofTime)
	defer cancel()
	proven := make(chan job.Peer, maxCandidates)
	var asking sync.WaitGroup
	n := 0
	for p := range d.dht.Find(ctx, groupClass(g), maxCandidates) {
		if n++; n > maxCandidates {
			break
		}
		asking.Go(func() {
			if f, err := d.ask.Founding(ctx, p, g); err == nil && d.learn(g, p, f) {
				proven <- p
				cancel() // the others need not answer, and no more need to be found
			}
		})
	}
	asking.Wait()
	select {
	case p := <-proven:
		return p
	default:
		return ""
	}
}
