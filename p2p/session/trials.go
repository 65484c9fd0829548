package session

// Trials: a message that may have ended a session is held back, so that it does not end the next sessions too.
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

// A Start, or a long Event, is under way until its receiver has answered a later Ping or has reported about its attempt.
// Messages that were under way when a session broke off are suspected. Later sessions send a suspected message as a
// trial, one at a time. If the session breaks off again, the message on trial is blamed, and messages after it are not.
// The blamed message is then held back for trialFirst, and twice as long each further time, up to trialMost. A message
// whose trial has arrived is acquitted.
//
// The first trial has no delay. So nothing is delayed if a host merely lost power while a Start was under way.
const (
	trialFirst = time.Minute
	trialMost  = time.Hour
	// trialGap is how long a message waits while another message is on trial.
	trialGap = time.Second
	// suspicionEnds is how long a suspicion lasts after the session broke off, or after the message could be sent again.
	suspicionEnds = 2 * time.Hour
	// longEvent is the size of output and usage from which an Event counts as long. Shorter Events fit into every packet.
	longEvent = 512
	// maxUnderWay bounds the messages that are remembered for a session, and the suspects of a peer.
	maxUnderWay = 256
	// maxTried bounds the peers with suspects.
	maxTried = 1024
)

// HeldBackError means that a message is not sent now, because sessions with the peer broke off when it was sent before.
// Nothing of it has reached the peer this time. Send it again after Wait.
type HeldBackError struct {
	Wait  time.Duration
	Times int // how often a session broke off; 0: another message is on trial
}

func (e *HeldBackError) Error() string {
	if e.Times == 0 {
		return "session: a message waits for the trial of another one"
	}
	return fmt.Sprintf("session: a message is kept back for %s: the session broke off %d times when it was sent", e.Wait.Round(time.Second), e.Times)
}

// subject identifies a message, so that it is recognized when it is sent again. All Starts with one job file have the
// same subject.
type subject [sha256.Size]byte

// subjectOf returns the subject of a message that may be suspected. It returns false for all others.
func subjectOf(f *wirepb.Frame) (s subject, suspicious bool) {
	switch b := f.GetBody().(type) {
	case *wirepb.Frame_Start:
		copy(s[:], b.Start.GetFile())
		if b.Start.GetGang() != nil {
			s[0] ^= 0xff // a Start with a gang is larger, and not every version knows it
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

// underWay holds the messages of one session that the peer may not have received.
type underWay struct {
	suspects *suspects // of the peer

	mu       sync.Mutex
	sent     []onWay // guarded by mu; oldest first
	n        uint64  // guarded by mu; how many messages were added
	ping     uint64  // guarded by mu; number of the Ping whose answer confirms some of sent; 0: none
	confirms uint64  // guarded by mu; the last message that this answer confirms
	trial    uint64  // guarded by mu; the message that is on trial; 0: none
}

// onWay is one message that is under way.
type onWay struct {
	n       uint64
	subject subject
	attempt job.Attempt
}

// send sends a message that may be suspected, unless it must be held back. put queues the message; ping queues a Ping
// after it and returns the number of the Ping. An Event is never held back: it is sent without its output and usage.
func (u *underWay) send(f *wirepb.Frame, s subject, put func(*wirepb.Frame) error, ping func() (uint64, error)) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	suspected, err := u.suspects.check(s, time.Now())
	if err != nil {
		event := f.GetEvent()
		if event == nil {
			return err
		}
		event.Exit.Tail, event.Exit.Usage = nil, nil // the owner learns at least that the attempt has ended
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
		if number, err := ping(); err == nil { // otherwise a later Ping confirms the trial
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

// sendPing queues a Ping whose answer confirms all messages sent before it. It holds mu, so that no message comes between.
func (u *underWay) sendPing(ping func() (uint64, error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if number, err := ping(); err == nil && u.ping == 0 && len(u.sent) > 0 {
		u.ping, u.confirms = number, u.n
	}
}

// answered records the answer to a Ping.
func (u *underWay) answered(number uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if number != 0 && number == u.ping {
		u.ping = 0
		u.received(u.confirms)
	}
}

// reported records that the peer has reported about an attempt. So the peer has received the Start.
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

// received forgets all messages up to the n-th, which the peer has received. mu is held.
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

// blame suspects the messages that were under way when the session ended for this cause. The receiver reads in order, so
// messages after a trial are not suspected: the trial is.
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
	version string                // guarded by mu; of the peer, by its last Hello; empty: no Hello has come
	knows   features              // features of the peer when the messages became suspected
}

// suspicion is the evidence against one message.
type suspicion struct {
	failed int       // trials of the message in which the session broke off
	until  time.Time // the message is held back until this time
	last   time.Time // when a session last broke off while the message was under way
}

// check returns whether a message is suspected, and a HeldBackError if it must be held back now.
func (s *suspects) check(m subject, now time.Time) (suspected bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, there := s.by[m]
	if there && now.Before(x.until) {
		return true, &HeldBackError{Wait: x.until.Sub(now), Times: x.failed + 1}
	}
	return there, nil
}

// is records the version of the peer. If the version has changed, all suspicions are forgotten.
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

// add suspects a message. failed says that the message was on trial.
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

// expire forgets old suspicions, and returns whether others are left.
func (s *suspects) expire(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetOld(now)
	return len(s.by) > 0
}

// forgetOld forgets old suspicions. mu is held.
func (s *suspects) forgetOld(now time.Time) {
	for m, x := range s.by {
		if now.Sub(x.last) > suspicionEnds && now.Sub(x.until) > suspicionEnds {
			delete(s.by, m)
		}
	}
}

// makeRoom forgets old suspicions. If there are none, it forgets one suspicion of an earlier session: the oldest that has
// not failed a trial, or else the oldest of all. It returns whether there is room now. mu is held.
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

// of returns the suspects of a peer for a new session. If the features of the peer have changed, its suspects are
// forgotten, because the peer has another version now.
func (ts trials) of(p job.Peer, knows features) *suspects {
	if s := ts[p]; s != nil && s.knows == knows {
		return s
	}
	delete(ts, p)
	return &suspects{knows: knows}
}

// ended suspects the messages that were under way in a session that has ended.
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
