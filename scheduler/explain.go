package scheduler

// Explanations: which hosts meet a request, and which of them could run it now.

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/place"
	"github.com/musterhq/muster/scheduler/policy"
	"github.com/musterhq/muster/scheduler/step"
)

// explainer compares requests with the known hosts.
type explainer struct {
	*step.Turn
	policies *policies
	hosts    *hosts
}

// of says clause by clause which known hosts meet a request, and which of them could run it now. The id is that of the
// job, or empty.
func (ex *explainer) of(id job.ID, user string, s job.Spec, clauses []fleet.Clause) contract.Explanation {
	hosts := ex.hosts.fleet.Sorted()
	x := contract.Explanation{Job: id, Clauses: fleet.Explain(clauses, hosts), Now: []contract.Candidate{}, Later: []contract.Candidate{}}
	asked := fleet.Asked{Job: id, Need: s.Need(), Priority: s.Priority, Limit: contract.LimitOf(&s)}
	now, later := ex.addCandidates(&x, user, s, asked, clauses, hosts)
	if s.Nodes > 1 {
		x.Clauses = append(x.Clauses, contract.Clause{Clause: fmt.Sprintf("room for a member now; %d are needed at once", s.Nodes), Meets: now, Of: len(hosts)})
	}
	if len(x.Now) == 0 {
		idle := len(x.Later) == 0
		free := fleet.IdleOf
		if !idle {
			free = func(h *fleet.Host) *contract.Free { return fleet.Unkept(h, asked, ex.Now) }
		}
		x.Nearest = fleet.Nearest(clauses, user, asked.Need, s.Nodes, hosts, free)
		x.Nearest.Ever = idle && x.Nearest != (contract.Nearest{})
	}
	x.Reason = explainReason(x, len(hosts))
	if n := s.Nodes; n > 1 && len(hosts) > 0 && (x.Reason.Word == "" || len(x.Later) > 0) {
		x.Reason = gangRoom(n, now, later, x.Reason)
	}
	return x
}

// maxCandidates bounds the hosts that an explanation names.
const maxCandidates = 64

// addCandidates adds the hosts that meet the clauses: those where the request fits now in the order of a placement, and
// the others with what they lack.
//
// It returns how many hosts of each kind there are.
func (ex *explainer) addCandidates(x *contract.Explanation, user string, s job.Spec, asked fleet.Asked, clauses []fleet.Clause, hosts []*fleet.Host) (now, later int) {
	need := asked.Need
	prefers := s.Preferences()
	feasible := map[int][]*fleet.Host{} // by weight
	for _, host := range hosts {
		if !fleet.Meets(clauses, host) {
			continue
		}
		cand := contract.Candidate{Node: host.Peer, Name: host.Name(), Free: host.Free}
		if cand.Why = lacks(host, need); cand.Why == "" {
			if over := host.Quotas.Over(user, need); over != "" {
				cand.Why = job.Reason{Word: job.ReasonQuota, Detail: over}.String()
			}
		}
		if cand.Why == "" {
			cand.Why = fleet.KeptFrom(host, asked, ex.Now)
		}
		if cand.Why == "" {
			w := fleet.Weight(prefers, host)
			feasible[w] = append(feasible[w], host)
			now++
		} else if later++; len(x.Later) < maxCandidates {
			x.Later = append(x.Later, cand)
		}
	}
	ask := policy.Ask{Need: need, Typical: &ex.policies.typical}
	ask.Need.GPUModel = contract.ModelName(ask.Need.GPUModel)
	for _, w := range slices.Backward(slices.Sorted(maps.Keys(feasible))) {
		equal := feasible[w]
		seen := make([]policy.Candidate, len(equal))
		for i, host := range equal {
			seen[i] = policy.CandidateOf(host, &host.Free)
		}
		for _, c := range ex.policies.named[ex.policies.of(&s)].Choose(nil, ask, seen, maxCandidates-len(x.Now)) {
			host := equal[c.Index]
			why := place.Why(need, prefers, host, c.Why)
			x.Now = append(x.Now, contract.Candidate{Node: host.Peer, Name: host.Name(), Why: why, Free: host.Free})
		}
	}
	return now, later
}

// gangRoom returns the reason of a gang, from how many hosts have room for a member now, and how many could have room
// later.
func gangRoom(size, now, later int, why job.Reason) job.Reason {
	switch {
	case now >= size:
		return job.Reason{}
	case now+later >= size:
		return job.Reason{Word: job.ReasonResources, Detail: fmt.Sprintf("a member fits on %d nodes now, and it needs %d at once", now, size)}
	}
	return job.Reason{Word: job.ReasonNoMatch, Detail: strings.TrimSuffix(fmt.Sprintf("it needs %d nodes at once, and %d could run a member; %s", size, now+later, why.Detail), "; ")}
}

