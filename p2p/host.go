package p2p

// The host: this daemon in the libp2p network. It joins the parts of the package and runs them.

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/job"
)

// Config configures a Host.
type Config struct {
	// DataDir holds the key, the credential and the peer book. If it is empty, nothing outlives the process.
	DataDir string
	// Name is shown to people.
	Name string
	// Version is sent to other members.
	Version string
	// Listen holds multiaddrs; all must work. If empty: TCP and QUIC on DefaultPort, IPv4 and, if available, IPv6.
	Listen []string
	// Bootstrap holds multiaddrs of members that end in /p2p/ID.
	Bootstrap []string
	// Token lets this daemon join a cluster if it is in none.
	Token string
	// CredentialLife is the lifetime of credentials that this daemon signs. Credentials of inviters last inviterLives times
	// as long.
	CredentialLife time.Duration
	// Given is the identity and membership if they do not come from DataDir.
	Given *Given
	// Audit is told which peers ask for admission, and which are refused. It may be nil.
	Audit Auditor
	// Metrics gets the metrics of libp2p; nil: there are no metrics.
	Metrics prometheus.Registerer
	// Options are further libp2p options.
	Options []libp2p.Option
	// Sockets are options of the UDP sockets, for example to use a simulated network.
	Sockets []quicreuse.Option
}

// DefaultPort is the TCP and UDP port on which a daemon listens.
const DefaultPort = 4701

const (
	defaultLife = 7 * 24 * time.Hour
	minLife     = time.Minute
	maxLife     = 30 * 24 * time.Hour
	maxVersion  = 64
)

// DefaultConfig returns the defaults of a daemon.
func DefaultConfig() Config {
	return Config{Version: "dev", CredentialLife: defaultLife}
}

