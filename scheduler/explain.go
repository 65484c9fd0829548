package scheduler

// Explanations: which hosts meet a request, and which of them would take it now.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/lease"
	"github.com/musterhq/muster/scheduler/fleet"
	"github.com/musterhq/muster/scheduler/policy"
)

// explainer compares requests with the known hosts.
type explainer struct {
	hosts  *hosts
	policy policy.Policy
}

// of says clause by clause which known hosts meet a request, and who of
// them would take it now.
func (ex *explainer) of(s job.Spec, clauses []fleet.Clause) lease.Explanation {
	hosts := ex.hosts.fleet.Sorted()
	x := lease.Explanation{Clauses: fleet.Explain(clauses, hosts), Now: []lease.Candidate{}, Later: []lease.Candidate{}}
	ex.addCandidates(&x, s, clauses, hosts)
	x.Reason = explainReason(x, len(hosts))
	return x
}

// maxCandidates bounds the hosts that an explanation names.
const maxCandidates = 64

func (ex *explainer) addCandidates(x *lease.Explanation, s job.Spec, clauses []fleet.Clause, hosts []*fleet.Host) {
	type scored struct {
		candidate lease.Candidate
		score     float64
	}
	var now []scored
	for _, host := range hosts {
		if !fleet.Meets(clauses, &host.Profile) {
			continue
		}
		_, lack := host.Devices.Fit(s.Resources, &host.Free)
		cand := lease.Candidate{Node: host.Peer, Name: host.Name(), Free: host.Free}
		switch {
		case !host.Up:
			cand.Why = "does not answer"
		case host.Draining:
			cand.Why = "takes no tasks: " + host.Detail
		case host.Devices.LacksQuarantined(s.Resources, &host.Free):
			cand.Why = "GPUs that it could give are set aside"
		case lack != "":
			cand.Why = "not enough free " + lack
		default:
			h := policyHost(host, &host.Free)
			cand.Why = ex.policy.Why(s.Resources, h)
			now = append(now, scored{cand, ex.policy.Score(s.Resources, h)})
			continue
		}
		if len(x.Later) < maxCandidates {
			x.Later = append(x.Later, cand)
		}
	}
	slices.SortStableFunc(now, func(a, b scored) int { return -compareScores(a.score, b.score) })
	for _, n := range now[:min(len(now), maxCandidates)] {
		x.Now = append(x.Now, n.candidate)
	}
}

func compareScores(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func explainReason(x lease.Explanation, known int) job.Reason {
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
	return job.Reason{Word: job.ReasonNoMatch, Detail: strings.Join(failing, "; ")}
}

// offers is a dry run: who would take it, and why the others would not.
func (ex *explainer) offers(s job.Spec) (lease.Explanation, error) {
	clauses, err := fleet.ClausesOf(s)
	if err != nil {
		return lease.Explanation{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return ex.of(s, clauses), nil
}

// spec is offers for a spec that was accepted before.
func (ex *explainer) spec(s job.Spec) lease.Explanation {
	x, err := ex.offers(s)
	if err != nil {
		x.Reason = job.Reason{Word: job.ReasonNoMatch, Detail: err.Error()}
	}
	return x
}
