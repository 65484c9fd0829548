package p2p

// The host: who we are, which cluster we are of, and what runs while we are.

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"
	msmux "github.com/multiformats/go-multistream"

	"github.com/musterhq/muster/job"
)

// Config says how a Host is built.
type Config struct {
	// DataDir keeps the key, the credential and the peer book. With none,
	// nothing outlives the process.
	DataDir string
	// Name is for people.
	Name string
	// Version is told to other members.
	Version string
	// Listen are multiaddrs; all must work. With none: TCP and QUIC on
	// DefaultPort, of IPv4 and, where there is any, IPv6.
	Listen []string
	// Bootstrap are multiaddrs with /p2p/ID of members.
	Bootstrap []string
	// Token lets this daemon into a cluster if it is in none.
	Token string
	// CredentialLife is how long a credential lasts that this daemon signs.
	CredentialLife time.Duration
	// Given is who we are, if that does not come from DataDir.
	Given *Given
	// Options are more libp2p options, such as another network.
	Options []libp2p.Option
}

// DefaultPort is where a daemon listens, TCP and UDP.
const DefaultPort = 4701

const (
	defaultLife = 30 * 24 * time.Hour
	minLife     = time.Minute
	maxLife     = 10 * 365 * 24 * time.Hour
	maxVersion  = 64
)

// DefaultConfig is what a daemon starts from.
func DefaultConfig() Config {
	return Config{Version: "dev", CredentialLife: defaultLife}
}

// Validate says what is out of range.
func (c Config) Validate() error {
	if c.CredentialLife < minLife || c.CredentialLife > maxLife {
		return fmt.Errorf("p2p: credential life %s: want %s to %s", c.CredentialLife, minLife, maxLife)
	}
	if err := checkHello(c.Name, make([]byte, 32)); err != nil {
		return fmt.Errorf("p2p: name %.80q: want at most %d printable letters", c.Name, MaxName)
	}
	if len(c.Version) > maxVersion {
		return fmt.Errorf("p2p: version %.80q: too long", c.Version)
	}
	if _, err := parseAddrs(c.Bootstrap); err != nil {
		return fmt.Errorf("p2p: bootstrap address %w", err)
	}
	for _, l := range c.Listen {
		if _, err := ma.NewMultiaddr(l); err != nil {
			return fmt.Errorf("p2p: listen address %.200q: %w", l, err)
		}
	}
	if c.Token != "" {
		if _, err := parseToken(c.Token); err != nil {
			return fmt.Errorf("p2p: %w", err)
		}
	}
	return nil
}

// Host is a daemon's place in the network.
type Host struct {
	cfg  Config
	log  *slog.Logger
	me   identity
	disk disk
	host host.Host

	seeded  atomic.Pointer[[]string]   // bootstrap addresses of the configuration
	member  atomic.Pointer[membership] // nil until Enter is done
	joining chan struct{}              // one slot, held while member changes
	roster  *roster
	revoked *revocations
	invites *invites
	book    *book

	gates    []*gate // one a transport; fixed when New returns
	doorbell *msmux.MultistreamMuxer[protocol.ID]
	foyer    *foyer
	guesses  *buckets // failed tokens
	noise    *buckets // log lines about refused peers

	awake    chan struct{} // has the keeper look
	renewNow chan struct{}
	news     chan struct{} // new revocations to pass on
	behind   chan peer.ID  // members whose revocations differ
	newcomer chan struct{} // a member that the book on disk lacks

	closeOnce sync.Once
	closeErr  error
}

const (
	// behindQueue bounds the members that wait to be sent revocations; the
	// next hello asks again.
	behindQueue = 256
	noiseEvery  = time.Minute
	noiseBurst  = 5
)

// New builds a host that neither listens nor belongs to a cluster yet: Enter
// comes next.
func New(cfg Config, log *slog.Logger) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := disk{cfg.DataDir}
	var me identity
	var err error
	if cfg.Given != nil {
		me, err = newIdentity(cfg.Given.Key)
	} else {
		me, err = loadIdentity(d)
	}
	if err != nil {
		return nil, err
	}
	key, err := me.libp2p()
	if err != nil {
		return nil, fmt.Errorf("p2p: own key: %w", err)
	}
	h := &Host{
		cfg: cfg, log: log, me: me, disk: d,
		joining: make(chan struct{}, 1), roster: newRoster(), revoked: &revocations{disk: d}, invites: &invites{disk: d}, book: &book{disk: d},
		doorbell: newDoorbell(), foyer: newFoyer(),
		guesses: newBuckets(guessEvery, guessBurst), noise: newBuckets(noiseEvery, noiseBurst),
		awake: make(chan struct{}, 1), renewNow: make(chan struct{}, 1), news: make(chan struct{}, 1), behind: make(chan peer.ID, behindQueue),
		newcomer: make(chan struct{}, 1),
	}
	h.seeded.Store(&cfg.Bootstrap)
	opts, err := h.options(key)
	if err != nil {
		return nil, err
	}
	if h.host, err = libp2p.New(opts...); err != nil {
		return nil, fmt.Errorf("p2p: libp2p: %w", err)
	}
	h.host.Network().Notify(&network.NotifyBundle{ConnectedF: h.onConnected, DisconnectedF: h.onDisconnected})
	for id, serve := range map[protocol.ID]func(network.Stream){HelloID: h.serveHello, JoinID: h.serveJoin, RevokedID: h.serveRevoked} {
		if err := h.Handle(id, serve); err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	return h, nil
}

func (h *Host) onConnected(_ network.Network, c network.Conn) {
	h.roster.connected(c.RemotePeer())
	if g, ok := h.roster.get(c.RemotePeer()); ok {
		h.compare(g)
	}
}

