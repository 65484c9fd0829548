// Package session keeps the one long-lived stream that two daemons have
// between them, and carries the messages of package lease over it: as
// scheduler to worker and as worker to scheduler, both ways at once.
//
// # The protocol /muster/session/1
//
// A message is a length (varint) and a [wirepb.Frame] of at most [MaxFrame]
// bytes; the length is looked at before anything is allocated. Nothing but
// these frames ever crosses the stream: logs and files have streams of their
// own.
//
// Either side may open it. The opener says Open, the other side Accept, and
// only then is the session up: an open stream alone means nothing, since
// libp2p opens one before the other side has heard of it.
//
// There is never more than one session of a pair. If both open at once, the
// stream of the lower peer id stays: who is lower refuses the other's while
// its own is not answered. Open and Accept carry how many streams their sender
// has opened so far in this life of it; so a stream that was given up before
// the present session was agreed is told from one that a peer opens because
// it has lost the session, which replaces it.
//
// Whoever has sent nothing for two seconds sends a Ping, answered by a Pong of
// the same number. Nothing read for six seconds ends the session and closes
// the connection, so that no other protocol goes on using it. A queue that is
// full, a stream that takes nothing and a Ping that is never answered end the
// session: a peer that does not read is cut off, not waited for. Goodbye is
// the last word of a daemon that stops.
//
// A session that its opener wants no more and that nobody uses is given up: the
// opener ends its half of the stream between two frames, and the other side
// ends its own when it has read that. It is no Goodbye, since the daemon goes
// on, and no silence: the connection stays. Who still wants the session opens
// one, and is then the opener. The side that accepted a session gives it up
// only to make room, in the same way. Ping, Pong and what a daemon tells to
// everybody (Owns, Hello, Availability) are no use of a session.
//
// Every message is checked once, where it arrives (fromWire), and trusted
// afterwards. One that is out of its bounds or not known ends the session with
// a reset; its sender is refused for [Config.BackoffMax]. A change that an old
// peer would refuse or misread therefore takes a new protocol number.
//
// A peer may send 32 MiB a second, each frame counting 128 bytes more than it
// has: about 120,000 offers. What is more is read later.
package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
)

// ID is the protocol.
const ID protocol.ID = "/muster/session/1"

const (
	// MaxFrame bounds one message: what a peer can make us allocate, and what a
	// length of three bytes can tell. The largest are a Hello of lease.MaxGPUs
	// devices with all their links and a Start with its job file.
	MaxFrame = 1<<21 - 1
	// startRoom is what a Start needs beside its job file: ids, numbers and the
	// user's name.
	startRoom = 4 << 10
	// MaxQueue bounds the bytes that wait for a peer: what a scheduler says in
	// about a second at full speed, and room for four of the largest frames.
	MaxQueue = 8 << 20
	// maxRate bounds what is read from a peer in a second, in bytes: six times
	// the 20,000 offers that the fastest scheduler is to send.
	maxRate = 32 << 20
	// frameCost is what a frame counts against maxRate beside its bytes.
	frameCost = 128
	// greetTimeout bounds the wait for Open and for Accept, a round trip.
	greetTimeout = 5 * time.Second
	// writeChunk is how much is given to the stream under one deadline: a link
	// that cannot carry it within Config.Silence carries no session.
	writeChunk = 128 << 10
	// pingAgain is how often the round trip is measured on a busy session.
	pingAgain = 10 * time.Second
	// stableAfter is how long a session must have lived to be no flapping one.
	stableAfter = 10 * time.Second
	// stuckAfter times Config.Silence without an answer to a Ping, while other
	// things arrive: longer than a full queue takes on a slow line.
	stuckAfter = 5
	// stopGrace is how long a Goodbye may take to be written.
	stopGrace = time.Second
)

// A job file of any size that is accepted can be sent.
const _ = uint(MaxFrame - job.MaxSpecBytes - startRoom)

