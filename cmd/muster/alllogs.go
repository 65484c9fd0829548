package main

// The output of several tasks of a job at once: each line begins with the name of its task.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

const (
	// maxCopied bounds the tasks whose output is copied at the same time. Further tasks follow in the order of their
	// numbers.
	maxCopied = 16
	// maxLine bounds how much of an unfinished line is held back until its end.
	maxLine = 64 << 10
)

// allLogs copies the output of tasks.
type allLogs struct {
	client *api.Client
	job    job.ID
	layout job.Layout
	tasks  []job.Range // numbers; empty: all
	stream string      // stdout, stderr or both
	follow bool
}

// copy copies the output of the tasks to out. Without follow, the tasks come in the order of their numbers, and those
// without output are left out.
func (l allLogs) copy(ctx context.Context, mu *sync.Mutex, out io.Writer) error {
	var copies sync.WaitGroup
	var errs errorList
	free := make(chan struct{}, maxCopied)
	before := make(chan struct{}) // closed when the previous task has been copied
	close(before)
	for t, err := range l.client.AllTasks(ctx, l.job, api.TaskFilter{Tasks: l.tasks}) {
		if err != nil {
			errs.add(err)
			break
		}
		free <- struct{}{}
		turn, done := before, make(chan struct{})
		before = done
		if l.follow {
			turn = nil
		}
		copies.Go(func() {
			defer func() {
				if turn != nil {
					<-turn // a task without output still waits for the tasks before it
				}
				close(done)
				<-free
			}()
			w := &prefixWriter{mu: mu, w: out, prefix: l.layout.Name(t.Task) + "| ", turn: turn}
			_, err := l.client.Logs(ctx, api.LogRequest{Job: l.job, Task: t.Task, Stream: l.stream, Follow: l.follow}, w)
			if errors.Is(err, api.ErrConflict) && !l.follow {
				err = nil // it has no output yet
			}
			if err != nil && ctx.Err() == nil {
				errs.add(fmt.Errorf("task %s: %w", l.layout.Name(t.Task), err))
			}
			errs.add(w.flush())
		})
		if ctx.Err() != nil {
			break
		}
	}
	copies.Wait()
	return errs.join()
}

// errorList collects errors of several goroutines. Only the first maxErrors count.
type errorList struct {
	mu   sync.Mutex
	errs []error // guarded by mu
}

const maxErrors = 5

func (l *errorList) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && len(l.errs) < maxErrors {
		l.errs = append(l.errs, err)
	}
}

func (l *errorList) join() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

// prefixWriter writes whole lines, each with a prefix, so that lines of several tasks do not mix.
type prefixWriter struct {
	mu     *sync.Mutex
	w      io.Writer
	prefix string
	rest   []byte          // the beginning of a line
	turn   <-chan struct{} // nothing is written before it is closed; nil: no wait
}

// Write implements io.Writer.
func (p *prefixWriter) Write(text []byte) (int, error) {
	n := len(text)
	p.rest = append(p.rest, text...)
	end := bytes.LastIndexByte(p.rest, '\n') + 1
	if end == 0 && len(p.rest) > maxLine {
		return n, p.flush()
	}
	var b bytes.Buffer
	for line := range bytes.Lines(p.rest[:end]) {
		b.WriteString(p.prefix)
		b.Write(line)
	}
	p.rest = append(p.rest[:0], p.rest[end:]...)
	return n, p.write(b.Bytes())
}

// flush writes an incomplete line and ends it.
func (p *prefixWriter) flush() error {
	if len(p.rest) == 0 {
		return nil
	}
	line := append([]byte(p.prefix), p.rest...)
	p.rest = p.rest[:0]
	return p.write(append(line, '\n'))
}

func (p *prefixWriter) write(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	if p.turn != nil {
		<-p.turn
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.w.Write(b)
	return err
}
