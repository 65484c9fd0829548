package session

// Trials: a message with which a session may have ended is kept back, so that it does not end the next sessions too.
// See docs/adr, ADR 165.

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// A Start, or a long Event, is under way until its receiver has answered a Ping that came after it, or has reported about its
// attempt. What was under way when a session broke off is suspected. In later sessions the same is sent as a trial, one at a
// time: if the session breaks off again, it was the cause, and whatever followed it was not. Then it is kept back for
// trialFirst, and twice as long each time, up to trialMost. Who has received a trial is acquitted.
//
// A host that lost power while a Start was under way costs nothing by that: the first trial has no delay.
const (
	trialFirst = time.Minute
	trialMost  = time.Hour
	// trialGap is how long a message waits for the trial of another one.
	trialGap = time.Second
	// suspicionEnds is for how long a message is suspected after its last trial could have been.
	suspicionEnds = 2 * time.Hour
	// longEvent is the output and usage from which an Event counts as long. Shorter ones fit into every packet.
	longEvent = 512
	// maxUnderWay bounds the messages of a session that are remembered, and the suspects of a peer.
	maxUnderWay = 256
	// maxTried bounds the peers with suspects.
	maxTried = 1024
)

// HeldBackError is a message that is not sent now, because sessions with the peer broke off when it was. Nothing of it has
// reached the peer. Send it again after Wait.
type HeldBackError struct {
	Wait  time.Duration
	Times int // that a session broke off; 0: another message is on trial
}

func (e *HeldBackError) Error() string {
	if e.Times == 0 {
		return "session: a message waits for the trial of another one"
	}
	return fmt.Sprintf("session: a message is kept back for %s: the session broke off %d times when it was sent", e.Wait.Round(time.Second), e.Times)
}

// subject is what a message says, in so far as it is known again when it is sent once more. Starts of one job are the same.
type subject [sha256.Size]byte

// subjectOf returns the subject of a message that may be suspected. It returns false for all others.
func subjectOf(f *wirepb.Frame) (s subject, suspicious bool) {
	switch b := f.GetBody().(type) {
	case *wirepb.Frame_Start:
		copy(s[:], b.Start.GetFile())
		if b.Start.GetGang() != nil {
			s[0] ^= 0xff // it is larger, and not every version knows it
		}
		return s, true
	case *wirepb.Frame_Event:
		m := b.Event
		if x := m.GetExit(); len(x.GetTail())+len(x.GetUsage()) >= longEvent {
			a := m.GetAttempt()
			return sha256.Sum256(fmt.Appendf(nil, "event %d of %s %d %d", m.GetN(), a.GetJob(), a.GetTask(), a.GetN())), true
		}
	}
	return s, false
}

// underWay are the messages of one session that its peer may not have received.
type underWay struct {
	suspects *suspects // of the peer

	mu       sync.Mutex
	sent     []onWay // guarded by mu; oldest first
	n        uint64  // guarded by mu; how many messages were added
	ping     uint64  // guarded by mu; number of the Ping that is to confirm some of them; 0: none
	confirms uint64  // guarded by mu; the last message that it confirms
	trial    uint64  // guarded by mu; the message that is on trial; 0: none
}

// onWay is one message.
type onWay struct {
	n       uint64
	subject subject
	attempt job.Attempt
}

// send sends a message that may be suspected, unless it is to be kept back. put puts it into the queue, and ping puts a Ping
// behind it and returns its number.
func (u *underWay) send(f *wirepb.Frame, s subject, put func(*wirepb.Frame) error, ping func() (uint64, error)) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	suspected, err := u.suspects.check(s, time.Now())
	if err != nil {
		event := f.GetEvent()
		if event == nil {
			return err
		}
		event.Exit.Tail, event.Exit.Usage = nil, nil // its owner learns at least the end
		return put(f)
	}
	if suspected && u.trial != 0 && u.subjectOf(u.trial) != s && f.GetEvent() == nil {
		return &HeldBackError{Wait: trialGap}
	}
	if err := put(f); err != nil {
		return err
	}
	u.n++
	m := onWay{n: u.n, subject: s, attempt: attempt(f.GetStart().GetAttempt())}
	if u.sent = append(u.sent, m); len(u.sent) > maxUnderWay {
		u.sent = u.sent[1:]
	}
	if suspected && u.trial == 0 {
		u.trial = u.n
		if number, err := ping(); err == nil { // else a later Ping confirms it
			u.ping, u.confirms = number, u.n
		}
	}
	return nil
}

// subjectOf returns the subject of a message. mu is held.
func (u *underWay) subjectOf(n uint64) subject {
	for i := range u.sent {
		if u.sent[i].n == n {
			return u.sent[i].subject
		}
	}
	return subject{}
}

