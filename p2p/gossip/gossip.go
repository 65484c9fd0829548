// Package gossip is the one topic of a cluster on which schedulers with
// waiting work say what they look for, so that workers who have it come to
// them. It is a hint and may be lost: the DHT finds workers too.
//
// # The topic /muster/<cluster>/schedulers/1
//
// GossipSub, strictly signed: the author of a message is known whoever passed
// it on. The data is a [wirepb.Announcement] of at most [MaxMessage] bytes:
// the author itself, a number greater than that of its announcements before,
// how long the wants hold, classes of hosts with the number of tasks that wait
// for one, and how many workers should open a session to the author.
//
// What is out of bounds, or says to be of another than its author, is
// rejected and not passed on; what is older than what was heard before, or
// comes too often, is ignored and not passed on.
//
// A scheduler announces when its wants change (but not more often than
// [Config.Least]), again every [Config.Every] while it wants something, and
// when a peer of its own joins the topic: what was said before a host came
// never reaches it otherwise. One that wants nothing is silent, and its wants
// run out by themselves.
package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
)

const (
	// MaxMessage bounds an announcement: every host of the cluster carries it.
	MaxMessage = 4 << 10
	// MaxWants bounds the classes of an announcement.
	MaxWants = 64
	// MaxSessions bounds the sessions asked for: what a scheduler keeps.
	MaxSessions = 512
	// maxClass bounds the bytes of a class.
	maxClass = 256
	// maxTTL bounds how long wants hold: a dead scheduler is not looked for.
	maxTTL = 5 * time.Minute
	// maxRPC bounds what GossipSub reads at once: several messages, each in
	// its envelope, or control.
	maxRPC = 64 << 10
	// maxSubscriptions bounds the topics in one message of GossipSub; we have one.
	maxSubscriptions = 16
)

// Config says which topic, and how often it is written to.
type Config struct {
	Cluster string        // the cluster id
	Every   time.Duration // between announcements of the same wants
	Least   time.Duration // between any two
	TTL     time.Duration // how long wants hold where they are heard
}

// DefaultConfig is what daemons use; Cluster is to be set.
func DefaultConfig() Config {
	return Config{Every: 10 * time.Second, Least: time.Second, TTL: 30 * time.Second}
}

// Validate says what cannot work.
func (c Config) Validate() error {
	switch {
	case c.Cluster == "":
		return errors.New("gossip: no cluster")
	case c.Least <= 0 || c.Every < c.Least || c.TTL < c.Every || c.TTL > maxTTL:
		return fmt.Errorf("gossip: at least %s, every %s, wants hold %s: each is to be above the one before, the last at most %s",
			c.Least, c.Every, c.TTL, maxTTL)
	}
	return nil
}

// Want is a class of hosts and how many tasks wait for one of it.
type Want struct {
	Class string
	Count int
}

// Announcement is what a scheduler looks for.
type Announcement struct {
	Seq      uint64
	TTL      time.Duration // from its arrival
	Wants    []Want
	Sessions int // how many workers should open a session
}

// Topic is this daemon's place in the topic.
type Topic struct {
	cfg     Config
	host    host.Host
	member  func(job.Peer) bool
	receive func(job.Peer, Announcement)
	log     *slog.Logger
	heard   *heard
	changed chan struct{} // holds a token while wants are to be looked at

	mu       sync.Mutex
	wants    []Want // guarded by mu
	sessions int    // guarded by mu
}

// New makes a topic on the host; Run joins it. Peers whom member refuses are
// not gossiped with. Announcements of others are given to receive, one after
// the other; it must return soon, or later ones are lost.
func New(cfg Config, h host.Host, member func(job.Peer) bool, receive func(from job.Peer, a Announcement), log *slog.Logger) (*Topic, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Topic{
		cfg: cfg, host: h, member: member, receive: receive, log: log, heard: newHeard(), changed: make(chan struct{}, 1),
	}, nil
}

// Name is the topic's.
func (c Config) Name() string { return "/muster/" + c.Cluster + "/schedulers/1" }

// Announce says from now on what this scheduler looks for, most important
// first, and how many workers should come. No wants: nothing is said. What
// does not fit into an announcement is left out at the end.
func (t *Topic) Announce(wants []Want, sessions int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.Equal(wants, t.wants) && sessions == t.sessions {
		return
	}
	t.wants, t.sessions = slices.Clone(wants), sessions
	t.signal()
}

