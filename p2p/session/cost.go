package session

// What a frame costs its receiver. A peer's frames are read no faster than it may cause cost; see maxRate.

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// The cost of a frame, in bytes that count against maxRate in addition to its length.
const (
	// frameCost is that of most frames: offers and commits above all.
	frameCost = 128
	// answerCost is that of a frame that makes this daemon answer, or look at many tasks: 30,000 a second.
	answerCost = 1 << 10
	// renewCost is that of a renewal or a Query, which take a round of the journal and a write to the disk: 4,000 a second.
	// A host asks for one in some seconds.
	renewCost = 8 << 10
	// freeCost is that of what is free on a host, which may have tasks compared with it: 256 a second, and fewer if it lists
	// many GPUs. A host tells it ten times a second.
	freeCost = 128 << 10
	// profileCost is that of a message about the whole host or daemon, which changes what is known of it.
	profileCost = 1 << 20
	// sessionCost is that of a session, which may have all tasks at a host looked at when it begins and when it ends: eight a
	// second.
	sessionCost = 4 << 20
)

// costOf returns the cost of a frame.
func costOf(f *wirepb.Frame) int {
	switch f.GetBody().(type) {
	case *wirepb.Frame_Ping, *wirepb.Frame_Pong, *wirepb.Frame_Event, *wirepb.Frame_Decline, *wirepb.Frame_Stale:
		return answerCost
	case *wirepb.Frame_Renew, *wirepb.Frame_Renewed, *wirepb.Frame_Query:
		return renewCost
	case *wirepb.Frame_Availability:
		return freeCost
	case *wirepb.Frame_Hello, *wirepb.Frame_Owns:
		return profileCost
	}
	return frameCost
}

// rates are those at which peers are read. They outlive sessions, so that a new one brings no new allowance. Only the
// manager's goroutine uses them.
type rates map[job.Peer]*rate.Limiter

// of returns the rate of a peer, which its sessions share.
func (rs rates) of(p job.Peer, now time.Time) *rate.Limiter {
	l := rs[p]
	if l == nil {
		if len(rs) >= maxRates {
			for x, l := range rs {
				if l.TokensAt(now) >= maxRate { // as good as a new one
					delete(rs, x)
				}
			}
		}
		l = rate.NewLimiter(maxRate, maxRate)
		rs[p] = l
	}
	return l
}

// maxRates is how many rates are kept before those that were not used lately are forgotten. It is more than there are sessions.
const maxRates = 8192

// A daemon says who it is once in a session, and again when its profile changes, or the groups that it owns. More of that is
// a flood.
const (
	profileEvery = time.Second
	profileBurst = 64
)

// profiles counts the messages about a whole host or daemon.
type profiles struct{ limiter *rate.Limiter }

func newProfiles() profiles {
	return profiles{rate.NewLimiter(rate.Every(profileEvery), profileBurst)}
}

// check returns an error if such a message comes too often: the session is to be cut.
func (p profiles) check(f *wirepb.Frame) error {
	switch f.GetBody().(type) {
	case *wirepb.Frame_Hello, *wirepb.Frame_Owns:
		if !p.limiter.Allow() {
			return fmt.Errorf("%w: it says again and again what it has", ErrFlood)
		}
	}
	return nil
}

// checks are those of a frame before it is decoded.
type checks struct {
	roles    roleCheck
	profiles profiles
}

// check returns an error if the session is to be cut. drop is true for a frame that is ignored.
func (c *checks) check(f *wirepb.Frame) (drop bool, err error) {
	if drop, err = c.roles.check(f); drop || err != nil {
		return drop, err
	}
	return false, c.profiles.check(f)
}
