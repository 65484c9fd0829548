package fleet

// For people: how many of the known hosts could run a request, and what the others lack.

import (
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/contract"
)

// Outlook counts the known hosts by what they have for a shape.
type Outlook struct {
	Able        int            // hosts that could ever run the shape
	Open        int            // of Able: those that take tasks
	Fits        int            // of Open: those where it fits now, and the quota allows it
	Quota       string         // why the quota does not allow it at one host that has room
	Quarantined []string       // of Open: names of those that lack only devices in quarantine; at most maxQuarantined
	Lack        map[string]int // of Open: how many lack what; see Devices.Fit
	Foreign     string         // of Open: a host where programs outside muster use the GPUs that are missing; for people
	Draining    int            // of Able: those that have a session and take no tasks
	Detail      string         // why one of the draining hosts takes no tasks
}

// maxQuarantined bounds the names in an Outlook.
const maxQuarantined = 32

// Outlook compares the shape with all known hosts.
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

// add counts an open host.
func (x *Outlook) add(h *Host, s *Shape) {
	x.Open++
	switch {
	case shared(s.Need, &h.Free):
		x.Lack["tasks"]++
	case h.Free.CPUs < s.Need.CPUs:
		x.Lack["cpus"]++
	case h.Free.Memory < s.Need.Memory:
		x.Lack["memory"]++
	case !h.Devices.Suffices(s.Need, &h.Free):
		x.Lack["gpus"]++
		if len(x.Quarantined) < maxQuarantined && h.Devices.LacksQuarantined(s.Need, &h.Free) {
			x.Quarantined = append(x.Quarantined, h.Name())
		}
		if used := h.Devices.Foreign(s.Need, &h.Free); x.Foreign == "" && len(used) > 0 {
			x.Foreign = h.Name() + ": " + strings.Join(used, ", ")
		}
	default:
		if why := s.OverQuota(h); why == "" {
			x.Fits++
		} else if x.Quota == "" {
			x.Quota = h.Name() + ": " + why
		}
	}
}

// Meet says whether at least n known hosts meet all clauses.
func (t *Table) Meet(clauses []Clause, n int) bool {
	return slices.ContainsFunc(t.all, func(h *Host) bool {
		if h != nil && Meets(clauses, h) {
			n--
		}
		return n <= 0
	})
}

// Explain says for each clause how many of the hosts meet it, and why the others do not. It gives advice only for the
// first clause that has some and that no host which runs tasks meets. Later clauses may fail only because of that one,
// such as a mount if no host runs containers.
func Explain(clauses []Clause, hosts []*Host) []contract.Clause {
	out, advised := make([]contract.Clause, 0, len(clauses)), false
	for _, c := range clauses {
		x := contract.Clause{Clause: c.Text, Of: len(hosts)}
		for _, h := range hosts {
			why := c.Test(h)
			if why == "" {
				x.Meets++
			} else if len(x.Fails) < contract.MaxFails {
				x.Fails = append(x.Fails, contract.Failed{Node: h.Peer, Name: h.Name(), Reason: why})
			}
		}
		if !advised && x.Of > 0 && (x.Meets == 0 || noWorkerMeets(&c, hosts)) {
			x.Advice = c.advice
			if c.advise != nil {
				x.Advice = c.advise(hosts)
			}
			advised = x.Advice != ""
		}
		if !c.Quiet || x.Meets < x.Of {
			out = append(out, x)
		}
	}
	return out
}

// noWorkerMeets says whether there are hosts that run tasks, and none of them meets the clause.
func noWorkerMeets(c *Clause, hosts []*Host) bool {
	workers := 0
	for _, h := range hosts {
		if !h.Profile.Worker {
			continue
		}
		if workers++; c.Test(h) == "" {
			return false
		}
	}
	return workers > 0
}

// Refusals returns at most one clause. It says which of the hosts have said that they can never run the shape. Hosts whose
// announced limits forbid it anyway are left out. There is none if no host has refused it.
func (s *Shape) Refusals(hosts []*Host) []contract.Clause {
	if len(s.never) == 0 {
		return nil
	}
	said := func(h *Host) string {
		if !s.allowedAt(h) {
			return ""
		}
		return s.RefusedBy(h)
	}
	return Explain([]Clause{{Text: "allowed by the node", Quiet: true, Test: said}}, hosts)
}