// lacks says why the need does not fit at the host now; empty if it does.
func lacks(host *fleet.Host, need job.Resources) string {
	_, lack := host.Devices.Fit(need, &host.Free)
	switch {
	case !host.Up:
		return "does not answer"
	case host.Draining:
		return "takes no tasks: " + host.Detail
	case host.Devices.LacksQuarantined(need, &host.Free):
		return "GPUs that it could give are set aside"
	case lack == "tasks" && host.Free.Exclusive:
		return "a task has it for itself"
	case lack == "tasks":
		return fmt.Sprintf("other tasks are there: %d", host.Free.Tasks)
	case lack != "":
		return "not enough free " + lack + ": " + short(host, need, lack)
	}
	return ""
}

// short says how much of a resource is wanted and how much of it is free. If programs that muster did not start use GPUs
// that the need could have, it names one of these programs for each of a few GPUs.
func short(host *fleet.Host, need job.Resources, lack string) string {
	switch lack {
	case "cpus":
		return fmt.Sprintf("%d wanted, %d free", need.CPUs, host.Free.CPUs)
	case "memory":
		return fmt.Sprintf("%s wanted, %s free", need.Memory, host.Free.Memory)
	}
	text := fmt.Sprintf("%d wanted, %d free", gpu.Count(need), host.Devices.Room(need, &host.Free))
	if need.GPUShare > 0 {
		text = fmt.Sprintf("%g of one wanted", need.GPUShare)
	}
	for _, used := range host.Devices.Foreign(need, &host.Free) {
		text += "; " + used
	}
	return contract.Clip(text)
}

func explainReason(x contract.Explanation, known int) job.Reason {
	switch {
	case known == 0:
		return job.Reason{Word: job.ReasonNoPeers, Detail: "no node that runs tasks is known"}
	case len(x.Now) > 0:
		return job.Reason{}
	case len(x.Later) > 0:
		return job.Reason{Word: job.ReasonResources, Detail: x.Later[0].Name + ": " + x.Later[0].Why}
	}
	var failing []string
	for _, cl := range x.Clauses {
		if cl.Meets < cl.Of && len(cl.Fails) > 0 {
			failing = append(failing, fmt.Sprintf("%s: %d of %d nodes (%s: %s)", cl.Clause, cl.Meets, cl.Of, cl.Fails[0].Name, cl.Fails[0].Reason))
		}
	}
	for _, cl := range x.Clauses {
		if cl.Advice != "" {
			failing = append(failing, cl.Advice)
		}
	}
	return job.Reason{Word: job.ReasonNoMatch, Detail: strings.Join(failing, "; ")}
}

// offers is a dry run of a placement: which hosts could run a job of this user and spec now, and why the others could
// not. The id is that of the job, or empty.
func (ex *explainer) offers(id job.ID, user string, s job.Spec) (contract.Explanation, error) {
	clauses, err := fleet.ClausesOfUser(user, s)
	if err != nil {
		return contract.Explanation{}, fmt.Errorf("%w: %w", step.ErrInvalid, err)
	}
	return ex.of(id, user, s, clauses), nil
}

// shape does the same as offers for a job that was accepted before. It also names the hosts that have refused its
// shape.
func (ex *explainer) shape(user string, s job.Spec, g *fleet.Shape) contract.Explanation {
	s.Priority = g.Priority
	x, err := ex.offers("", user, s)
	if ex.addRefusals(&x, g) {
		x.Reason = explainReason(x, len(ex.hosts.fleet.Sorted()))
	}
	if err != nil {
		x.Reason = job.Reason{Word: job.ReasonNoMatch, Detail: err.Error()}
	}
	return x
}

// addRefusals adds the hosts that have said that they can never run the shape, and removes them from those that could
// run it. It returns false if there are none.
func (ex *explainer) addRefusals(x *contract.Explanation, g *fleet.Shape) bool {
	hosts := ex.hosts.fleet.Sorted()
	said := g.Refusals(hosts)
	if len(said) == 0 {
		return false
	}
	x.Clauses = append(x.Clauses, said...)
	refused := func(cand contract.Candidate) bool {
		w := ex.hosts.workers[cand.Node]
		return w != nil && g.RefusedBy(w.Host) != ""
	}
	x.Now, x.Later = slices.DeleteFunc(x.Now, refused), slices.DeleteFunc(x.Later, refused)
	return true
}
