package session

// Bans: a peer whose session was cut for what it sent is refused for a while. Repeated bans get longer.

import (
	"errors"
	"time"

	"github.com/musterhq/muster/job"
)

const (
	// sameBans is how many bans in a row have the shortest length. A peer may be cut a few times because a new version has a
	// defect or because the peer has lost a role.
	sameBans = 3
	// longestBan bounds a ban.
	longestBan = 10 * time.Minute
	// bansKept is how long after its end a ban still makes the next one longer.
	bansKept = time.Hour
	// maxBans bounds the peers that are remembered. Only members can be banned, and each takes about 100 bytes. When there
	// are more, the ban that ends first is forgotten.
	maxBans = 8192
)

// bans holds the peers that were banned lately. Only the manager's goroutine uses it.
type bans struct {
	shortest time.Duration
	by       map[job.Peer]ban
}

type ban struct {
	until time.Time
	times int // in a row
}

// deserved reports whether a session that ended with err earns its peer a ban.
func deserved(err error) bool {
	return errors.Is(err, ErrInvalid) || errors.Is(err, ErrRole) || errors.Is(err, ErrFlood)
}

// add bans a peer, and returns for how long.
func (b *bans) add(p job.Peer, now time.Time) time.Duration {
	x := b.by[p]
	if now.Sub(x.until) > bansKept {
		x.times = 0
	}
	if len(b.by) >= maxBans && x.times == 0 {
		b.makeRoom(now)
	}
	d := min(longestBan, b.shortest<<max(0, min(x.times-sameBans+1, 16)))
	x.until, x.times = now.Add(d), x.times+1
	if b.by == nil {
		b.by = map[job.Peer]ban{}
	}
	b.by[p] = x
	return d
}

// until returns when the peer may have a session again; a time in the past if it may now.
func (b *bans) until(p job.Peer) time.Time { return b.by[p].until }

// makeRoom forgets bans that no longer count. If that is not enough, it forgets one more.
func (b *bans) makeRoom(now time.Time) {
	var first job.Peer
	for p, x := range b.by {
		if now.Sub(x.until) > bansKept {
			delete(b.by, p)
		} else if first == "" || x.until.Before(b.by[first].until) {
			first = p
		}
	}
	if len(b.by) >= maxBans {
		delete(b.by, first)
	}
}
