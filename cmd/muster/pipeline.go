package main

// Jobs that depend on others: finding the ids, and submitting job files with several jobs.

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/jobfile"
)

// parentFinder finds the jobs that dependencies name by a prefix of an id, or as last.
type parentFinder struct {
	client *api.Client
	found  map[job.ID]job.ID
}

// find returns the whole id of a job.
func (f parentFinder) find(ctx context.Context, name job.ID) (job.ID, error) {
	if _, err := job.ParseID(string(name)); err == nil {
		return name, nil // a whole id; the daemon asks the job's owner
	}
	if id, there := f.found[name]; there {
		return id, nil
	}
	jobs, sel, err := f.client.Resolve(ctx, string(name))
	switch {
	case errors.Is(err, api.ErrNotFound), errors.Is(err, api.ErrBad):
		return "", usageError{err}
	case err != nil:
		return "", err
	case sel.All || len(jobs) != 1:
		return "", usagef("job %q: a dependency is on one job", string(name))
	}
	f.found[name] = jobs[0].ID
	return jobs[0].ID, nil
}

// resolveParents replaces the names of jobs in the dependencies of a spec by their ids.
func resolveParents(ctx context.Context, client *api.Client, spec *job.Spec) error {
	d, err := job.ParseDependencies(spec.Dependency, true)
	if err != nil {
		return usageError{err}
	}
	finder := parentFinder{client, map[job.ID]job.ID{}}
	for i := range d.Terms {
		x := &d.Terms[i]
		if x.Job, err = finder.find(ctx, x.Job); err != nil {
			return fmt.Errorf("dependency %s: %w", x.When, err)
		}
	}
	spec.Dependency = d.List()
	return nil
}

// several is the submission of a job file with several jobs.
type several struct {
	file     jobfile.File
	order    []int
	accepted []api.Job // by the place in the file; without an id if it was not accepted
}

// submitSeveral submits the jobs of a file, each after those that it depends on, and prints their ids in the order of the
// file. Nothing is submitted if a job or a dependency is wrong.
func (v submitVerbs) submitSeveral(c *cli.Context, client *api.Client, file jobfile.File) error {
	order, err := file.Order()
	if err != nil {
		return usageError{err}
	}
	if c.Bool("dry-run") {
		return v.dryRuns(c, client, file)
	}
	s := several{file, order, make([]api.Job, len(file.Jobs))}
	key := c.String("idempotency-key")
	if longest := s.keyOf(key, len(file.Jobs)-1); key != "" && len(longest) > job.MaxName {
		return usagef("--idempotency-key: too long: of each job it is followed by its number, as in %s", longest)
	}
	if err := s.resolve(c.Context, client); err != nil {
		return err
	}
	for i := range file.Jobs {
		if err := v.sendFiles(c, client, &file.Jobs[i].Spec); err != nil {
			return err
		}
	}
	err = s.submit(c.Context, client, key)
	for _, j := range s.accepted {
		v.warnOf(j)
	}
	if printed := v.printSeveral(c, s); err == nil {
		err = printed
	}
	if err != nil || !c.Bool("wait") {
		return err
	}
	var all []chosen
	for _, j := range s.accepted {
		all = append(all, chosen{Job: j})
	}
	f := follower{v.streams, client}
	err = f.waitFor(c.Context, all)
	for i, x := range all {
		err = f.download(c.Context, x.ID, file.Jobs[i].Spec, err)
	}
	return err
}

// resolve finds the ids of the jobs that are not in the file.
func (s several) resolve(ctx context.Context, client *api.Client) error {
	finder := parentFinder{client, map[job.ID]job.ID{}}
	for i := range s.file.Jobs {
		for k := range s.file.Jobs[i].Depends.Terms {
			x := &s.file.Jobs[i].Depends.Terms[k]
			if _, there := s.file.Named(string(x.Job)); there {
				continue
			}
			id, err := finder.find(ctx, x.Job)
			if err != nil {
				return notNamed(fmt.Sprintf("%s: dependency %s", s.file.LineOf(i, k), x.When), x.Job, err)
			}
			x.Job = id
		}
	}
	return nil
}

