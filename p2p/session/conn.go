package session

// One session: a reader, a writer and a watcher on one stream. It lasts until one of them or the manager ends it.

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"golang.org/x/time/rate"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// conn is one session. Only its reader calls the handler.
type conn struct {
	peer   job.Peer
	cfg    Config
	stream network.Stream
	source *source
	frames *frameReader
	out    *outbox
	origin

	lastSent atomic.Int64 // nanoseconds after since: when bytes were last sent
	lastUsed atomic.Int64 // nanoseconds after since: when the watcher last saw that the session was in use
	used     atomic.Bool  // a message has used the session since lastUsed
	resting  atomic.Bool  // nobody uses the session, so the watcher checks it rarely
	leaving  atomic.Bool  // a Goodbye is in the queue
	given    atomic.Bool  // this side has given the session up
	pings    pings
	checks   checks
	files    files[*job.File] // job files that the peer has sent; only the reader uses them

	woken   chan struct{} // a resting session is used again
	cutOnce sync.Once
	cause   error         // set before done is closed
	done    chan struct{} // closed when the session is over
}

// origin is how a session came about.
type origin struct {
	opened bool // this side opened it
	since  time.Time
	path   contract.Path
}

// open is a stream on which Open and Accept were exchanged.
type open struct {
	stream network.Stream
	source *source
	frames *frameReader
	theirs count // the peer's count
	knows  features
}

// features says what the peer knows in addition to the first version of the protocol.
type features struct {
	arrays bool // arrays, and job files that are named by their digest
	gangs  bool
	roles  bool // the peer knows which messages need which role
	format job.Format
}

// greeting is the part of Open and Accept that describes their sender.
type greeting interface {
	GetArrays() bool
	GetGangs() bool
	GetRoles() bool
	GetFormat() uint32
}

// featuresOf returns what a peer knows, as its greeting says. If the greeting names no format, the format follows from
// the other features.
func featuresOf(g greeting) features {
	f := features{arrays: g.GetArrays(), gangs: g.GetGangs(), roles: g.GetRoles(), format: job.FormatFirst}
	switch said := job.Format(min(g.GetFormat(), math.MaxInt32)); {
	case said > 0:
		f.format = said
	case f.roles:
		f.format = job.FormatRoles
	case f.gangs:
		f.format = job.FormatGangs
	case f.arrays:
		f.format = job.FormatArrays
	}
	return f
}

// count is the number of streams that a daemon has opened since its start.
type count struct{ incarnation, n uint64 }

