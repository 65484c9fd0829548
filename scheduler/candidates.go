package scheduler

// Which hosts would start a job now, and which could start it later.

import (
	"cmp"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// whyOf explains the state of a job, of which j is the view.
func (vs *views) whyOf(j job.Job) (contract.Explanation, error) {
	e := vs.entries.byID[j.ID]
	s := j.Spec
	if e != nil {
		s.Priority = e.priority
	}
	x, err := vs.explain.offers(j.ID, j.User, s)
	if e != nil {
		avoidHeldBack(vs.Now, e, &x)
		avoidAwayHost(vs.placement, e, &x)
	}
	byAllotment(vs, &x, j.User, &s, e.anyShape())
	x.Job, x.State, x.Reason, x.Starts = j.ID, j.State(), j.Reason, j.Starts
	return x, err
}

// anyShape returns the shape of the job's tasks; nil if none of them has waited.
func (e *entry) anyShape() *shape {
	if e == nil {
		return nil
	}
	for _, t := range e.tasks {
		if t.shape != nil {
			return t.shape
		}
	}
	return nil
}

// byAllotment moves the hosts that would start a task now to those that could later, if the limits of its user for all hosts
// together forbid a start now. g is the job's shape; nil if it is not known here.
func byAllotment(vs *views, x *contract.Explanation, user string, s *job.Spec, g *shape) {
	var need contract.Held
	need.Add(s.Need(), max(1, s.Nodes))
	never := vs.Config.Limits.NeverInCluster(user, need)
	why := cmp.Or(never, vs.allot.whyLater(user, need, g, s.Priority))
	if why == "" || len(x.Now) == 0 {
		return
	}
	for _, cand := range x.Now {
		cand.Why = job.Reason{Word: job.ReasonQuota, Detail: why}.String()
		x.Later = append(x.Later, cand)
	}
	x.Now = []contract.Candidate{}
	x.Reason = job.Reason{Word: job.ReasonQuota, Detail: why}
	if never != "" {
		x.Reason.Word = job.ReasonNoMatch
	}
}