// What ends a session or keeps a message from being sent.
var (
	// ErrNoSession: there is no session with the peer now. Wait for Up.
	ErrNoSession = errors.New("session: none with this peer")
	// ErrInvalid is a message out of its bounds: a bug of its sender.
	ErrInvalid = errors.New("session: invalid message")
	// ErrBusy: the peer does not read what it is sent; its session was cut.
	ErrBusy = errors.New("session: peer does not read")
	// ErrSilent: nothing came from the peer for Config.Silence.
	ErrSilent = errors.New("session: peer is silent")
	// ErrReplaced: the peer has opened another session.
	ErrReplaced = errors.New("session: replaced by a newer one")
	// ErrGoodbye: the peer said that it stops.
	ErrGoodbye = errors.New("session: peer said goodbye")
	// ErrUnused: the side that opened it has no more use for it. Whoever wants it
	// dials.
	ErrUnused = errors.New("session: not needed any more")
	// ErrStopped: this daemon stops.
	ErrStopped = errors.New("session: stopped")
)

// Config holds the times and bounds of all sessions.
type Config struct {
	PingEvery   time.Duration // a Ping goes out after so long without a message
	Silence     time.Duration // a peer that says nothing for so long is suspect
	DialTimeout time.Duration // of one try, with a handshake on a busy host
	BackoffMin  time.Duration // the first redial comes within it,
	BackoffMax  time.Duration // later ones within up to this
	IdleAfter   time.Duration // a session that nobody here wants any more is given up after so long without use
	MaxWanted   int           // sessions that this daemon keeps by itself
	MaxPeers    int           // sessions in all, with those that others opened
}

// DefaultConfig is what daemons use; all of a cluster should agree on the
// first two. IdleAfter is two renewals of a lease. MaxWanted allows for tasks on
// 4,096 hosts at a time; MaxPeers stays below the number of connections at which
// the p2p host begins to cut.
func DefaultConfig() Config {
	return Config{
		PingEvery: 2 * time.Second, Silence: 6 * time.Second, DialTimeout: 20 * time.Second,
		BackoffMin: 200 * time.Millisecond, BackoffMax: 10 * time.Second,
		IdleAfter: time.Minute, MaxWanted: 4096, MaxPeers: 6144,
	}
}

// Validate says what cannot work.
func (c Config) Validate() error {
	switch {
	case c.PingEvery <= 0 || c.Silence < 2*c.PingEvery:
		return fmt.Errorf("session: silence %s is below two pings of %s", c.Silence, c.PingEvery)
	case c.DialTimeout <= 0 || c.BackoffMin <= 0 || c.BackoffMax < c.BackoffMin:
		return fmt.Errorf("session: dial timeout %s, back-off %s to %s", c.DialTimeout, c.BackoffMin, c.BackoffMax)
	case c.IdleAfter <= 0:
		return fmt.Errorf("session: given up after %s", c.IdleAfter)
	case c.MaxWanted < 1 || c.MaxPeers < c.MaxWanted:
		return fmt.Errorf("session: %d wanted of %d peers", c.MaxWanted, c.MaxPeers)
	}
	return nil
}

// Handler is told what happens on all sessions. For one peer the calls come
// one after the other: Up, then messages in the order they were sent, then
// Down, before any further Up. A call that takes long holds up its own session
// only, but may cost it: the peer sees that nobody reads. The handler
// may call Send, Want and Unwant.
type Handler interface {
	Up(peer job.Peer, info Info)
	Down(peer job.Peer, err error)
	FromScheduler(peer job.Peer, msg lease.ToWorker)
	FromWorker(peer job.Peer, msg lease.ToScheduler)
}

// Info is what is known about a session.
type Info struct {
	Peer   job.Peer
	Addr   string        // the peer's multiaddr
	Opened bool          // this side opened it
	Since  time.Time     // when it came up
	RTT    time.Duration // measured with pings; 0 until the first was answered
}
