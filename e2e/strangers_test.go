//go:build e2e

package e2e

// A program without a credential of the cluster gets no answer.

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multiaddr"
	"github.com/multiformats/go-multistream"
)

// waitExit waits for a daemon that must refuse to start, and returns its last line.
func (d *daemon) waitExit(words ...string) {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.NewTimer(patience).C:
		d.t.Fatalf("%s is still running; its log:\n%s", d.name, d.log())
	}
	<-d.said
	if code := d.cmd.ProcessState.ExitCode(); code == 0 || !containsAll(d.log(), words) {
		d.t.Errorf("%s: exit %d, want a failure with %q:\n%s", d.name, code, words, d.log())
	}
}

func TestInvalidTokensAreRefused(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			amy := newDaemon(t, "amy", "--gpus", "none").start()
			other := newDaemon(t, "other", "--gpus", "none").start()
			inv := amy.invite("--roles", "worker,scheduler,inviter").over(transport)

			madeUp := inv
			madeUp.Token = "muster1-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
			d := newDaemon(t, "made-up", "--gpus", "none")
			d.launch(madeUp.flags()...)
			d.waitExit("not a token")

			foreign := inv
			foreign.Token = other.invite().Token
			d = newDaemon(t, "foreign", "--gpus", "none")
			d.launch(foreign.flags()...)
			d.waitExit("cluster")

			ben := newDaemon(t, "ben", "--gpus", "none").start(inv.flags()...)
			amy.untilNodes(2)
			elsewhere := inv // well-formed, with a secret that amy never issued
			elsewhere.Token = ben.invite().Token
			from := amy.logged()
			d = newDaemon(t, "elsewhere", "--gpus", "none")
			d.launch(elsewhere.flags()...)
			d.waitExit("token")
			amy.waitLog(from, "refused")

			from = amy.logged()
			d = newDaemon(t, "late", "--gpus", "none")
			d.launch(inv.flags()...)
			d.waitExit("used")
			amy.waitLog(from, "refused")
			amy.untilNodes(2)
		})
	}
}

// TestDaemonWithoutAnInvitationCannotJoin checks that a daemon cannot join with addresses but no token, or with the
// credential of another cluster.
func TestDaemonWithoutAnInvitationCannotJoin(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			amy := newDaemon(t, "amy", "--gpus", "none").start()
			var boot []string
			for _, b := range amy.invite().over(transport).Bootstrap {
				boot = append(boot, "--bootstrap", b)
			}
			ben := newDaemon(t, "ben", "--gpus", "none")
			ben.launch(boot...)
			ben.waitExit("token", "muster invite")
			cat := newDaemon(t, "cat", "--gpus", "none").start()
			cat.kill()
			from, at := amy.logged(), cat.launch(boot...)
			cat.waitLog(at, "refused", "cluster")
			amy.waitLog(from, "refused")
			amy.untilNodes(1)
		})
	}
}

func TestRevokedPeerIsOut(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			amy := newDaemon(t, "amy", "--gpus", "none").start()
			inv := amy.invite("--uses", "2").over(transport)
			ben := newDaemon(t, "ben", "--gpus", "none").start(inv.flags()...)
			cat := newDaemon(t, "cat", "--gpus", "none").start(inv.flags()...)
			for _, d := range []*daemon{amy, ben, cat} {
				d.untilNodes(3)
			}
			from := ben.logged()
			amy.ok("peers", "--revoke", "ben")
			ben.waitLog(from, "revoked")
			amy.untilNodes(2)
			cat.untilNodes(2)
			ben.kill()
			from = ben.launch()
			ben.waitLog(from, "revoked")
			amy.untilNodes(2)
		})
	}
}

// TestRevokedInviterIsRestoredWithItsGuests revokes an inviter with its guests, and restores it. The inviter cannot
// revoke the founder.
func TestRevokedInviterIsRestoredWithItsGuests(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	ben := newDaemon(t, "ben", "--gpus", "none").start(amy.invite("--roles", "worker,scheduler,inviter").flags()...)
	cat := newDaemon(t, "cat", "--gpus", "none").start(ben.invite().flags()...)
	for _, d := range []*daemon{amy, ben, cat} {
		d.untilNodes(3)
	}
	ben.fails(1, []string{"may not revoke"}, "peers", "--revoke", "amy")
	var peers struct {
		Items []struct{ Name, ID string }
	}
	if err := json.Unmarshal([]byte(amy.ok("peers", "--json")), &peers); err != nil {
		t.Fatal(err)
	}
	if out := amy.ok("peers"); strings.Contains(out, "REVOKED") {
		t.Errorf("peers: got a revoked one, want none: %s", out)
	}
	amy.ok("peers", "--revoke", "ben", "--with-invited", "--reason", "stolen")
	amy.untilNodes(1)
	var out struct {
		Items []struct {
			Name, ID, State string
			Revoked         *struct {
				Reason      string
				WithInvited bool `json:"with_invited"`
				Here        bool
			}
		}
	}
	if err := json.Unmarshal([]byte(amy.ok("peers", "--json")), &out); err != nil {
		t.Fatal(err)
	}
	listed := false
	for _, p := range out.Items {
		if p.State == "revoked" && p.Name == "ben" && p.Revoked != nil && p.Revoked.Reason == "stolen" && p.Revoked.WithInvited && p.Revoked.Here {
			listed = strings.Contains(amy.ok("peers"), "muster peers --restore "+p.ID)
		}
	}
	if !listed {
		t.Errorf("ben is not listed as revoked: got %+v", out)
	}
	amy.ok("peers", "--restore", "ben")
	for _, d := range []*daemon{amy, ben, cat} {
		d.untilNodes(3)
	}
}