// Validate returns an error that names a value out of range.
func (c Config) Validate() error {
	if c.CredentialLife < minLife || c.CredentialLife > maxLife {
		return fmt.Errorf("p2p: credential life %s: want %s to %s", c.CredentialLife, minLife, maxLife)
	}
	if err := checkHello(c.Name, make([]byte, 32)); err != nil {
		return fmt.Errorf("p2p: name %.80q: want at most %d printable characters", c.Name, MaxName)
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

// Host is a daemon's libp2p host. It joins the parts below; each of them has its own state.
type Host struct {
	Grants    *Grants
	Revoked   *RevokedPeers
	Twins     *Twins
	cfg       Config
	own       *ownMembership
	roster    *roster
	revoked   *revocations
	book      *book
	admission *admission
	issuer    *issuer
	gates     *gates
	guard     guard
	host      host.Host
	joiner    *joiner
	dialer    *dialer
	renewer   *renewer
	spreader  *spreader
	log       *slog.Logger
	close     func() error // closes the libp2p host; further calls do nothing
}

// New builds a host that does not listen and belongs to no cluster yet. Call Enter next.
func New(cfg Config, log *slog.Logger) (*Host, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := disk{cfg.DataDir}
	me, err := ownIdentity(cfg, d)
	if err != nil {
		return nil, err
	}
	key, err := me.libp2p()
	if err != nil {
		return nil, fmt.Errorf("p2p: own key: %w", err)
	}
	h := newDeciders(cfg, newOwnMembership(me, cfg.Name, cfg.CredentialLife, d), log)
	opts, err := options(cfg, key, h.gates, h.admission)
	if err != nil {
		return nil, err
	}
	node, err := libp2p.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("p2p: libp2p: %w", err)
	}
	h.addActors(node)
	node.Network().Notify(&network.NotifyBundle{ConnectedF: h.onConnected, DisconnectedF: h.onDisconnected})
	for id, serve := range map[protocol.ID]func(network.Stream){
		HelloID: h.admission.serveHello, JoinID: h.issuer.serveJoin, RevokedID: h.spreader.serveRevoked,
		RevokedFirstID: h.spreader.serveRevoked, TwinID: h.Twins.serve,
	} {
		if err := h.Handle(id, serve); err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	return h, nil
}

// newDeciders makes the parts that need no network: identity, membership and admission.
func newDeciders(cfg Config, own *ownMembership, log *slog.Logger) *Host {
	h := &Host{cfg: cfg, own: own, roster: newRoster(), revoked: newRevocations(own.disk), book: newBook(own.disk), log: log}
	h.Grants = &Grants{own: own, roster: h.roster, book: h.book}
	h.Revoked = &RevokedPeers{own: own, revoked: h.revoked, book: h.book}
	h.admission = newAdmission(own, h.roster, h.revoked, h.book, log)
	h.admission.visits = visits{cfg.Audit}
	h.issuer = newIssuer(own, h.admission, &invites{disk: own.disk}, log)
	h.gates = newGates(h.admission, h.issuer, log)
	h.guard = guard{roster: h.roster, visits: h.admission.visits, log: log}
	return h
}

// addActors adds the parts that act on the network.
func (h *Host) addActors(node host.Host) {
	h.host = node
	h.close = sync.OnceValue(node.Close)
	members := connected{network: node.Network(), roster: h.roster, log: h.log}
	h.dialer = newDialer(h.own, h.cfg.Bootstrap, node, h.admission, h.log)
	h.Twins = newTwins(h.own, members, h.dialer, h.book, h.log)
	h.joiner = &joiner{own: h.own, book: h.book, gates: h.gates, settle: h.settle, changed: h.onClusterChanged, log: h.log}
	h.renewer = &renewer{
		own: h.own, members: members, admission: h.admission, now: make(chan struct{}, 1), asked: map[peer.ID]time.Time{}, log: h.log,
	}
	h.spreader = &spreader{
		own: h.own, revoked: h.revoked, book: h.book, members: members, behind: h.admission.behind, news: make(chan struct{}, 1),
		renew: h.renewer.soon, log: h.log,
	}
}

// ownIdentity returns the given key, or the key in the data directory.
func ownIdentity(cfg Config, d disk) (identity, error) {
	if cfg.Given != nil {
		return newIdentity(cfg.Given.Key)
	}
	return loadIdentity(d)
}

func (h *Host) onConnected(_ network.Network, c network.Conn) {
	h.roster.connected(c.RemotePeer())
	if g, ok := h.roster.get(c.RemotePeer()); ok {
		h.admission.compare(g)
	}
}

func (h *Host) onDisconnected(_ network.Network, c network.Conn) {
	now := time.Now()
	h.roster.disconnected(c.RemotePeer(), now)
	h.book.left(c.RemotePeer(), now)
	h.dialer.wake()
}

// onClusterChanged ends the connections to members of the cluster that this daemon left.
func (h *Host) onClusterChanged() {
	for _, p := range h.host.Network().Peers() {
		_ = h.host.Network().ClosePeer(p)
	}
	h.roster.clear()
	h.dialer.wake()
}

// Enter makes the host a member, and then listens. It uses the credential on disk. If there is none, it joins with the
// token, and retries until the token's issuer answers or ctx ends. With neither it founds a cluster. When Enter returns,
// Cluster() is known, and it stays the same until Join.
func (h *Host) Enter(ctx context.Context) error {
	m, err := knownMembership(h.cfg, h.own, h.log)
	if err != nil {
		return err
	}
	if m != nil {
		if err := h.settle(m); err != nil {
			return err
		}
	}
	switch {
	case h.cfg.Token != "": // if there already is a credential, join decides what to do with the token
		err = h.joiner.enterBy(ctx, h.cfg.Bootstrap, h.cfg.Token)
	case m != nil:
	case len(h.cfg.Bootstrap) > 0:
		err = errors.New("p2p: bootstrap addresses but no token: get both from `muster invite` on a member")
	default:
		if m, err = found(h.own.identity, h.own.lifeFor(AllRoles)); err == nil {
			h.log.InfoContext(ctx, "founding a cluster", "cluster", m.cluster.String())
			err = h.joiner.become(m)
		}
	}
	if err != nil {
		return err
	}
	if m := h.own.load(); m.secret == nil && !time.Now().Before(m.own.NotAfter) {
		return fmt.Errorf("p2p: the credential of this daemon ended at %s: %w: join again with a token of `muster invite` on a member", m.own.NotAfter.Format(time.RFC3339), ErrExpired)
	}
	return h.listen()
}

// knownMembership returns the membership that this daemon already has, or nil. It ignores an expired membership if there
// is a token.
func knownMembership(cfg Config, own *ownMembership, log *slog.Logger) (*membership, error) {
	if cfg.Given != nil && cfg.Given.Credential != nil {
		return cfg.Given.membership(own.identity)
	}
	m, err := loadMembership(own.disk, own.identity)
	if err != nil || m == nil {
		return nil, err
	}
	if cfg.Token != "" && m.secret == nil && !time.Now().Before(m.own.NotAfter) {
		log.Warn("the credential has expired; joining again", "not_after", m.own.NotAfter)
		return nil, nil
	}
	return m, nil
}

// settle loads the state of the cluster and makes this daemon its member.
func (h *Host) settle(m *membership) error {
	if err := errors.Join(h.revoked.open(m.cluster, m.key), h.issuer.invites.open(m.cluster)); err != nil {
		return err
	}
	h.book.open(m.cluster, h.log)
	h.revoked.forgetIn(h.book) // if the daemon was killed, the book on disk may be older than the list
	h.own.current.Store(m)
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
	h.log.Info("listening", "peer", h.own.identity.id, "addrs", h.Addrs())
	return nil
}

// taken replaces the error for a port in use by an error that says what to do.
func taken(err error) error {
	if strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) { // libp2p passes on only the text
		return errors.New("another program has this port; --listen names another")
	}
	return err
}

// Run keeps the host connected and its credential valid until ctx ends, then closes the host. It ends early with a
// TwinError if an older daemon with the same key runs.
func (h *Host) Run(ctx context.Context) error {
	if h.own.load() == nil {
		return fmt.Errorf("p2p: run: %w", ErrNotReady)
	}
	keeper := bookKeeper{book: h.book, roster: h.roster, addrs: h.host.Peerstore(), log: h.log}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	for _, part := range []func(context.Context){h.dialer.run, h.renewer.run, h.spreader.run, keeper.run} {
		wg.Go(func() { part(ctx) })
	}
	twin := h.Twins.run(ctx)
	stop()
	wg.Wait()
	return errors.Join(twin, h.Close())
}

// Close closes the host. Run does so by itself.
func (h *Host) Close() error {
	if err := h.close(); err != nil {
		return fmt.Errorf("p2p: close: %w", err)
	}
	return nil
}

// Join makes this daemon a member of the token's cluster. It tries each address once. If the daemon is alone in its
// present cluster, it leaves that cluster; if the cluster has other members, Join returns ErrMember. A daemon that is
// already a member of the token's cluster takes the roles and labels of the token; the founder keeps all roles.
func (h *Host) Join(ctx context.Context, bootstrap []string, token string) error {
	return h.joiner.join(ctx, bootstrap, token, true)
}

// Invite opens an invitation. The hosts that use it get the given roles, and the labels, which this daemon signs.
func (h *Host) Invite(ttl time.Duration, uses int, roles Roles, labels ...map[string]string) (Invitation, error) {
	all := map[string]string{}
	for _, l := range labels {
		maps.Copy(all, l)
	}
	return h.issuer.invite(ttl, uses, roles, all, h.Addrs())
}

// Revoke removes a peer from the cluster, or lets it back in. Every daemon that learns of the revocation refuses the
// peer. The daemon with the cluster key can revoke any peer but itself. Any other daemon can revoke the peers that it
// let in, directly or through others.
func (h *Host) Revoke(p job.Peer, how Revoking) error { return h.spreader.revoke(p, how) }

// SetBootstrap replaces the bootstrap addresses of the configuration: multiaddrs that end in /p2p/ID. Existing
// connections stay.
func (h *Host) SetBootstrap(addrs []string) error { return h.dialer.setBootstrap(addrs) }

// Peer returns this daemon's own peer ID.
func (h *Host) Peer() job.Peer { return job.Peer(h.own.identity.id.String()) }

// Cluster returns the cluster ID, empty before Enter.
func (h *Host) Cluster() string {
	if m := h.own.load(); m != nil {
		return m.cluster.String()
	}
	return ""
}

// ClusterKey returns the public key of the cluster, nil before Enter.
func (h *Host) ClusterKey() ed25519.PublicKey {
	if m := h.own.load(); m != nil {
		return m.key
	}
	return nil
}

// Credential returns the credential that this daemon shows, nil before Enter.
func (h *Host) Credential() *Credential {
	if m := h.own.load(); m != nil {
		return m.own
	}
	return nil
}

// Libp2p returns the libp2p host, for further protocols. All its connections are to admitted members; a dial to any
// other peer fails with the reason.
func (h *Host) Libp2p() host.Host { return h.host }

// Addrs returns the addresses at which others reach this daemon, each with /p2p/ID.
func (h *Host) Addrs() []string {
	var addrs []string
	for _, a := range h.host.Addrs() {
		addrs = append(addrs, withPeer(a.String(), h.own.identity.id))
	}
	return addrs
}
