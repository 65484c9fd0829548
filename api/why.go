package api

// The route that explains a job: why it waits, or why one of its tasks does.

import (
	"context"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

type whyInput struct {
	ID    string `path:"id" maxLength:"64"`
	Tasks string `query:"tasks" maxLength:"24576" doc:"Explain one of these tasks, such as 3 or 0-9,12: the first that waits."`
}

func (r *jobRoutes) why(ctx context.Context, in *whyInput) (*explanationOutput, error) {
	j, err := r.may(ctx, partRow, in.ID, "explain")
	if err != nil {
		return nil, err
	}
	e, err := r.explain.Why(ctx, job.ID(in.ID))
	if err != nil {
		return nil, about(in.ID, err)
	}
	d := ExplanationDocument(e)
	if !requesterOf(ctx).may(partSpec, &j) {
		d.Clauses = slices.DeleteFunc(d.Clauses, quotesSpec)
	}
	if in.Tasks != "" || e.State.Active() {
		err = r.whyTask(ctx, in, &d)
	}
	return &explanationOutput{d}, err
}

// quotesSpec reports whether a clause quotes parts of the job file that only the job's user may see: paths, labels, names of
// nodes.
func quotesSpec(c contract.Clause) bool {
	return slices.ContainsFunc([]string{"mount: ", "constraint ", "nodelist: ", "exclude: "}, func(begin string) bool { return strings.HasPrefix(c.Clause, begin) })
}

// whyTask sets the reason of the explanation to that of one task. If the request names tasks, it is the first of these that
// waits, or else the first of these. Otherwise it is the first waiting task of the job, if there is one.
func (r *jobRoutes) whyTask(ctx context.Context, in *whyInput, d *Explanation) error {
	j, err := r.jobs.Get(ctx, job.ID(in.ID))
	if err != nil {
		return about(in.ID, err)
	}
	l, err := j.Spec.Layout()
	if err != nil {
		return err
	}
	q := job.TaskQuery{After: -1, Limit: 1}
	choices := [][]job.State{{job.Pending}, {job.Held}}
	if in.Tasks != "" {
		if q.Ranges, err = tasksNamed(j, in.Tasks); err != nil {
			return err
		}
		choices = append(choices, nil)
	} else if l.Tasks() == 1 {
		return nil
	}
	for _, q.States = range choices {
		tasks, err := r.jobs.Tasks(ctx, j.ID, q)
		if err != nil {
			return about(in.ID, err)
		}
		if len(tasks) > 0 {
			t := taskDocument(j.ID, l, tasks[0])
			d.Task, d.TaskState, d.Reason, d.ReasonDetail = &t.Task, t.State, t.Reason, t.ReasonDetail
			return nil
		}
	}
	return nil
}