// sendPing puts a Ping into the queue. Its answer confirms all that was sent before, and nothing is sent meanwhile.
func (u *underWay) sendPing(ping func() (uint64, error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if number, err := ping(); err == nil && u.ping == 0 && len(u.sent) > 0 {
		u.ping, u.confirms = number, u.n
	}
}

// answered notes the answer to a Ping.
func (u *underWay) answered(number uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if number != 0 && number == u.ping {
		u.ping = 0
		u.received(u.confirms)
	}
}

// reported notes that the peer has reported about an attempt: it has received the Start.
func (u *underWay) reported(a job.Attempt) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.sent {
		if u.sent[i].attempt == a {
			u.received(u.sent[i].n)
			return
		}
	}
}

// received forgets all messages up to the n-th. mu is held.
func (u *underWay) received(n uint64) {
	done := 0
	for done < len(u.sent) && u.sent[done].n <= n {
		u.suspects.acquit(u.sent[done].subject)
		done++
	}
	u.sent = u.sent[done:]
	if len(u.sent) == 0 {
		u.sent = nil
	}
	if u.trial != 0 && u.trial <= n {
		u.trial = 0
	}
}

// blame suspects what was under way when the session ended for this cause. The receiver reads in order: what followed a trial
// is not to blame if the trial is.
func (u *underWay) blame(cause error, now time.Time) {
	if errors.Is(cause, ErrGoodbye) || errors.Is(cause, ErrStopped) || errors.Is(cause, ErrUnused) || deserved(cause) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.sent {
		m := &u.sent[i]
		if u.trial != 0 && m.n > u.trial {
			break
		}
		u.suspects.add(m.subject, m.n == u.trial, now)
	}
}

// suspects are the suspected messages to one peer.
type suspects struct {
	mu      sync.Mutex
	by      map[subject]suspicion // guarded by mu
	version string                // guarded by mu; of the peer, by its last Hello; empty: none has come
	knows   features              // of the peer when they became suspected
}

// suspicion is what speaks against a message.
type suspicion struct {
	failed int       // trials with which a session broke off
	until  time.Time // it is kept back
	last   time.Time // when a session broke off with it
}

// check returns whether a message is suspected, and a HeldBackError if it is to be kept back now.
func (s *suspects) check(m subject, now time.Time) (suspected bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, there := s.by[m]
	if there && now.Before(x.until) {
		return true, &HeldBackError{Wait: x.until.Sub(now), Times: x.failed + 1}
	}
	return there, nil
}

// is notes the version of the peer. What was suspected of another one is forgotten.
func (s *suspects) is(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version != "" && s.version != version {
		clear(s.by)
	}
	s.version = version
}

func (s *suspects) acquit(m subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by, m)
}

// add suspects a message. failed says that it was on trial.
func (s *suspects) add(m subject, failed bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, there := s.by[m]
	if !there && len(s.by) >= maxUnderWay && !s.makeRoom(now) {
		return
	}
	x.last = now
	if failed {
		x.until = now.Add(min(trialFirst<<min(x.failed, 10), trialMost))
		x.failed++
	}
	if s.by == nil {
		s.by = map[subject]suspicion{}
	}
	s.by[m] = x
}

// expire forgets the suspicions that are old. It returns whether there are others.
func (s *suspects) expire(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetOld(now)
	return len(s.by) > 0
}

// forgetOld forgets the suspicions that are old. mu is held.
func (s *suspects) forgetOld(now time.Time) {
	for m, x := range s.by {
		if now.Sub(x.last) > suspicionEnds && now.Sub(x.until) > suspicionEnds {
			delete(s.by, m)
		}
	}
}

// makeRoom forgets the old suspicions, or else one of a session before this one: the oldest of those that have not failed on
// trial, or the oldest of all. It returns whether there is room now. mu is held.
func (s *suspects) makeRoom(now time.Time) bool {
	if s.forgetOld(now); len(s.by) < maxUnderWay {
		return true
	}
	var first subject
	var least suspicion
	found := false
	for m, x := range s.by {
		if !x.last.Before(now) {
			continue
		}
		failed, others := x.failed > 0, least.failed > 0
		if !found || !failed && others || failed == others && x.last.Before(least.last) {
			first, least, found = m, x, true
		}
	}
	if found {
		delete(s.by, first)
	}
	return found
}

// trials are the suspects of all peers. Only the manager's goroutine uses it.
type trials map[job.Peer]*suspects

// of returns the suspects of a peer for a new session. Those of a peer that knows more than before, or less, are forgotten:
// it has another version now.
func (ts trials) of(p job.Peer, knows features) *suspects {
	if s := ts[p]; s != nil && s.knows == knows {
		return s
	}
	delete(ts, p)
	return &suspects{knows: knows}
}

// ended suspects what was under way in a session that has ended.
func (ts trials) ended(c *conn, now time.Time) {
	s := c.out.underWay.suspects
	c.out.underWay.blame(c.cause, now)
	if !s.expire(now) {
		if ts[c.peer] == s {
			delete(ts, c.peer)
		}
		return
	}
	if ts[c.peer] == nil && len(ts) >= maxTried {
		for p, other := range ts {
			if !other.expire(now) || len(ts) >= maxTried {
				delete(ts, p)
			}
			if len(ts) < maxTried {
				break
			}
		}
	}
	ts[c.peer] = s
}
