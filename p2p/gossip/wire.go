package gossip

// Encoding and validation of announcements.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	maxAuthors = 16384 // authors that are remembered; far more than the daemons of one cluster
	// remember is how long an author's number is compared. After that, a lower number is accepted: the author's clock may
	// have been set back.
	remember  = 10 * time.Minute
	perSecond = 2  // announcements of one author in a second: twice what Config.Least allows
	burst     = 10 // announcements of one author at once, after a silence
)

var (
	errSize   = fmt.Errorf("gossip: longer than %d bytes", MaxMessage)
	errForged = errors.New("gossip: names a peer that is not its author")
	errBounds = errors.New("gossip: out of bounds")
)

func toWire(self peer.ID, a Announcement) *wirepb.Announcement {
	wants := make([]*wirepb.Want, len(a.Wants))
	for i, w := range a.Wants {
		wants[i] = &wirepb.Want{Class: w.Class, Count: int64(w.Count)}
	}
	return &wirepb.Announcement{
		Peer: self.String(), Seq: a.Seq, TtlNs: int64(a.TTL), Wants: wants, Sessions: int64(a.Sessions),
	}
}

// fromWire decodes and checks what the author has signed; the result is trusted.
func fromWire(author peer.ID, data []byte) (Announcement, error) {
	if len(data) > MaxMessage {
		return Announcement{}, errSize
	}
	var m wirepb.Announcement
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &m); err != nil {
		return Announcement{}, fmt.Errorf("gossip: decode: %w", err)
	}
	if m.GetPeer() != author.String() {
		return Announcement{}, errForged
	}
	a := Announcement{Seq: m.GetSeq(), TTL: time.Duration(m.GetTtlNs()), Sessions: int(m.GetSessions())}
	if a.TTL <= 0 || a.TTL > maxTTL || a.Sessions < 0 || a.Sessions > MaxSessions || len(m.GetWants()) == 0 || len(m.GetWants()) > MaxWants {
		return Announcement{}, errBounds
	}
	for _, w := range m.GetWants() {
		if !isClass(w.GetClass()) || w.GetCount() < 1 || w.GetCount() > job.MaxTasks {
			return Announcement{}, errBounds
		}
		a.Wants = append(a.Wants, Want{Class: w.GetClass(), Count: int(w.GetCount())})
	}
	return a, nil
}

// isClass accepts printable ASCII without spaces.
func isClass(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= maxClass
}

// validate decides whether a message is accepted and passed on. Its signature has been checked already.
func (t *Topic) validate(ctx context.Context, from peer.ID, msg *pubsub.Message) pubsub.ValidationResult {
	a, err := fromWire(msg.GetFrom(), msg.GetData())
	if err != nil {
		t.log.DebugContext(ctx, "announcement rejected", "author", msg.GetFrom(), "from", from, "error", err)
		return pubsub.ValidationReject
	}
	author := job.Peer(msg.GetFrom().String())
	if msg.GetFrom() != t.host.ID() && (!t.members.MayAnnounce(author) || !t.authors.accept(author, a.Seq, time.Now())) {
		return pubsub.ValidationIgnore
	}
	msg.ValidatorData = a
	return pubsub.ValidationAccept
}

// authors remembers the newest sequence number of each author.
type authors struct {
	mu   sync.Mutex
	last map[job.Peer]*author // guarded by mu
}

type author struct {
	seq   uint64
	at    time.Time
	limit *rate.Limiter
}

func newAuthors() *authors { return &authors{last: map[job.Peer]*author{}} }

// accept reports whether the sequence number is higher than all earlier ones of this author, and the author's rate is
// within bounds.
func (h *authors) accept(p job.Peer, seq uint64, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.last[p]
	if a == nil {
		h.forgetLocked(now)
		if len(h.last) >= maxAuthors {
			return false
		}
		a = &author{limit: rate.NewLimiter(perSecond, burst)}
		h.last[p] = a
	} else if seq <= a.seq && now.Sub(a.at) < remember {
		return false
	}
	if !a.limit.AllowN(now, 1) {
		return false
	}
	a.seq, a.at = seq, now
	return true
}

// forgetLocked makes room if needed.
func (h *authors) forgetLocked(now time.Time) {
	if len(h.last) < maxAuthors {
		return
	}
	for p, a := range h.last {
		if now.Sub(a.at) >= remember {
			delete(h.last, p)
		}
	}
}