func (h *Host) onDisconnected(_ network.Network, c network.Conn) {
	now := time.Now()
	h.roster.disconnected(c.RemotePeer(), now)
	h.book.left(c.RemotePeer(), now)
	h.wake()
}

// Enter makes the host a member: by the credential on disk, or by the token
// (for as long as its issuer cannot be reached and ctx lasts), or, with
// neither, by founding a cluster. Then it listens. Cluster() is known when it
// returns, and stays the same until Join.
func (h *Host) Enter(ctx context.Context) error {
	m, err := h.known()
	if err != nil {
		return err
	}
	if m != nil {
		if err := h.settle(m); err != nil {
			return err
		}
	}
	switch {
	case h.cfg.Token != "": // Join knows what to do with it if there is a credential already
		err = h.enterBy(ctx, h.cfg.Bootstrap, h.cfg.Token)
	case m != nil:
	case len(h.cfg.Bootstrap) > 0:
		err = errors.New("p2p: bootstrap addresses but no token: get both from `muster invite` on a member")
	default:
		if m, err = found(h.me, h.cfg.CredentialLife); err == nil {
			h.log.InfoContext(ctx, "founding a cluster", "cluster", m.cluster.String())
			err = h.become(m)
		}
	}
	if err != nil {
		return err
	}
	if m := h.member.Load(); m.secret == nil && !time.Now().Before(m.own.NotAfter) {
		return fmt.Errorf("p2p: the credential of this daemon ended at %s: %w", m.own.NotAfter.Format(time.RFC3339), ErrExpired)
	}
	return h.listen()
}

// known is the membership that this daemon has already, or nil. An expired one
// does not count when there is a token for another try.
func (h *Host) known() (*membership, error) {
	if h.cfg.Given != nil && h.cfg.Given.Credential != nil {
		return h.cfg.Given.membership(h.me)
	}
	m, err := loadMembership(h.disk, h.me)
	if err != nil || m == nil {
		return nil, err
	}
	if h.cfg.Token != "" && m.secret == nil && !time.Now().Before(m.own.NotAfter) {
		h.log.Warn("the credential has expired; joining again", "not_after", m.own.NotAfter)
		return nil, nil
	}
	return m, nil
}

// settle loads what belongs to a cluster and makes us its member.
func (h *Host) settle(m *membership) error {
	err := errors.Join(h.revoked.open(m.cluster, m.key), h.invites.open(m.cluster), h.book.open(m.cluster))
	if err != nil {
		return err
	}
	h.member.Store(m)
	return nil
}

// listen opens the listeners.
func (h *Host) listen() error {
	texts, must := h.cfg.Listen, true
	if len(texts) == 0 {
		must = false
		texts = []string{
			fmt.Sprintf("/ip4/0.0.0.0/tcp/%d", DefaultPort), fmt.Sprintf("/ip4/0.0.0.0/udp/%d/quic-v1", DefaultPort),
			fmt.Sprintf("/ip6/::/tcp/%d", DefaultPort), fmt.Sprintf("/ip6/::/udp/%d/quic-v1", DefaultPort),
		}
	}
	for _, text := range texts {
		a, err := ma.NewMultiaddr(text)
		if err == nil {
			err = h.host.Network().Listen(a)
		}
		if err != nil && (must || strings.HasPrefix(text, "/ip4/")) {
			return fmt.Errorf("p2p: listen on %s: %w", text, taken(err))
		}
		if err != nil {
			h.log.Info("not listening", "addr", text, "error", err)
		}
	}
	h.log.Info("listening", "peer", h.me.id, "addrs", h.Addrs())
	return nil
}

// taken says what to do about a port that another program has.
func taken(err error) error {
	if strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) { // libp2p hands on the text alone
		return errors.New("another program has this port; --listen names another")
	}
	return err
}

// Run keeps the host connected and its credential fresh until ctx ends, and
// then closes it.
func (h *Host) Run(ctx context.Context) error {
	if h.member.Load() == nil {
		return fmt.Errorf("p2p: run: %w", ErrNotReady)
	}
	var wg sync.WaitGroup
	for _, part := range []func(context.Context){h.keepConnected, h.tend, h.spread, h.keepBook} {
		wg.Go(func() { part(ctx) })
	}
	wg.Wait()
	return h.Close()
}

// Close ends the host; Run does it by itself.
func (h *Host) Close() error {
	h.closeOnce.Do(func() {
		if err := h.host.Close(); err != nil {
			h.closeErr = fmt.Errorf("p2p: close: %w", err)
		}
	})
	return h.closeErr
}

// Peer is this daemon's own id.
func (h *Host) Peer() job.Peer { return job.Peer(h.me.id.String()) }

// Cluster is the cluster id, empty before Enter.
func (h *Host) Cluster() string {
	if m := h.member.Load(); m != nil {
		return m.cluster.String()
	}
	return ""
}

// ClusterKey is the public key of the cluster, nil before Enter.
func (h *Host) ClusterKey() ed25519.PublicKey {
	if m := h.member.Load(); m != nil {
		return m.key
	}
	return nil
}

// Credential is the one that this daemon shows, nil before Enter.
func (h *Host) Credential() *Credential {
	if m := h.member.Load(); m != nil {
		return m.own
	}
	return nil
}

// Libp2p is the host on which further protocols run. Every connection of it is
// to an admitted member; a dial to anyone else fails with the reason.
func (h *Host) Libp2p() host.Host { return h.host }

// Addrs are the addresses of this daemon for others, with /p2p/ID.
func (h *Host) Addrs() []string {
	var addrs []string
	for _, a := range h.host.Addrs() {
		addrs = append(addrs, withPeer(a.String(), h.me.id))
	}
	return addrs
}