// TestClientWithoutACredentialIsCutOff checks that a libp2p program without a credential can open only hello and join,
// and is disconnected after five seconds.
func TestClientWithoutACredentialIsCutOff(t *testing.T) {
	t.Parallel()
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	inv := amy.invite()
	var doc struct{ Cluster string }
	if err := json.Unmarshal([]byte(amy.ok("invite", "--json")), &doc); err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			h, err := libp2p.New(libp2p.NoListenAddrs, libp2p.DisableMetrics())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			addr, err := peer.AddrInfoFromString(inv.over(transport).Bootstrap[0])
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for id, served := range map[protocol.ID]bool{
				"/muster/hello/1": true, "/muster/join/1": true,
				"/muster/session/1": false, "/muster/http/1": false, "/muster/revoked/1": false, "/muster/revoked/2": false,
				protocol.ID("/muster/" + doc.Cluster + "/kad/1.0.0"): false,
				"/meshsub/1.2.0": false, "/meshsub/1.1.0": false, "/ipfs/id/1.0.0": false, "/ipfs/id/push/1.0.0": false, "/ipfs/ping/1.0.0": false,
				"/libp2p/circuit/relay/0.2.0/hop": false, "/libp2p/autonat/2/dial-request": false, "/ipfs/kad/1.0.0": false,
			} {
				if got := servesProtocol(ctx, t, h.Network(), *addr, id); got != served {
					t.Errorf("%s: got served %v, want %v", id, got, served)
				}
			}
			conn, err := h.Network().DialPeer(ctx, addr.ID)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			for !conn.IsClosed() && time.Since(start) < 8*time.Second {
				<-time.NewTimer(20 * time.Millisecond).C
			}
			if !conn.IsClosed() {
				t.Error("a stranger is still connected after 8 s")
			}
		})
	}
	if len(amy.nodes().Items) != 1 {
		t.Error("a stranger became a node")
	}
}

// servesProtocol reports whether the daemon accepts the protocol on a new stream.
func servesProtocol(ctx context.Context, t *testing.T, n network.Network, to peer.AddrInfo, id protocol.ID) bool {
	t.Helper()
	n.Peerstore().AddAddrs(to.ID, to.Addrs, time.Hour)
	// Each protocol gets a new connection, so that the five seconds are enough.
	if err := n.ClosePeer(to.ID); err != nil {
		t.Fatal(err)
	}
	var conn network.Conn
	var err error
	for range 50 {
		if conn, err = n.DialPeer(ctx, to.ID); err == nil {
			break
		}
		<-time.NewTimer(100 * time.Millisecond).C
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := conn.NewStream(ctx)
	if err != nil {
		return false
	}
	defer s.Reset()
	if err := s.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return multistream.SelectProtoOrFail(id, s) == nil
}

func TestInvitationLineKeepsTheTokenInAVariable(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	line := amy.ok("invite")
	if !strings.HasPrefix(line, "MUSTER_TOKEN=muster1-") || !strings.Contains(line, " muster daemon --bootstrap /ip4/127.0.0.1/") || strings.Contains(line, "--token") {
		t.Errorf("invite: got %q, want the token in a variable, and the command", line)
	}
	if _, err := multiaddr.NewMultiaddr(amy.invite().Bootstrap[0]); err != nil {
		t.Error(err)
	}
	ben := newDaemon(t, "ben", "--gpus", "none").start()
	inv := amy.invite()
	from := ben.logged()
	ben.ok(append(append([]string{"join"}, inv.Bootstrap...), "--insecure-token", "--token", inv.Token)...)
	ben.waitLog(from, "ready")
	amy.untilNodes(2)
	ben.untilNodes(2)
}