func (t *Topic) signal() {
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

func (t *Topic) current() ([]Want, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wants, t.sessions
}

// Run takes part in the topic until ctx ends.
func (t *Topic) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx) // ends pubsub, which has no other end
	defer cancel()
	name := t.cfg.Name()
	ps, err := pubsub.NewGossipSub(ctx, t.host,
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithFloodPublish(true), // else a hub's mesh of 12 leaves most workers to lazy gossip
		pubsub.WithMaxMessageSize(maxRPC),
		pubsub.WithSubscriptionFilter(pubsub.WrapLimitSubscriptionFilter(pubsub.NewAllowlistSubscriptionFilter(name), maxSubscriptions)),
		pubsub.WithPeerFilter(func(p peer.ID, _ string) bool { return t.member(job.Peer(p.String())) }),
		pubsub.WithLogger(t.log),
	)
	if err != nil {
		return fmt.Errorf("gossip: start on %s: %w", name, err)
	}
	if err := ps.RegisterTopicValidator(name, t.validate, pubsub.WithValidatorInline(true)); err != nil {
		return fmt.Errorf("gossip: validate %s: %w", name, err)
	}
	topic, err := ps.Join(name)
	if err != nil {
		return fmt.Errorf("gossip: join %s: %w", name, err)
	}
	sub, err := topic.Subscribe()
	if err != nil {
		return fmt.Errorf("gossip: subscribe to %s: %w", name, err)
	}
	events, err := topic.EventHandler()
	if err != nil {
		return fmt.Errorf("gossip: watch %s: %w", name, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { t.listen(ctx, sub) })
	wg.Go(func() { t.greet(ctx, events) })
	t.speak(ctx, topic)
	cancel()
	sub.Cancel()
	events.Cancel()
	wg.Wait()
	return nil
}

// listen hands over what others announce.
func (t *Topic) listen(ctx context.Context, sub *pubsub.Subscription) {
	for {
		msg, err := sub.Next(ctx)
		if err != nil {
			return // the context has ended
		}
		a, ok := msg.ValidatorData.(Announcement)
		if from := msg.GetFrom(); ok && from != t.host.ID() {
			t.receive(job.Peer(from.String()), a)
		}
	}
}

// greet has the wants said again when a peer joins the topic.
func (t *Topic) greet(ctx context.Context, events *pubsub.TopicEventHandler) {
	for {
		e, err := events.NextPeerEvent(ctx)
		if err != nil {
			return // the context has ended
		}
		if e.Type == pubsub.PeerJoin {
			t.signal()
		}
	}
}

// speak announces on change, and again and again while something is wanted.
func (t *Topic) speak(ctx context.Context, topic *pubsub.Topic) {
	timer := time.NewTimer(t.cfg.Every)
	defer timer.Stop()
	var said time.Time
	// Greater than in an earlier life; nobody compares it with another's.
	seq := uint64(time.Now().UnixNano())
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.changed:
		case <-timer.C:
		}
		if wait := t.cfg.Least - time.Since(said); wait > 0 {
			timer.Reset(wait)
			continue
		}
		timer.Reset(t.cfg.Every + rand.N(t.cfg.Every/10))
		wants, sessions := t.current()
		// With no peer in the topic nobody would hear it; greet knows when
		// one comes.
		if len(wants) == 0 || len(topic.ListPeers()) == 0 {
			continue
		}
		seq++
		data, err := t.encode(Announcement{Seq: seq, TTL: t.cfg.TTL, Wants: wants, Sessions: sessions})
		if err == nil {
			err = topic.Publish(ctx, data)
		}
		if err != nil && ctx.Err() == nil {
			t.log.WarnContext(ctx, "wants not announced", "error", err)
		}
		said = time.Now()
	}
}

// encode makes the data of a message, with as many wants as fit.
func (t *Topic) encode(a Announcement) ([]byte, error) {
	a.Sessions = min(max(a.Sessions, 0), MaxSessions)
	a.Wants = a.Wants[:min(len(a.Wants), MaxWants)]
	for {
		data, err := proto.Marshal(toWire(t.host.ID(), a))
		if err != nil {
			return nil, fmt.Errorf("gossip: encode: %w", err)
		}
		if len(data) <= MaxMessage {
			_, err := fromWire(t.host.ID(), data)
			return data, err
		}
		a.Wants = a.Wants[:len(a.Wants)*3/4]
	}
}
