package session

// The bounds of what the members of a gang are told about each other.

import (
	"errors"
	"net/netip"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

var (
	errGang = errors.New("a gang has too few or too many members, the same one twice, or another rank")
	errAddr = errors.New("not an IP address at which other hosts could reach one")
)

// checkGang checks the gang of a Start, and the rank of its task.
func checkGang(g *contract.Gang, rank int) error {
	if g == nil {
		if rank != 0 {
			return errGang
		}
		return nil
	}
	if len(g.Members) < 2 || len(g.Members) > job.MaxNodes || rank < 0 || rank >= len(g.Members) {
		return errGang
	}
	if g.Port < 1 || g.Port > maxPort {
		return errRange
	}
	seen := make(map[job.Peer]bool, len(g.Members))
	for _, m := range g.Members {
		if m.Node == "" || seen[m.Node] {
			return errGang
		}
		seen[m.Node] = true
		if len(m.Name) > job.MaxName || !printable(m.Name) {
			return errName
		}
		if err := errors.Join(checkPeer(m.Node), checkAddress(m.Address)); err != nil {
			return err
		}
	}
	return nil
}

// checkAddress accepts an IP address in its usual form. It refuses an IPv6 link-local address, which other hosts cannot
// use.
func checkAddress(s string) error {
	a, err := netip.ParseAddr(s)
	if err != nil || a.String() != s || !reachable(a) {
		return errAddr
	}
	return nil
}
