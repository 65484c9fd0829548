// Package session maintains one long-lived stream between two daemons and carries the messages of package contract over
// it. Each daemon can be scheduler and worker at once, so both kinds of messages flow in both directions. A framed stream
// that stays open costs a fifth of a new stream for each message. With a stream for each role, a pair of daemons would
// have two pings, two queues, and two cases of both sides opening a stream at once.
//
// # The protocol /muster/session/1
//
// A message is a length (varint) and a [wirepb.Frame] of at most [MaxFrame] bytes. The length is checked before
// memory is allocated. The stream carries only these frames: logs and files have streams of their own.
//
// Either side may open the stream. The opener sends Open and the other side answers Accept. Only then is the session
// up: an open stream alone proves nothing, because libp2p opens a stream before the other side has heard of it.
//
// A pair has at most one session. If both sides open a stream at once, the stream of the peer with the lower ID is
// kept: while that peer waits for its Accept, it refuses the other's stream. Open and Accept carry the number of
// streams that their sender has opened since it started. With this number a peer can tell two cases apart. A stream
// that was opened before the present session was agreed is out of date, and is refused. A stream that was opened later
// means that the peer has lost the session, and replaces it.
//
// A side that has sent nothing or received nothing for two seconds sends a Ping with a random number. The other side
// answers with a Pong of the same number. The Ping also measures the round trip, and the handler is told the result.
// If nothing arrives for six seconds, the session ends and the connection is closed, so that other protocols stop
// using it too. A session that was not used for a minute rests: the two times are then ten and thirty seconds. Each
// side applies its own times, and the first use ends the rest with a Ping. So an idle host that loses power is shown as
// ready for up to 30 s. Without rest an idle daemon among 100 spent 1.6 % of a core on pings.
//
// A full queue, a stream that accepts no bytes and a Ping without an answer also end the session: a peer that does not
// read is cut off. A daemon that stops sends Goodbye as its last message.
//
// The opener gives up a session that it no longer wants and that nobody uses. It ends its half of the stream between
// two frames, and the other side ends its own half once it has read that. This is not a Goodbye, because the daemon
// goes on, and not silence, because the connection stays. If the other side still wants a session, it opens one and
// becomes the opener. The side that accepted a session gives it up only to make room, in the same way. Ping, Pong and
// the messages that a daemon sends to everybody (Owns, Hello, Availability, a Renew or Renewed without attempts) do not
// count as use.
//
// Most messages need a role of their sender, scheduler or worker (see senders). The roles are those of the credential
// that the peer has shown last. A message that the sender's roles do not allow ends the session, like a message that is
// out of bounds. A peer of an earlier version does not say in Open or Accept that it knows roles; such messages of this
// peer are ignored.
//
// Every message is checked once, on arrival (fromWire), and trusted from then on. A message that is out of bounds or
// unknown ends the session with a reset, and its sender is refused for [Config.BackoffMax], or for longer if that
// happens repeatedly. So a change that an old peer would refuse or misread needs a new protocol number.
//
// If a session breaks off, a Start or a long Event that the peer may not have received is suspected to be the cause. The
// next session sends it alone, and if that session breaks off too, it is sent again only after growing delays
// (trials.go). A job file with fields that this version does not know does not end a session: the worker refuses the
// Start. Open and Accept carry the newest job format that their sender knows, so that owners offer a host only jobs
// that it knows.
//
// A peer may send 32 MiB a second, about 120,000 offers. Each frame counts as longer than it is, because of what it
// costs the receiver (see costOf): an Availability counts as 128 KiB more. A new session costs 4 MiB, and all sessions of
// a peer share one rate. Frames beyond the rate are read later, like frames that the handler has no room for. Only a
// peer that sends Hello or Owns too often is cut off.
package session

