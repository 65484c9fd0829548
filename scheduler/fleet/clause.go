package fleet

// Clauses: the demands of a request on a host. The same test decides whether a host meets a demand, and explains why it
// does not.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// Clause is one demand on a host.
type Clause struct {
	Text string // for people: "memory: 8GiB"
	// Test returns why the host does not meet the demand; empty if it does. It compares with what the host has, not
	// with what is free.
	Test   func(h *Host) string
	met    func(h *Host) bool // says whether Test returns nothing, without the words; nil: there is no faster way
	amount bool               // of CPUs or memory: searches compare footprints instead, which is faster
	gpus   bool               // it is about the number of GPUs
	held   bool               // it is about how much a user may hold
	advice string             // what would help if no host meets it; empty: only another request would
	// advise is advice that depends on the hosts; nil: there is none.
	advise func(hosts []*Host) string
	// Quiet leaves the clause out of explanations where every host meets it.
	Quiet bool
}

// ClausesOfUser returns the demands of a job of a user.
func ClausesOfUser(user string, s job.Spec) ([]Clause, error) {
	out, err := ClausesOf(s)
	if err != nil {
		return nil, err
	}
	met := func(h *Host) bool { return runsTasksOf(h, user) }
	return append(append(out, limitClauses(user, &s)...), Clause{Text: "user: " + user, Quiet: true, met: met, Test: func(h *Host) string {
		only := h.Profile.OnlyUser
		switch {
		case met(h):
			return ""
		case only != "" && only != user:
			return contract.Clip("runs only tasks of " + only)
		case turnsRootAway(h, user):
			return "runs no jobs of root (its daemon needs --allow-root)"
		}
		return contract.Clip("has no user " + user)
	}}), nil
}

// raiseLimits is the advice if no host lets the user have what a job asks for.
const raiseLimits = "ask for less, or ask an operator of a node to raise the limit"

// limitClauses demand a host whose limits let the user have the resources of one task of the job, its priority and its
// time limit.
func limitClauses(user string, s *job.Spec) []Clause {
	need, priority, limit := s.Need(), s.Priority, s.TimeLimit
	return []Clause{
		{held: true, Text: contract.Clip("limits of user " + user), Quiet: true, advice: raiseLimits, Test: func(h *Host) string { return neverHolds(h, user, need) }},
		{Text: fmt.Sprintf("priority: %d", priority), Quiet: true, advice: raiseLimits, Test: func(h *Host) string { return neverGoes(h, user, priority) }},
		{Text: "time limit: " + timeText(limit), Quiet: true, advice: raiseLimits, Test: func(h *Host) string { return h.Profile.Limits.NeverFor(user, limit) }},
	}
}

// timeText returns a time limit as text for people.
func timeText(limit job.Duration) string {
	if limit == 0 {
		return "none"
	}
	return limit.String()
}

// runsTasksOf says whether the host runs tasks of the user, by its profile and by what it has refused.
func runsTasksOf(h *Host, user string) bool {
	return (h.Profile.OnlyUser == "" || h.Profile.OnlyUser == user) && !turnsRootAway(h, user) && (h.Quotas.Users() == 0 || !h.Quotas.lacks(user))
}

func turnsRootAway(h *Host, user string) bool { return h.Profile.NoRoot && user == contract.Root }

// ClausesOf returns the demands of a job that do not depend on its user. The error says what is wrong with its
// constraint or its lists of nodes.
func ClausesOf(s job.Spec) ([]Clause, error) {
	out := append(driverClauses(s), mountClauses(s)...)
	out = append(out, resourceClauses(s.Resources)...)
	if s.Nodes > 1 {
		out = append(out, addressClause)
	}
	out = append(out, formatClauses(&s)...)
	c, err := job.ParseConstraint(s.Constraint)
	if err != nil {
		return nil, err
	}
	for _, term := range c.Terms() {
		met := func(h *Host) bool { return term.Met(h.told.of(s.TrustedLabels)) }
		out = append(out, Clause{Text: "constraint " + term.Text + trusting(s), met: met, advise: noSuchLabel(term, s.TrustedLabels), Test: func(h *Host) string {
			if met(h) {
				return ""
			}
			return contract.Clip(term.Has(h.told.of(s.TrustedLabels)))
		}})
	}
	for _, list := range []struct {
		field   string
		entries []string
		has     bool   // whether a host must be listed
		why     string // why a host fails the clause
		advise  func(hosts []*Host) string
	}{{"nodelist", s.NodeList, true, "not listed", noSuchNode(s.NodeList)}, {"exclude", s.Exclude, false, "excluded", nil}} {
		nodes, err := job.ParseNodes(list.entries)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", list.field, err)
		}
		if len(list.entries) == 0 {
			continue
		}
		out = append(out, Clause{advise: list.advise, Text: contract.Clip(list.field + ": " + job.NodesText(list.entries)), Test: func(h *Host) string {
			if nodes.Has(h.Profile.Name, h.Peer) == list.has {
				return ""
			}
			return list.why
		}})
	}
	return out, nil
}

// addressClause demands a host that the other members of a gang reach at its own address.
var addressClause = Clause{Text: "address: reachable", Test: func(h *Host) string {
	switch {
	case h.Local || h.Address != "":
		return ""
	case !h.Profile.Knows(job.FormatGangs):
		return "has an earlier version, which does not know gangs"
	}
	return "has no address that the others could use: its session goes through a relay, or by a link-local address"
}}

