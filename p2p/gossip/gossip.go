// Package gossip is the one pubsub topic of a cluster. Schedulers with waiting work announce which hosts they look for,
// and workers on such hosts open sessions to them. Announcements are hints and may be lost: the DHT finds workers too.
//
// # The topic /muster/<cluster>/schedulers/1
//
// The topic uses GossipSub with strict signing, so the author of a message is known, whichever member passed it on. The
// data is a [wirepb.Announcement] of at most [MaxMessage] bytes: the author, a sequence number that grows with each of
// its announcements, how long the wants are valid, classes of hosts with the number of tasks that wait for one, and how
// many workers should open a session to the author.
//
// Messages that a neighbour sends beyond its budget, 2 MiB a second, are dropped unread. A message that is out of bounds,
// or whose author field is not its signer, is rejected and not passed on. A message is ignored and not passed on if it is
// older than one already received from its author, if its author announces too often, or if its author is not a scheduler
// of the cluster.
//
// A scheduler announces when its wants change (but not more often than [Config.Least]), again every [Config.Every]
// while it wants something, and when a peer that is connected to it joins the topic, because a new host does not
// receive earlier messages. A scheduler that wants nothing sends nothing, and its wants expire.
package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
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
	// MaxMessage bounds an announcement, because every host of the cluster forwards it.
	MaxMessage = 4 << 10
	// MaxWants bounds the classes of an announcement.
	MaxWants = 64
	// MaxSessions bounds the requested sessions: the number that a scheduler keeps.
	MaxSessions = 512
	// maxClass bounds the bytes of a class.
	maxClass = 256
	// maxTTL bounds how long wants are valid, so that those of a dead scheduler expire.
	maxTTL = 5 * time.Minute
	// maxRPC bounds what GossipSub reads at once: several messages with their envelopes, or control messages.
	maxRPC = 64 << 10
	// maxSubscriptions bounds the topics in one message of GossipSub. Muster has one topic.
	maxSubscriptions = 16
)

// Config says which topic to use, and how often to announce.
type Config struct {
	Cluster string        // cluster ID
	Every   time.Duration // interval between announcements of the same wants
	Least   time.Duration // minimum interval between any two announcements
	TTL     time.Duration // how long wants are valid where they are received
}

// DefaultConfig returns the configuration of daemons, without Cluster.
func DefaultConfig() Config {
	return Config{Every: 10 * time.Second, Least: time.Second, TTL: 30 * time.Second}
}

// Validate returns an error if the configuration cannot work.
func (c Config) Validate() error {
	switch {
	case c.Cluster == "":
		return errors.New("gossip: no cluster")
	case c.Least <= 0 || c.Every < c.Least || c.TTL < c.Every || c.TTL > maxTTL:
		return fmt.Errorf("gossip: want 0 < Least (%s) ≤ Every (%s) ≤ TTL (%s) ≤ %s", c.Least, c.Every, c.TTL, maxTTL)
	}
	return nil
}

// Want is a class of hosts, and the number of tasks that wait for such a host.
type Want struct {
	Class string
	Count int
}

// Announcement is what a scheduler looks for.
type Announcement struct {
	Seq      uint64
	TTL      time.Duration // from its arrival
	Wants    []Want
	Sessions int // number of workers that should open a session
}

// Topic is this daemon's part in the topic.
type Topic struct {
	cfg     Config
	host    host.Host
	members Members
	receive func(job.Peer, Announcement)
	log     *slog.Logger
	authors *authors
	changed chan struct{} // holds a token while an announcement is due

	mu       sync.Mutex
	wants    []Want // guarded by mu
	sessions int    // guarded by mu
}

// Members says who may take part.
type Members interface {
	// MayHear reports whether a peer is a member, and so may get announcements.
	MayHear(p job.Peer) bool
	// MayAnnounce reports whether a peer is a scheduler of the cluster.
	MayAnnounce(p job.Peer) bool
}

// New returns a topic on the host; Run joins it. It calls receive for each announcement of another scheduler, one at a
// time. receive must return soon, or later announcements are lost.
func New(cfg Config, h host.Host, members Members, receive func(from job.Peer, a Announcement), log *slog.Logger) (*Topic, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Topic{
		cfg: cfg, host: h, members: members, receive: receive, log: log, authors: newAuthors(), changed: make(chan struct{}, 1),
	}, nil
}

// Name returns the name of the topic.
func (c Config) Name() string { return "/muster/" + c.Cluster + "/schedulers/1" }

// Announce sets what this scheduler looks for, the most important want first, and how many workers should open a session.
// Without wants nothing is sent. If not all wants fit into an announcement, the last ones are dropped.
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
	ctx, cancel := context.WithCancel(ctx) // only its context ends pubsub
	defer cancel()
	name := t.cfg.Name()
	ps, err := pubsub.NewGossipSub(ctx, t.host,
		pubsub.WithMessageSignaturePolicy(pubsub.StrictSign),
		pubsub.WithFloodPublish(true), // otherwise a host, which has 12 mesh peers, reaches most workers only by lazy gossip
		pubsub.WithMaxMessageSize(maxRPC),
		pubsub.WithAppSpecificRpcInspector(newBudgets().inspect),
		pubsub.WithSubscriptionFilter(pubsub.WrapLimitSubscriptionFilter(pubsub.NewAllowlistSubscriptionFilter(name), maxSubscriptions)),
		pubsub.WithPeerFilter(func(p peer.ID, _ string) bool { return t.members.MayHear(job.Peer(p.String())) }),
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

// listen calls receive for announcements of other hosts.
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

// greet repeats the announcement when a peer joins the topic.
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

// speak announces changes, and repeats the announcement while something is wanted.
func (t *Topic) speak(ctx context.Context, topic *pubsub.Topic) {
	timer := time.NewTimer(t.cfg.Every)
	defer timer.Stop()
	var said time.Time
	// The time makes seq higher than before a restart. seq is compared only with numbers of the same author.
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
		// Without a peer in the topic, nobody would receive the announcement. greet notices the first peer.
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

// encode encodes an announcement, with as many wants as fit.
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

// spread is the time over which the answers to one announcement are spread. In this time a scheduler can greet a few
// hundred workers.
const spread = 500 * time.Millisecond

// Answer decides at random whether a worker that has what is wanted should open a session, and after how long. asked
// is Announcement.Sessions. matching is the number of workers in the cluster that have what is wanted, as far as this
// worker knows. On average slightly more workers answer than asked (by one standard deviation), because workers that are
// missing would come only after the next announcement, 10 s later.
func Answer(asked, matching int, r *rand.Rand) (after time.Duration, open bool) {
	if asked < 1 {
		return 0, false
	}
	enough := float64(asked) + math.Sqrt(float64(asked))
	if r.Float64()*float64(max(matching, 1)) >= enough {
		return 0, false
	}
	return time.Duration(r.Int64N(int64(spread))), true
}