import (
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// ID is the libp2p protocol ID.
const ID protocol.ID = "/muster/session/1"

const (
	// MaxFrame bounds one message and so the memory that a peer can make us allocate. It is the largest length that
	// fits in three bytes. The largest messages are a Hello of contract.MaxGPUs devices with all their links (2.7 MB
	// without maxLinks), and a Start with its job file of up to 1 MiB. The first versions had a bound of 1 MiB: they end
	// the session at a longer frame.
	MaxFrame = 1<<21 - 1
	// startRoom bounds a Start without its job file: IDs, numbers, the user's name, the task's line of a list,
	// and the members of its gang.
	startRoom = 4<<10 + job.MaxEntry + job.MaxNodes*(maxPeer+job.MaxName+64)
	// MaxQueue bounds the bytes that are queued for a peer: about what a scheduler sends in one second at full speed, or
	// four of the largest frames.
	MaxQueue = 8 << 20
	// maxRate bounds the bytes that are read from a peer in a second: six times as much as the 20,000 offers that the
	// fastest scheduler is meant to send.
	maxRate = 32 << 20
	// greetTimeout bounds the wait for Open and for Accept, which takes one round trip.
	greetTimeout = 5 * time.Second
	// writeChunk is the number of bytes written under one deadline. A link that cannot carry them within
	// Config.Silence is too slow for a session.
	writeChunk = 128 << 10
	// pingAgain is how often a side measures the round trip if it has no other reason for a Ping.
	pingAgain = 30 * time.Second
	// stableAfter is the age from which a session counts as stable, which resets the back-off.
	stableAfter = 10 * time.Second
	// stuckAfter, times Config.Silence, is the longest time that a Ping may stay unanswered while other frames
	// arrive. It is longer than a full queue takes on a slow link.
	stuckAfter = 5
	// stopGrace bounds the time to write a Goodbye.
	stopGrace = time.Second
)

// Every job file of an accepted size fits into a frame.
const _ = uint(MaxFrame - job.MaxSpecBytes - startRoom)

// Errors that end a session or refuse a message.
var (
	// ErrNoSession means that there is no session with the peer now. Wait for Up.
	ErrNoSession = errors.New("session: none with this peer")
	// ErrInvalid is a message that is out of bounds: a bug of its sender.
	ErrInvalid = errors.New("session: invalid message")
	// ErrRole is a message that its sender's roles do not allow: its credential does not have the role scheduler, or not
	// the role worker.
	ErrRole = errors.New("session: not allowed")
	// ErrFlood means that the peer sends a message too often that is meant to be sent rarely.
	ErrFlood = errors.New("session: flood")
	// ErrBusy means that the peer does not read our messages. The session was cut.
	ErrBusy = errors.New("session: peer does not read")
	// ErrSilent means that nothing arrived from the peer for Config.Silence.
	ErrSilent = errors.New("session: peer is silent")
	// ErrReplaced means that the peer has opened another session.
	ErrReplaced = errors.New("session: replaced by a newer one")
	// ErrGoodbye means that the peer is stopping.
	ErrGoodbye = errors.New("session: peer said goodbye")
	// ErrUnused means that one side has given up the session. A side that still wants a session dials.
	ErrUnused = errors.New("session: not needed any more")
	// ErrStopped means that this daemon is stopping.
	ErrStopped = errors.New("session: stopped")
)

// Config holds the times and bounds of all sessions.
type Config struct {
	PingEvery   time.Duration // time without sending or receiving after which a Ping is sent
	Silence     time.Duration // time without receiving after which the session is cut
	RestEvery   time.Duration // PingEvery of a session without use for IdleAfter
	RestSilence time.Duration // Silence of such a session
	DialTimeout time.Duration // of one dial; allows for a handshake with a busy host
	BackoffMin  time.Duration // upper bound of the delay before the first redial
	BackoffMax  time.Duration // upper bound of the delay before later redials
	IdleAfter   time.Duration // time without use after which an unwanted session is given up, and a wanted one rests
	MaxWanted   int           // sessions that this daemon opens and keeps
	MaxPeers    int           // all sessions, including those that other daemons opened
	// Denied is called with every message that its sender's roles do not allow; it does not block. It may be nil.
	Denied func(p job.Peer, err error)
}

// DefaultConfig returns the configuration of the daemon. All daemons of a cluster should agree on PingEvery and
// Silence. IdleAfter is two lease renewals. MaxWanted allows for tasks on 4,096 hosts at a time. MaxPeers stays below
// the number of connections at which the p2p host begins to close some.
func DefaultConfig() Config {
	return Config{
		PingEvery: 2 * time.Second, Silence: 6 * time.Second, RestEvery: 10 * time.Second, RestSilence: 30 * time.Second,
		DialTimeout: 20 * time.Second,
		BackoffMin:  200 * time.Millisecond, BackoffMax: 10 * time.Second,
		IdleAfter: time.Minute, MaxWanted: 4096, MaxPeers: 6144,
	}
}

// Validate returns an error if the configuration cannot work.
func (c Config) Validate() error {
	switch {
	case c.PingEvery <= 0 || c.Silence < 2*c.PingEvery:
		return fmt.Errorf("session: silence %s is below two pings of %s", c.Silence, c.PingEvery)
	case c.RestEvery < c.PingEvery || c.RestSilence < max(c.Silence, 2*c.RestEvery):
		return fmt.Errorf("session: at rest, silence %s and pings every %s", c.RestSilence, c.RestEvery)
	case c.DialTimeout <= 0 || c.BackoffMin <= 0 || c.BackoffMax < c.BackoffMin:
		return fmt.Errorf("session: dial timeout %s, back-off %s to %s", c.DialTimeout, c.BackoffMin, c.BackoffMax)
	case c.IdleAfter <= 0:
		return fmt.Errorf("session: given up after %s", c.IdleAfter)
	case c.MaxWanted < 1 || c.MaxPeers < c.MaxWanted:
		return fmt.Errorf("session: %d wanted of %d peers", c.MaxWanted, c.MaxPeers)
	}
	return nil
}

// Handler receives the events of all sessions. For one peer the calls come one after the other: Up, then messages in
// the order in which they were sent, then Down, before the next Up. Measured comes between messages: after the first
// answered Ping, and whenever the smoothed round trip has changed by a fourth since the last Measured. A slow call
// blocks only its own session, but the peer may then cut the session because nobody reads. The handler may call Send,
// Want and Unwant.
type Handler interface {
	Up(peer job.Peer, info Info)
	Measured(peer job.Peer, roundTrip time.Duration)
	Down(peer job.Peer, err error)
	FromScheduler(peer job.Peer, msg contract.ToWorker)
	FromWorker(peer job.Peer, msg contract.ToScheduler)
}

// Info describes a session.
type Info struct {
	Peer   job.Peer
	Addr   string        // the peer's multiaddr
	Path   contract.Path // also empty if the peer has an earlier version that does not know gangs
	Opened bool          // this side opened it
	Since  time.Time     // when it came up
	RTT    time.Duration // measured with pings; 0 before the first answer
	Clock  Clock         // measured with pings; not Known before the first answer
}
