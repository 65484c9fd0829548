package daemon

// Doctor: the checks of the inviters, which let hosts in and renew credentials.

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/p2p"
)

// inviterFact counts the inviters that are alive. Without any, credentials end one by one and nobody can join.
func inviterFact(own *p2p.Credential, name string, members []p2p.Member) api.Fact {
	f := api.Fact{Name: "inviters", State: api.FactOK}
	var alive, away []string
	if own.Roles.Has(p2p.RoleInviter) {
		alive = append(alive, name)
	}
	for _, m := range members {
		switch {
		case !m.Roles.Has(p2p.RoleInviter):
		case m.Connected:
			alive = append(alive, m.Name)
		default:
			away = append(away, m.Name)
		}
	}
	switch {
	case len(members) == 0:
		f.State, f.Detail = api.FactSkip, "this host is alone in its cluster"
	case len(alive) == 0:
		f.State = api.FactWarn
		f.Detail = fmt.Sprintf("no host with the role inviter is connected%s: nobody can join, and credentials are not renewed; that of this host ends at %s", known(away), own.NotAfter.UTC().Format(time.RFC3339))
		f.Advice = "nothing stops until then: start an inviter again, or restore its data directory on another host"
	case len(alive) == 1:
		f.State, f.Detail = api.FactWarn, fmt.Sprintf("only %s has the role inviter and is connected%s: without it nobody can join, and all credentials end within 28 days", alive[0], known(away))
		f.Advice = "give the role to two or three hosts: `muster invite --roles worker,scheduler,inviter` on " + alive[0] + ", then `muster join` with its token on another one. If the host that founded the cluster is lost for good, and this is another, that is not enough: put a copy of cluster.key into the data directory of a member and restart its daemon"
	default:
		f.Detail = fmt.Sprintf("%d hosts are connected that let others in and renew credentials", len(alive))
	}
	return f
}

// renewedBy is how long before its end an inviter's credential has normally been renewed. An inviter asks for a renewal
// when half of its 28 days are left, which succeeds if it reaches another inviter that can renew it.
const renewedBy = 12 * 24 * time.Hour

// endFact warns if the credentials of this host's inviters are not renewed, while there is still time to act.
func endFact(end, now time.Time) api.Fact {
	f := api.Fact{Name: "credentials", State: api.FactOK, Detail: "those of the inviters end at " + end.UTC().Format(time.RFC3339)}
	switch {
	case end.IsZero():
		f.State, f.Detail = api.FactSkip, "this host's is signed by the founder itself"
	case end.Sub(now) < renewedBy:
		f.State = api.FactWarn
		f.Detail += ", and are not renewed: neither a second inviter nor the host that founded the cluster has been reached. All hosts that they let in end with them"
		f.Advice = "start another inviter or the founder again, or put a copy of its cluster.key into the data directory of another member and restart that daemon"
	}
	return f
}

// grantFact warns while this inviter depends on the inviter that let it in.
func grantFact(own *p2p.Credential, endorsable bool) api.Fact {
	f := api.Fact{Name: "grants", State: api.FactOK, Detail: "any other inviter can renew this one"}
	switch {
	case !own.Roles.Has(p2p.RoleInviter):
		f.State, f.Detail = api.FactSkip, "this host is no inviter"
	case !endorsable:
		f.State, f.Detail = api.FactWarn, "this inviter depends on the one that let it in: it has no grant of another yet. If that one is lost, it ends at "+own.NotAfter.UTC().Format(time.RFC3339)
		f.Advice = "keep another inviter, or the host that founded the cluster, connected to this one for a minute"
	}
	return f
}

// known names the inviters that are not connected.
func known(away []string) string {
	const most = 3
	switch n := len(away); {
	case n == 0:
		return ""
	case n <= most:
		return fmt.Sprintf(" (known, not connected: %s)", strings.Join(away, ", "))
	default:
		return fmt.Sprintf(" (known, not connected: %s and %d more)", strings.Join(away[:most], ", "), n-most)
	}
}
