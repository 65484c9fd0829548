package api

// The route of the tasks of a job.

import (
	"context"
	"strconv"

	"github.com/musterhq/muster/job"
)

type tasksInput struct {
	ID     string   `path:"id" maxLength:"64"`
	State  []string `query:"state" maxItems:"32" doc:"States, or their short codes such as PD."`
	Tasks  string   `query:"tasks" maxLength:"24576" doc:"Only the tasks with these numbers, such as 3 or 0-9,12."`
	Limit  int      `query:"limit" minimum:"0" maximum:"1000" doc:"Tasks in a page; 0 means 200."`
	Cursor string   `query:"cursor" maxLength:"16" doc:"The field next of the previous page."`
}

type tasksOutput struct{ Body Listing[Task] }

func (r *jobRoutes) tasks(ctx context.Context, in *tasksInput) (*tasksOutput, error) {
	q := job.TaskQuery{After: -1, Limit: in.Limit}
	if q.Limit == 0 {
		q.Limit = defaultLimit
	}
	for _, text := range in.State {
		s, err := job.ParseState(text)
		if err != nil {
			return nil, bad("%w", err)
		}
		q.States = append(q.States, s)
	}
	if in.Cursor != "" {
		after, err := taskCursor(in.Cursor)
		if err != nil {
			return nil, err
		}
		q.After = after
	}
	j, err := r.may(ctx, partRow, in.ID, "show")
	if err != nil {
		return nil, err
	}
	if in.Tasks != "" {
		if q.Ranges, err = tasksNamed(j, in.Tasks); err != nil {
			return nil, err
		}
	}
	tasks, err := r.jobs.Tasks(ctx, j.ID, q)
	if err != nil {
		return nil, about(in.ID, err)
	}
	layout, err := j.Spec.Layout()
	if err != nil {
		return nil, err
	}
	l := Listing[Task]{Schema: SchemaTasks, Items: make([]Task, 0, len(tasks)), Partial: []string{}}
	for _, t := range tasks {
		d := taskDocument(j.ID, layout, t)
		requesterOf(ctx).hide(&j, &d)
		l.Items = append(l.Items, d)
	}
	if n := len(tasks); n == q.Limit {
		l.Next = strconv.Itoa(tasks[n-1].Index)
	}
	return &tasksOutput{l}, nil
}

// taskCursor reads the cursor of a listing of tasks: the index of the last task of the page before.
func taskCursor(text string) (after int, err error) {
	after, err = strconv.Atoi(text)
	if err != nil || after < 0 || after >= job.MaxTasks {
		return 0, bad("cursor %s: want the field next of a listing", quote(text))
	}
	return after, nil
}
