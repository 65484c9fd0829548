package main

// Uploading the files of --upload.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
)

const (
	defaultUpload = job.Size(1 << 30)
	// progressAfter is how long an upload may take before it shows progress; progressEvery is how often it updates
	// it.
	progressAfter = time.Second
	progressEvery = 200 * time.Millisecond
)

func uploadLimitFlag() *cli.StringFlag {
	return &cli.StringFlag{Name: "upload-limit", Usage: "refuse to upload more than `SIZE`", Value: defaultUpload.String()}
}

func uploadLimit(c *cli.Context) (limit job.Size, err error) {
	if err := limit.UnmarshalText([]byte(c.String("upload-limit"))); err != nil {
		return 0, usagef("--upload-limit: %w", err)
	}
	return limit, nil
}

// forDryRun returns a spec for a dry run: no files are sent, and no other jobs are waited for.
func forDryRun(spec job.Spec) job.Spec {
	spec.Upload, spec.Dependency = nil, nil
	return spec
}

// sendFiles uploads the files of the spec and sets its Tree.
func (v submitVerbs) sendFiles(c *cli.Context, client *api.Client, spec *job.Spec) error {
	if len(spec.Upload) == 0 {
		return nil
	}
	limit, err := uploadLimit(c)
	if err != nil {
		return err
	}
	sources, err := upload.Scan(".", spec.Upload, int64(limit))
	if err != nil {
		return usageError{err}
	}
	see, stop := v.uploadProgress()
	defer stop()
	h, _, err := upload.Send(c.Context, client, sources, see)
	if err != nil {
		return uploadError(c.Context, err)
	}
	spec.Upload, spec.Tree = nil, h.String()
	return nil
}

func uploadError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return exitError{exitCtrlC, errors.New("interrupted; parts that were sent are kept, and are not sent again")}
	}
	return fmt.Errorf("upload: %w", err)
}

// onTerminal reports whether the writer is a terminal.
func onTerminal(w io.Writer) bool { return isTerminal(w) }

// inTerminal reports whether the reader is a terminal.
func inTerminal(r io.Reader) bool { return isTerminal(r) }

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) //nolint:gosec // a descriptor is small
}

// uploadProgress shows the progress of an upload in one line on a terminal.
func (v submitVerbs) uploadProgress() (see func(upload.Progress), stop func()) {
	if !onTerminal(v.err) {
		return nil, func() {}
	}
	var mu sync.Mutex
	next, said := time.Now().Add(progressAfter), false
	see = func(p upload.Progress) {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if now.Before(next) {
			return
		}
		next, said = now.Add(progressEvery), true
		fmt.Fprintf(v.err, "\r\x1b[Kmuster: upload: %s of %s, %s of it new", size(p.Done), size(p.Total), size(p.Sent))
	}
	return see, func() {
		mu.Lock()
		defer mu.Unlock()
		if said {
			fmt.Fprint(v.err, "\r\x1b[K")
		}
	}
}