// formatClauses demand a host whose version knows all fields of the job.
func formatClauses(s *job.Spec) []Clause {
	need, field := s.NeededFormat()
	if field == "" {
		return nil
	}
	met := func(h *Host) bool { return h.Profile.Knows(need) }
	return []Clause{{Text: "version: knows " + field, Quiet: true, met: met, Test: func(h *Host) string {
		if met(h) {
			return ""
		}
		return "has an earlier version, which does not know the field " + field
	}}}
}

// driverClauses demand a Docker engine if the task has an image, else a host that starts processes. If the task gets
// input, they also demand a host that passes it on. If only signed labels count, they demand a host that knows those.
func driverClauses(s job.Spec) []Clause {
	all := []Clause{driverClause(s)}
	if s.TakesInput() {
		all = append(all, Clause{Text: "driver: " + contract.DriverInput, Test: func(h *Host) string {
			if slices.Contains(h.Profile.Drivers, contract.DriverInput) {
				return ""
			}
			return "has an earlier version, which passes no input to tasks"
		}})
	}
	if s.TrustedLabels {
		all = append(all, Clause{Text: "driver: " + contract.DriverSigned, Test: func(h *Host) string {
			if slices.Contains(h.Profile.Drivers, contract.DriverSigned) {
				return ""
			}
			return "has an earlier version, which does not know trusted labels"
		}})
	}
	return all
}

// trusting is the part of a constraint's text that says that only signed labels count; empty if all labels count.
func trusting(s job.Spec) string {
	if s.TrustedLabels {
		return " (signed labels)"
	}
	return ""
}

func driverClause(s job.Spec) Clause {
	driver, advice := contract.DriverExec, ""
	if s.Image != "" {
		driver, advice = contract.DriverDocker, noEngine
	}
	return Clause{Text: "driver: " + driver, advice: advice, Test: func(h *Host) string {
		switch {
		case !h.Profile.Worker:
			return "runs no tasks"
		case slices.Contains(h.Profile.Drivers, driver):
			return ""
		case driver == contract.DriverDocker:
			return "no Docker engine"
		}
		return "has " + strings.Join(h.Profile.Drivers, ", ")
	}}
}

const (
	noEngine = "a job with --image needs a node where a Docker engine runs and the daemon finds it (its setting docker-host)"
	// noMount is followed by the directory.
	noMount = "a node's daemon must let containers mount the directory: its setting docker-mount, as in muster daemon --docker-mount "
)

// mountClauses demand a host that allows each mount of the job. What a host without an engine would allow is not known.
func mountClauses(s job.Spec) []Clause {
	var out []Clause
	for _, text := range s.Mounts {
		m, err := job.ParseMount(text)
		if err != nil {
			continue // a spec is checked before it comes here
		}
		out = append(out, Clause{Text: "mount: " + m.Source, advice: contract.Clip(noMount + m.Source), Test: func(h *Host) string {
			switch {
			case m.Below(h.Profile.Mounts):
				return ""
			case !slices.Contains(h.Profile.Drivers, contract.DriverDocker):
				return "no Docker engine"
			case len(h.Profile.Mounts) == 0:
				return "lets containers see no directory (docker-mount)"
			}
			return "lets containers see " + strings.Join(h.Profile.Mounts, ", ")
		}})
	}
	return out
}

// resourceClauses demand the CPUs, the memory and the GPUs.
func resourceClauses(need job.Resources) []Clause {
	var out []Clause
	if need.CPUs > 0 {
		out = append(out, Clause{amount: true, Text: fmt.Sprintf("cpus: %d", need.CPUs), Test: func(h *Host) string {
			if h.Profile.CPUs >= need.CPUs {
				return ""
			}
			return fmt.Sprintf("has %d", h.Profile.CPUs)
		}})
	}
	if need.Memory > 0 {
		out = append(out, Clause{amount: true, Text: "memory: " + need.Memory.String(), Test: func(h *Host) string {
			if h.Profile.Memory >= need.Memory {
				return ""
			}
			return "has " + h.Profile.Memory.String()
		}})
	}
	if n := gpu.Count(need); n > 0 {
		out = append(out, Clause{gpus: true, Text: "gpus: " + gpuText(need), Test: func(h *Host) string {
			if len(h.Profile.GPUs) == 0 {
				return "has none"
			}
			if meet := meeting(h.Profile.GPUs, need); meet < n {
				return hasText(h.Profile.GPUs, meet)
			}
			return ""
		}})
	}
	return out
}

// hasText describes the devices of a host that has too few that fit: "has 2 × h100-80gb, none of them fits".
func hasText(devices []gpu.Device, fitting int) string {
	text := fmt.Sprintf("has %d × %s", len(devices), devices[0].Class)
	switch fitting {
	case len(devices):
		return text
	case 0:
		return text + ", none of them fits"
	case 1:
		return text + ", 1 of them fits"
	}
	return fmt.Sprintf("%s, %d of them fit", text, fitting)
}

// gpuText describes the GPUs of a need: "2 × h100 ≥ 80GB".
func gpuText(need job.Resources) string {
	text := fmt.Sprint(need.GPUs)
	if need.GPUShare > 0 {
		text = fmt.Sprintf("%g of 1", need.GPUShare)
	}
	if need.GPUModel != "" {
		text += " × " + need.GPUModel
	}
	if need.GPUMemory > 0 {
		text += " ≥ " + need.GPUMemory.String()
	}
	return text
}

// Meets says whether the host meets every clause.
func Meets(clauses []Clause, h *Host) bool {
	for i := range clauses {
		c := &clauses[i]
		if c.met != nil && !c.met(h) || c.met == nil && c.Test(h) != "" {
			return false
		}
	}
	return true
}
