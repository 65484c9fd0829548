package fleet

// How a request stands with the known hosts, for people.

import (
	"slices"

	"github.com/musterhq/muster/lease"
)

// Outlook is how a shape stands with the known hosts.
type Outlook struct {
	Able        int            // hosts that could ever run it
	Open        int            // of them take tasks
	Fits        int            // of those have what it needs free
	Quota       string         // what one of these says of its user's quota
	Quarantined []string       // open hosts that lack just what they have in quarantine; at most maxQuarantined
	Lack        map[string]int // open hosts by what they lack: "cpus", "memory" or "gpus"
	Draining    int            // of Able
	Detail      string         // why one of the draining takes nothing
}

// maxQuarantined bounds the hosts that an outlook names.
const maxQuarantined = 32

// Outlook looks at all known hosts.
func (t *Table) Outlook(s *Shape) Outlook {
	x := Outlook{Lack: map[string]int{}}
	for h := range t.Candidates(s) {
		x.Able++
		switch {
		case h.Open():
			x.add(h, s)
		case h.Up:
			x.Draining++
			if x.Detail == "" && h.Detail != "" {
				x.Detail = h.Name() + ": " + h.Detail
			}
		}
	}
	return x
}

func (x *Outlook) add(h *Host, s *Shape) {
	x.Open++
	switch {
	case h.Free.CPUs < s.Need.CPUs:
		x.Lack["cpus"]++
	case h.Free.Memory < s.Need.Memory:
		x.Lack["memory"]++
	case !h.Devices.Suffices(s.Need, &h.Free):
		x.Lack["gpus"]++
		if len(x.Quarantined) < maxQuarantined && h.Devices.LacksQuarantined(s.Need, &h.Free) {
			x.Quarantined = append(x.Quarantined, h.Name())
		}
	default:
		if why := s.OverQuota(h); why == "" {
			x.Fits++
		} else if x.Quota == "" {
			x.Quota = h.Name() + ": " + why
		}
	}
}

// AnyMeets says whether a known host meets all clauses.
func (t *Table) AnyMeets(clauses []Clause) bool {
	return slices.ContainsFunc(t.all, func(h *Host) bool { return h != nil && Meets(clauses, &h.Profile) })
}

// Explain says clause by clause which of the hosts meet it, and why the others do not.
func Explain(clauses []Clause, hosts []*Host) []lease.Clause {
	out := make([]lease.Clause, 0, len(clauses))
	for _, c := range clauses {
		x := lease.Clause{Clause: c.Text, Of: len(hosts)}
		for _, h := range hosts {
			why := c.Test(&h.Profile)
			if why == "" {
				x.Meets++
			} else if len(x.Fails) < lease.MaxFails {
				x.Fails = append(x.Fails, lease.Failed{Node: h.Peer, Name: h.Name(), Reason: why})
			}
		}
		out = append(out, x)
	}
	return out
}
