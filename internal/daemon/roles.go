package daemon

// Roles: what the credentials of this daemon and of others allow.
// See docs/adr, ADR 112.

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/gossip"
	"github.com/musterhq/muster/p2p/session"
)

var _ gossip.Members = grants{}

// grants says what other daemons may do, as far as this one knows.
type grants struct{ host *p2p.Host }

// MayHear reports whether a daemon is a member.
func (g grants) MayHear(p job.Peer) bool {
	_, ok := g.host.Member(p)
	return ok
}

// MayAnnounce reports whether a daemon is a member and accepts jobs.
func (g grants) MayAnnounce(p job.Peer) bool {
	return g.MayHear(p) && g.host.Grants.MayHave(p, p2p.RoleScheduler)
}

// holding finds only daemons that have a role. It ignores what the DHT says about other daemons.
type holding struct {
	finder
	host *p2p.Host
	role p2p.Roles
}

// Find looks up daemons in the DHT.
func (f holding) Find(ctx context.Context, class string, most int) <-chan job.Peer {
	kept := make(chan job.Peer)
	ctx, cancel := context.WithCancel(ctx)
	found := f.finder.Find(ctx, class, 0) // no limit here: it is not known how many will be left out
	go func() {
		defer close(kept)
		defer cancel()
		for n := 0; most == 0 || n < most; {
			p, ok := <-found
			if !ok {
				return
			}
			if !f.host.Grants.MayHave(p, f.role) {
				continue
			}
			select {
			case kept <- p:
				n++
			case <-ctx.Done():
				return
			}
		}
	}()
	return kept
}

// Members returns the members with the role that are connected, or were connected within lostAfter.
func (f holding) Members() []job.Peer {
	var out []job.Peer
	for _, m := range f.host.Members() {
		if m.Roles.Has(f.role) && (m.Connected || time.Since(m.LastSeen) < lostAfter) {
			out = append(out, m.Peer)
		}
	}
	return out
}

// withRoles returns the configuration without the parts for which the credential lacks the role.
func (c Config) withRoles(r p2p.Roles) Config {
	c.NoWorker = c.NoWorker || !r.Has(p2p.RoleWorker)
	c.NoScheduler = c.NoScheduler || !r.Has(p2p.RoleScheduler)
	return c
}

// acceptsNone is the error of a submission to a daemon that accepts no jobs.
func acceptsNone(r p2p.Roles) error {
	if r.Has(p2p.RoleScheduler) {
		return fmt.Errorf("%w here: this daemon was started with --no-scheduler; submit at another one", api.ErrDenied)
	}
	return fmt.Errorf("%w here: this host joined with the roles %s, and only a daemon with the role scheduler accepts jobs: submit at one (`muster peers` lists the roles), or join again with a token of `muster invite --roles worker,scheduler`", api.ErrDenied, r)
}

// deniedCounter counts the messages that their senders' roles do not allow.
func deniedCounter(m *session.Manager) prometheus.CounterFunc { //nolint:ireturn // the type that prometheus has
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "muster_role_denied_total", Help: "Messages of other daemons that their roles do not allow.",
	}, func() float64 { return float64(m.Denied()) })
}
