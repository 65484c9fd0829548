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
	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
)

func (v taskVerbs) cpCommand() *cli.Command {
	return &cli.Command{
		Name: "cp", Usage: "copy files of a task here", ArgsUsage: "ID[.T]:PATH DIR",
		Description: "PATH is a path or glob below the task's directory; without one, everything is copied. A wildcard does not match hidden files, whose names begin with a dot: name them, or the directory that they are in. While the task runs, the present files are copied. After its end only files that match the job's --download are available. A file that is there before and differs is kept, unless --force is given. Nothing that was not asked for is written, and nothing through a link in DIR.",
		Flags: append(clientFlags(), &cli.BoolFlag{
			Name: "force", Aliases: []string{"f"}, Usage: "replace files that are there before",
		}),
		Action: v.cp,
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
	ask := api.FilesRequest{Job: j.ID, Task: task, Paths: []string{path}}
	request := upload.Extraction{Globs: ask.Paths, Strip: true}
	if c.Bool("force") {
		request.Existing = upload.ReplaceExisting
	}
	return asUsage(copyFiles(c.Context, client, v.err, ask, request, c.Args().Get(1), "--force replaces them"))
}

// copyFiles copies files of a task to a directory. It writes a line about files that were replaced, and about those
// that were left out. It is an error if existing files were kept; the error ends with what to do.
func copyFiles(ctx context.Context, client *api.Client, w io.Writer, ask api.FilesRequest, request upload.Extraction, dir, kept string) error {
	var done upload.Extracted
	err := client.Files(ctx, ask, func(archive io.Reader) (err error) {
		done, err = upload.Extract(archive, dir, request)
		return err
	})
	say := func(t upload.PathCount, text string) {
		if t.Count > 0 {
			fmt.Fprintf(w, "muster: %s: %s\n", fmt.Sprintf(text, countFiles(t.Count)), listPaths(t))
		}
	}
	say(done.Replaced, "replaced %s")
	say(done.Hidden, "left out %s with hidden names; name them, or copy to a new directory")
	say(done.Links, "left out %s: links to something that was not asked for")
	switch {
	case err != nil:
		return err
	case done.Kept.Count > 0:
		return fmt.Errorf("%s in %s differ and were kept: %s; %s", countFiles(done.Kept.Count), dir, listPaths(done.Kept), kept)
	case done.Files == 0 && done.Links.Count > 0:
		return fmt.Errorf("nothing was copied: %s leads to something that was not asked for; name what it leads to", listPaths(done.Links))
	}
	return nil
}

func countFiles(n int) string { return fmt.Sprintf("%d %s", n, plural(n, "file", "files")) }

// listPaths lists the first paths of a count.
func listPaths(t upload.PathCount) string {
	names := make([]string, 0, len(t.First)+1)
	for _, name := range t.First {
		names = append(names, printable(name))
	}
	if t.Count > len(t.First) {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}

// download copies the files that the job asked to keep to the current directory, by the globs that were submitted here.
// The files of several tasks go to one directory for each task. Existing files are replaced, unless only a wildcard
// matches them. end is the error with which the job ended. It takes precedence over an error of the copying, which is
// then only printed.
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
		request := upload.Extraction{Globs: spec.Download, Existing: upload.ReplaceNamed}
		errs.add(copyFiles(ctx, f.client, f.err, api.FilesRequest{Job: id, Task: t.Task}, request, dir,
			fmt.Sprintf("`muster cp --force %s.%s:PATH %s` replaces them", id, taskName(j, t.Task), dir)))
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
