package main

// The verb cp, and copying the files of --download.

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/blob"
	"github.com/musterhq/muster/job"
)

func (v taskVerbs) cpCommand() *cli.Command {
	return &cli.Command{
		Name: "cp", Usage: "copy files of a task here", ArgsUsage: "ID[.T]:PATH DIR",
		Description: "PATH is a path or glob below the task's directory; without one, everything is copied. While the task runs, the present files are copied. After its end only files that match the job's --download are available.",
		Flags:       clientFlags(),
		Action:      v.cp,
	}
}

func (v taskVerbs) cp(c *cli.Context) error {
	if err := wantArgs(c, 2, 2, "ID[.T]:PATH and a directory"); err != nil {
		return err
	}
	name, path, ok := strings.Cut(c.Args().First(), ":")
	if !ok {
		return usagef("cp: %.60q: want ID[.T]:PATH", c.Args().First())
	}
	if path == "" {
		path = "."
	}
	if c.Args().Get(1) == "" {
		return usagef("cp: the directory's name is empty")
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	j, task, err := taskNamed(c.Context, client, "cp", name)
	if err != nil {
		return err
	}
	request := api.FilesRequest{Job: j.ID, Task: task, Paths: []string{path}, Base: true}
	return asUsage(copyFiles(c.Context, client, request, c.Args().Get(1)))
}

func copyFiles(ctx context.Context, client *api.Client, r api.FilesRequest, dir string) error {
	return client.Files(ctx, r, func(archive io.Reader) error { return blob.Unarchive(archive, dir) })
}

// download copies the files that the job asked to keep to the current directory. The files of several tasks go to one
// directory for each task. end is the error with which the job ended. It takes precedence over an error of the copying,
// which is then only printed.
func (f follower) download(ctx context.Context, id job.ID, spec job.Spec, end error) error {
	if len(spec.Download) == 0 || ctx.Err() != nil {
		return end
	}
	j, err := f.client.Job(ctx, id)
	var errs errorList
	errs.add(err)
	for t, failed := range f.client.AllTasks(ctx, id, api.TaskFilter{}) {
		if failed != nil {
			errs.add(failed)
			break
		}
		dir := "."
		if j.TaskCount > 1 {
			dir = filepath.Join(dir, taskName(j, t.Task))
		}
		if t.StartedAt == nil {
			continue // it never started, so it has no files
		}
		errs.add(copyFiles(ctx, f.client, api.FilesRequest{Job: id, Task: t.Task}, dir))
	}
	if err = errs.join(); err == nil {
		return end
	}
	err = fmt.Errorf("download: %w", err)
	if end != nil {
		fmt.Fprintf(f.err, "muster: %s\n", printable(strings.ReplaceAll(err.Error(), "\n", "; ")))
		return end
	}
	return exitError{job.ExitMuster, err}
}
