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
	q := job.TaskQuery{Limit: in.Limit}
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
	p, err := r.taskPage(ctx, in.ID, in.Tasks, in.Cursor, q)
	if err != nil {
		return nil, err
	}
	return &tasksOutput{Listing[Task]{Schema: SchemaTasks, Items: p.tasks, Partial: []string{}, Next: p.next}}, nil
}

// taskPage is a page of the tasks of a job.
type taskPage struct {
	job    job.Job
	layout job.Layout
	tasks  []Task // without what the requester may not see
	next   string // cursor of the next page; empty: this is the last one
}

// taskPage returns the tasks of a query that have these numbers (empty: all) and come after the cursor.
func (r *jobRoutes) taskPage(ctx context.Context, id, numbers, cursor string, q job.TaskQuery) (p taskPage, err error) {
	q.After = -1
	if cursor != "" {
		if q.After, err = taskCursor(cursor); err != nil {
			return p, err
		}
	}
	if p.job, err = r.may(ctx, partRow, id, "show"); err != nil {
		return p, err
	}
	if numbers != "" {
		if q.Ranges, err = tasksNamed(p.job, numbers); err != nil {
			return p, err
		}
	}
	tasks, err := r.jobs.Tasks(ctx, p.job.ID, q)
	if err != nil {
		return p, about(id, err)
	}
	if p.layout, err = p.job.Spec.Layout(); err != nil {
		return p, err
	}
	p.tasks = make([]Task, 0, len(tasks))
	for _, t := range tasks {
		d := taskDocument(p.job.ID, p.layout, t)
		requesterOf(ctx).hide(&p.job, &d)
		p.tasks = append(p.tasks, d)
	}
	if n := len(tasks); n == q.Limit {
		p.next = strconv.Itoa(tasks[n-1].Index)
	}
	return p, nil
}

// taskCursor parses the cursor of a listing of tasks: the index of the last task on the previous page.
func taskCursor(text string) (after int, err error) {
	after, err = strconv.Atoi(text)
	if err != nil || after < 0 || after >= job.MaxTasks {
		return 0, bad("cursor %s: want the field next of a listing", quote(text))
	}
	return after, nil
}