func newConn(cfg Config, peer job.Peer, o open, opened bool) *conn {
	return &conn{
		peer: peer, cfg: cfg, stream: o.stream, source: o.source, frames: o.frames, out: newOutbox(o.knows),
		origin: origin{opened: opened, since: time.Now(), path: o.path()}, files: files[*job.File]{repeats: !o.knows.arrays}, woken: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// path returns the path of the session. It is empty for a peer that does not know gangs, which could not use it.
func (o open) path() contract.Path {
	if !o.knows.gangs {
		return contract.Path{}
	}
	return pathOf(o.stream.Conn())
}

// leave sends a Goodbye; the peer then ends the stream.
func (c *conn) leave() {
	c.leaving.Store(true)
	_ = c.out.put(goodbyeFrame()) // if the queue is full, the end of the stream says the same
	c.out.close()
}

// giveUp ends this side's half of the stream once the queue is written. The peer then ends the stream.
func (c *conn) giveUp() {
	c.given.Store(true)
	c.out.close()
}

// use records that the session is in use. It only sets a flag; the watcher reads the clock.
func (c *conn) use() {
	if c.used.Load() {
		return
	}
	c.used.Store(true)
	if c.resting.Load() {
		c.wake()
	}
}

// wake makes the watcher check the session now.
func (c *conn) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// lastUse returns when the session was last in use. The returned time may be up to Config.PingEvery too late.
func (c *conn) lastUse() time.Time {
	if c.used.Load() {
		return time.Now()
	}
	return c.since.Add(time.Duration(c.lastUsed.Load()))
}

// over reports whether the session has ended.
func (c *conn) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// cut ends the session with the given cause; only the first cause counts. It does not block: the watcher resets the
// stream.
func (c *conn) cut(cause error) {
	c.cutOnce.Do(func() {
		c.cause = cause
		close(c.done)
	})
}

// send puts a frame in the queue. If the queue is full the session is cut.
func (c *conn) send(f *wirepb.Frame) error {
	err := c.out.put(f)
	if errors.Is(err, ErrBusy) {
		c.cut(err)
	}
	return err
}

// sendMessage puts a message of package contract in the queue, unless it must be held back (HeldBackError).
func (c *conn) sendMessage(f *wirepb.Frame) error {
	s, suspicious := subjectOf(f)
	if !suspicious {
		return c.send(f)
	}
	return c.out.underWay.send(f, s, c.send, func() (uint64, error) { return c.sendPing(time.Now()) })
}

func (c *conn) info() Info {
	return Info{
		Peer: c.peer, Addr: c.stream.Conn().RemoteMultiaddr().String(), Path: c.path, Opened: c.opened, Since: c.since, RTT: c.pings.roundTrip(), Clock: c.pings.clock(),
	}
}

// read passes messages to the handler until the session is over, and returns the cause.
func (c *conn) read(h Handler) error {
	for {
		f, err := c.frames.next()
		if err != nil {
			return c.readError(err)
		}
		c.source.owe(costOf(f))
		drop, err := c.checks.check(f)
		if err != nil {
			return err
		}
		if drop {
			continue
		}
		switch b := f.GetBody().(type) {
		case *wirepb.Frame_Ping:
			err = c.send(pong(b.Ping.GetNumber(), time.Now()))
		case *wirepb.Frame_Pong:
			c.out.underWay.answered(b.Pong.GetNumber())
			if rtt, changed := c.pings.answered(b.Pong.GetNumber(), timeOf(b.Pong.GetClock()), time.Now()); changed {
				h.Measured(c.peer, rtt)
			}
		case *wirepb.Frame_Goodbye:
			return ErrGoodbye
		default:
			err = c.deliver(f, h)
		}
		if err != nil {
			return err
		}
		if c.over() {
			return c.cause
		}
	}
}

// readError returns why reading has ended. If the session was cut, its cause explains more than the stream's error.
func (c *conn) readError(err error) error {
	switch {
	case c.over():
		return c.cause
	case c.leaving.Load():
		return ErrStopped
	case c.given.Load(), err == io.EOF: //nolint:errorlint // only the end of the stream between two frames
		return ErrUnused
	}
	return fmt.Errorf("session: read from %s: %w", c.peer, err)
}

func (c *conn) deliver(f *wirepb.Frame, h Handler) error {
	msg, err := fromWire(f, &c.files)
	if err != nil {
		return err
	}
	if inUse(msg) {
		c.use()
	}
	switch m := msg.(type) {
	case contract.ToWorker:
		h.FromScheduler(c.peer, m)
	case contract.Hello:
		if m.Profile.Peer != c.peer {
			return fmt.Errorf("%w: the profile is of %s", ErrInvalid, m.Profile.Peer)
		}
		m.Profile.Format = c.out.knows.format
		c.out.underWay.suspects.is(m.Profile.Version)
		h.FromWorker(c.peer, m)
	case contract.Event:
		if m.N == 1 {
			c.out.underWay.reported(m.Attempt)
		}
		h.FromWorker(c.peer, m)
	case contract.ToScheduler:
		h.FromWorker(c.peer, m)
	}
	return nil
}

// write sends the queue until the session is over. Each round sends all that is queued.
func (c *conn) write() {
	for {
		select {
		case <-c.done:
			return
		case <-c.out.wake:
		}
		b, last := c.out.take()
		if err := c.writeAll(b); err != nil {
			c.cut(err)
			return
		}
		if last {
			// The peer ends the stream once it has read the Goodbye. A reset from here could overtake it.
			_ = c.stream.CloseWrite()
			return
		}
	}
}

func (c *conn) writeAll(b []byte) error {
	for len(b) > 0 {
		chunk := b[:min(len(b), writeChunk)]
		err := c.stream.SetWriteDeadline(time.Now().Add(c.cfg.Silence))
		if err == nil {
			_, err = c.stream.Write(chunk)
		}
		var ne net.Error // the only type that the errors of QUIC and yamux share
		if errors.As(err, &ne) && ne.Timeout() {
			return fmt.Errorf("%w: no bytes accepted for %s", ErrBusy, c.cfg.Silence)
		}
		if err != nil {
			return fmt.Errorf("session: write to %s: %w", c.peer, err)
		}
		b = b[len(chunk):]
		c.lastSent.Store(int64(time.Since(c.since)))
	}
	return nil
}

// watch sends pings, notices silence, and resets the stream of a session that is over.
func (c *conn) watch() {
	timer := time.NewTimer(0) // the first Ping goes out at once, to measure the round trip
	defer timer.Stop()
	brisk := c.since // when the session last came into use after a rest
	for {
		select {
		case <-c.done:
			_ = c.stream.Reset() // also ends a blocked read or write
			return
		case <-timer.C:
		case <-c.woken:
		}
		now := time.Now()
		if c.used.Load() {
			// stored before used is cleared, so that lastUse never misses both
			c.lastUsed.Store(int64(now.Sub(c.since)))
			c.used.Store(false)
		}
		every, silence := c.cfg.PingEvery, c.cfg.Silence
		rests := now.Sub(c.lastUse()) >= c.cfg.IdleAfter
		if rests {
			every, silence = c.cfg.RestEvery, c.cfg.RestSilence
		} else if c.resting.Load() {
			brisk = now
		}
		c.resting.Store(rests)
		if rests && c.used.Load() {
			c.wake() // the session was used before resting was set
		}
		// Silence during a rest does not count against a session that is used again.
		idle := min(c.source.idle(now), now.Sub(brisk))
		switch {
		case idle >= silence:
			c.cut(fmt.Errorf("%w: nothing received for %s", ErrSilent, silence))
			continue
		case idle > 0 && c.pings.unanswered(now) > stuckAfter*c.cfg.Silence:
			// The peer sends, but reads too slowly or not at all.
			c.cut(fmt.Errorf("%w: a ping was not answered", ErrBusy))
			continue
		}
		timer.Reset(min(c.ping(now, every), silence-idle))
	}
}

// ping sends a Ping if one is due, and returns the time until the next check. A Ping is due if nothing was sent, or
// nothing was received, for the given time: the peer may ping less often, but it answers. The side that accepted the
// session waits a little longer, so that one Ping and one Pong serve both sides.
func (c *conn) ping(now time.Time, every time.Duration) time.Duration {
	if !c.opened {
		every += every / 4
	}
	sent := now.Sub(c.since) - time.Duration(c.lastSent.Load())
	quiet := min(max(sent, c.source.idle(now)), c.pings.sinceLast(now, c.since))
	if quiet < every && !c.pings.due(now) {
		return every - quiet
	}
	c.out.underWay.sendPing(func() (uint64, error) { return c.sendPing(now) })
	return every
}

// sendPing queues a Ping and returns its number.
func (c *conn) sendPing(now time.Time) (number uint64, err error) {
	number = c.pings.next(now)
	return number, c.send(&wirepb.Frame{Body: &wirepb.Frame_Ping{Ping: &wirepb.Ping{Number: number}}})
}

// source is the stream as the frame reader sees it. It records how long a read has waited, and limits reads to
// maxRate.
type source struct {
	stream  network.Stream
	start   time.Time
	limiter *rate.Limiter   // shared by the peer's sessions; during the greeting, of this stream alone
	done    <-chan struct{} // ends a wait for the limiter; nil during the greeting
	owed    int             // cost that the limiter has not counted yet; only the reader uses it
	waiting atomic.Int64    // nanoseconds after start at which the current read began to wait; 0 if no read waits
}

func newSource(stream network.Stream) *source {
	return &source{stream: stream, start: time.Now(), limiter: newLimiter()}
}

func (s *source) Read(p []byte) (int, error) {
	s.waiting.Store(max(1, int64(time.Since(s.start))))
	n, err := s.stream.Read(p)
	s.waiting.Store(0)
	if n > 0 {
		s.owed += n
		s.pay()
	}
	return n, err
}

// owe adds the cost of a frame. Small costs are paid with the next read.
func (s *source) owe(cost int) {
	if s.owed += cost; s.owed >= profileCost {
		s.pay()
	}
}

// pay waits until the rate allows the owed cost.
func (s *source) pay() {
	wait := s.limiter.ReserveN(time.Now(), min(s.owed, maxRate)).Delay()
	s.owed = 0
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.done:
		}
	}
}

// idle returns how long the reader has been waiting for bytes; 0 if it is busy.
func (s *source) idle(now time.Time) time.Duration {
	w := s.waiting.Load()
	if w == 0 {
		return 0
	}
	return max(0, now.Sub(s.start)-time.Duration(w))
}