// notNamed returns the error for a dependency that matches no job: no job of the file has the name, and err says why it
// is no id either.
func notNamed(where string, name job.ID, err error) error {
	if _, wrong := errors.AsType[usageError](err); !wrong {
		return fmt.Errorf("%s: no job of the file has the name %q, and it could not be looked up as an id: %w", where, string(name), err)
	}
	return usagef("%s: %q is neither the name of a job in the file nor the id of a job: %s", where, string(name),
		strings.TrimPrefix(err.Error(), api.ErrBad.Error()+": "))
}

// keyOf returns the idempotency key of a job, if the submission has one.
func (s several) keyOf(key string, i int) string {
	if key == "" {
		return ""
	}
	return fmt.Sprintf("%s/%d", key, i+1)
}

// submit submits the jobs. An error says which were accepted before.
func (s several) submit(ctx context.Context, client *api.Client, key string) error {
	for _, i := range s.order {
		j := &s.file.Jobs[i]
		for k := range j.Depends.Terms {
			if parent, there := s.file.Named(string(j.Depends.Terms[k].Job)); there {
				j.Depends.Terms[k].Job = s.accepted[parent].ID
			}
		}
		j.Spec.Dependency = j.Depends.List()
		done, err := client.Submit(ctx, j.Spec, s.keyOf(key, i))
		if err != nil {
			return s.failed(i, key, refused(err))
		}
		s.accepted[i] = done
	}
	return nil
}

// failed adds to an error what happened to the other jobs.
func (s several) failed(i int, key string, err error) error {
	var names []string
	for k, j := range s.accepted {
		if j.ID != "" {
			names = append(names, s.label(k))
		}
	}
	more := "nothing was submitted"
	if n := len(names); n > 0 {
		more = fmt.Sprintf("%d of %d jobs were accepted, their ids are on the standard output: %s", n, len(s.accepted), strings.Join(names[:min(n, 10)], ", "))
		if n > 10 {
			more += ", …"
		}
		if key != "" {
			more += "; the same command again submits only the others"
		}
	}
	wrapped := fmt.Errorf("%s: %w; %s", s.label(i), err, more)
	if exit, ok := errors.AsType[exitError](err); ok {
		return exitError{exit.code, wrapped}
	}
	return wrapped
}

// label returns the name of a job of the file, for people.
func (s several) label(i int) string {
	j := s.file.Jobs[i]
	if j.Spec.Name == "" {
		return fmt.Sprintf("the job in line %d", j.Line)
	}
	return fmt.Sprintf("%q in line %d", j.Spec.Name, j.Line)
}

// printSeveral prints the jobs that were accepted, in the order of the file.
func (v submitVerbs) printSeveral(c *cli.Context, s several) error {
	l := api.Listing[api.Job]{Schema: api.SchemaJobs, Items: []api.Job{}, Partial: []string{}}
	for _, j := range s.accepted {
		if j.ID != "" {
			l.Items = append(l.Items, j)
		}
	}
	if c.Bool("json") {
		return v.printJSON(l)
	}
	for _, j := range l.Items {
		if _, err := fmt.Fprintln(v.out, j.ID); err != nil {
			return fmt.Errorf("job %s is accepted, but: %w", j.ID, err)
		}
	}
	return nil
}

// dryRuns prints where each job of the file could run.
func (v submitVerbs) dryRuns(c *cli.Context, client *api.Client, file jobfile.File) (worst error) {
	for i, j := range file.Jobs {
		if !c.Bool("json") {
			fmt.Fprintf(v.out, "%s\n", printable(several{file: file}.label(i)))
		}
		err := v.dryRun(c, client, j.Spec)
		if exit, never := errors.AsType[exitError](err); err != nil && (!never || exit.err != nil) {
			return err
		} else if err != nil {
			worst = err
		}
	}
	return worst
}
