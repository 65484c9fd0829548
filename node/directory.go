package node

// The directory: which daemon owns which journal group.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/musterhq/muster/job"
)

// groupKV stores the directory on disk.
type groupKV interface {
	Put(key string, val []byte) error
	Scan(prefix string) (map[string][]byte, error)
}

// finder looks up peers in the DHT.
type finder interface {
	Find(ctx context.Context, class string, most int) <-chan job.Peer
}

// errNoOwner is a group whose owner cannot be found. Try again when the daemon that accepted the job is back.
var errNoOwner = errors.New("the daemon that owns them cannot be found; `muster peers` lists the members")

const (
	groupPrefix = "group/"
	maxGroups   = 1 << 16 // far more daemons than a cluster ever has
)

// groupClass is the DHT class under which the owner of a group can be found.
func groupClass(g job.Group) string { return "group/" + g.String() }

// directory holds the owners of the groups that this daemon knows. It is safe for concurrent use.
type directory struct {
	self job.Peer
	own  job.Group
	kv   groupKV
	dht  finder
	log  *slog.Logger

	mu    sync.Mutex
	owner map[job.Group]job.Peer // guarded by mu
}

func newDirectory(self job.Peer, own job.Group, kv groupKV, dht finder, log *slog.Logger) (*directory, error) {
	d := &directory{self: self, own: own, kv: kv, dht: dht, log: log, owner: map[job.Group]job.Peer{}}
	rows, err := kv.Scan(groupPrefix)
	if err != nil {
		return nil, fmt.Errorf("node: read the group directory: %w", err)
	}
	for k, v := range rows {
		if g, err := job.ParseGroup(strings.TrimPrefix(k, groupPrefix)); err == nil {
			d.owner[g] = job.Peer(v)
		}
	}
	return d, nil
}

// learn records that a peer claims to own a group. The newest claim counts.
func (d *directory) learn(g job.Group, p job.Peer) {
	d.mu.Lock()
	known := d.owner[g] == p || g == d.own || len(d.owner) >= maxGroups
	if !known {
		d.owner[g] = p
	}
	d.mu.Unlock()
	if known {
		return
	}
	if err := d.kv.Put(groupPrefix+g.String(), []byte(p)); err != nil {
		d.log.Warn("group directory not written", "group", g.String(), "error", err)
	}
}

// knows reports whether Owner returns without a search.
func (d *directory) knows(g job.Group) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, known := d.owner[g]
	return known || g == d.own
}

// Owner returns the daemon that owns a group; self is true if it is this one.
func (d *directory) Owner(ctx context.Context, g job.Group) (p job.Peer, self bool, err error) {
	if g == d.own {
		return d.self, true, nil
	}
	d.mu.Lock()
	p, ok := d.owner[g]
	d.mu.Unlock()
	if ok {
		return p, false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for p := range d.dht.Find(ctx, groupClass(g), 1) {
		d.learn(g, p)
		return p, false, nil
	}
	return "", false, fmt.Errorf("jobs …-%s: %w", g, errNoOwner)
}
