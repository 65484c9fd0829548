package session

// What a frame costs its receiver. The cost of a peer's frames is limited to a rate, and they are read no faster; see
// maxRate.

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/musterhq/muster/internal/ratelimit"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// The cost of a frame, in bytes that count against maxRate in addition to its length.
const (
	// frameCost is the cost of most frames, mainly offers and commits.
	frameCost = 128
	// answerCost is the cost of a frame that makes this daemon answer, or check many tasks. It allows 30,000 a second.
	answerCost = 1 << 10
	// renewCost is the cost of a renewal or a Query, which need a round of the journal and a write to disk. It allows 4,000
	// a second. A host sends one every few seconds.
	renewCost = 8 << 10
	// freeCost is the cost of an Availability, after which this daemon may compare waiting tasks with the host. It allows
	// 256 a second, or fewer if the host lists many GPUs. A host sends up to ten a second.
	freeCost = 128 << 10
	// profileCost is the cost of a message about a whole host or daemon, which updates all that is known about it.
	profileCost = 1 << 20
	// sessionCost is the cost of a session: when it begins and when it ends, this daemon may check all tasks of the host. It
	// allows eight a second.
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

// maxRates is the number of limiters at which unused ones are forgotten. It is more than Config.MaxPeers.
const maxRates = 8192

// rates holds the rate limiter of each peer. The limiters outlive sessions, so that a new session brings no new
// allowance. Only the manager's goroutine uses rates.
type rates struct{ peers *ratelimit.Keys[job.Peer] }

func newRates() rates {
	return rates{ratelimit.New[job.Peer](ratelimit.Rule{Rate: maxRate, Burst: maxRate, Most: maxRates})}
}

// of returns the limiter of a peer, which all its sessions share.
func (rs rates) of(p job.Peer, now time.Time) *rate.Limiter {
	return rs.peers.Kept(p, now)
}

func newLimiter() *rate.Limiter { return rate.NewLimiter(maxRate, maxRate) }

// A daemon sends Hello and Owns once in a session, and again when its profile or the groups that it owns change. Sending
// them more often is a flood.
const (
	profileEvery = time.Second
	profileBurst = 64
)

// profiles limits the messages about a whole host or daemon.
type profiles struct{ limiter *rate.Limiter }

func newProfiles() profiles {
	return profiles{rate.NewLimiter(rate.Every(profileEvery), profileBurst)}
}

// check returns an error if such a message comes too often; the session must then be cut.
func (p profiles) check(f *wirepb.Frame) error {
	switch f.GetBody().(type) {
	case *wirepb.Frame_Hello, *wirepb.Frame_Owns:
		if !p.limiter.Allow() {
			return fmt.Errorf("%w: it says again and again what it has", ErrFlood)
		}
	}
	return nil
}

// checks are the checks of a frame before it is decoded.
type checks struct {
	roles    roleCheck
	profiles profiles
}

// check returns an error if the session must be cut. drop is true if the frame must be ignored.
func (c *checks) check(f *wirepb.Frame) (drop bool, err error) {
	if drop, err = c.roles.check(f); drop || err != nil {
		return drop, err
	}
	return false, c.profiles.check(f)
}
