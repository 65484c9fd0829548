package daemon

// Commands of muster exec in this host's tasks.

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/loop"
	"github.com/musterhq/muster/worker/runner/docker"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
	"github.com/musterhq/muster/worker/supervisor"
)

var _ api.Exec = execBackend{}

type execBackend struct {
	driver    *supervisor.Driver
	work      *loop.Loop
	allowRoot bool
	engine    string // host of the container engine
	open      *openExecs
}

// openExecs counts the commands that are open in tasks here, by the user of the task.
type openExecs struct {
	mu sync.Mutex
	of map[string]int // guarded by mu
}

// take counts one more command of a user until done is called. It returns an error if the user already has too many.
func (o *openExecs) take(user string) (done func(), err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of[user] >= protocol.MaxUserExecs {
		return nil, fmt.Errorf("%w: user %s has %d commands open in tasks on this node, the maximum; end one of them", api.ErrConflict, user, o.of[user])
	}
	o.of[user]++
	return sync.OnceFunc(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.of[user]--; o.of[user] == 0 {
			delete(o.of, user)
		}
	}), nil
}

// Exec runs a command in an attempt.
func (b execBackend) Exec(ctx context.Context, a job.Attempt, r api.ExecRequest) (s api.ExecSession, err error) {
	rec, err := b.record(ctx, a)
	if err != nil {
		return s, err
	}
	done, err := b.open.take(rec.User)
	if err != nil {
		return s, err
	}
	switch {
	case rec.File.Spec().Image != "":
		s, err = b.inContainer(ctx, a, r)
	default:
		s, err = b.inProcess(ctx, a, r, rec.User)
	}
	if err != nil {
		done()
		return s, driverError(a, err)
	}
	end := s.Close
	s.Close = func() { end(); done() }
	return s, nil
}

// Attach opens the input of an attempt.
func (b execBackend) Attach(ctx context.Context, a job.Attempt) (s api.InputSession, err error) {
	rec, err := b.record(ctx, a)
	if err != nil {
		return s, err
	}
	done, err := b.open.take(rec.User)
	if err != nil {
		return s, err
	}
	in, err := b.driver.Attach(ctx, a)
	if err != nil {
		done()
		return s, driverError(a, err)
	}
	over := func(err error) error {
		if errors.Is(err, supervisor.ErrInputOver) {
			return api.ErrInputOver
		}
		return err
	}
	return api.InputSession{
		Taken:  in.Taken,
		Write:  func(p []byte) (int, error) { n, err := in.Write(p); return n, over(err) },
		End:    func() error { return over(in.End()) },
		Resize: in.Resize,
		Close:  func() { in.Close(); done() },
	}, nil
}

// driverError translates an error of a driver about an attempt for the API.
func driverError(a job.Attempt, err error) error {
	switch {
	case errors.Is(err, supervisor.ErrNotRunning), errors.Is(err, docker.ErrNotRunning):
		return fmt.Errorf("attempt %s: %w: %w", a, api.ErrConflict, err)
	case errors.Is(err, supervisor.ErrUnreached):
		return fmt.Errorf("attempt %s: %w: %w", a, api.ErrUnavailable, err)
	}
	return err
}

// record returns the ledger's record of an attempt.
func (b execBackend) record(ctx context.Context, a job.Attempt) (contract.Record, error) {
	records, err := b.work.Attempts(ctx)
	if err != nil {
		return contract.Record{}, apiErrorOf(err)
	}
	for _, r := range records {
		if r.Attempt == a {
			return r, nil
		}
	}
	return contract.Record{}, fmt.Errorf("attempt %s: %w: it is not running here", a, api.ErrConflict)
}

func commandOf(r api.ExecRequest) protocol.Command {
	return protocol.Command{Command: r.Command, TTY: r.TTY, Term: r.Term, Rows: r.Rows, Cols: r.Cols}
}

func (b execBackend) inProcess(ctx context.Context, a job.Attempt, r api.ExecRequest, user string) (api.ExecSession, error) {
	account, err := spawn.AccountOf(user, b.allowRoot)
	if err != nil {
		return api.ExecSession{}, err
	}
	s, err := b.driver.Exec(ctx, a, commandOf(r), account.UID)
	if code := supervisor.CodeOf(err); code != 0 {
		return api.ExecSession{}, &api.ExecError{Code: code, Reason: errors.Unwrap(err).Error()}
	}
	if err != nil {
		return api.ExecSession{}, err
	}
	session := api.ExecSession{Stdin: s.Stdin, Stdout: s.Stdout, Resize: s.Resize, Wait: s.Wait, Close: s.Close}
	if s.Stderr != nil {
		session.Stderr = s.Stderr
	}
	return session, nil
}

func (b execBackend) inContainer(ctx context.Context, a job.Attempt, r api.ExecRequest) (api.ExecSession, error) {
	s, err := docker.Exec(ctx, b.engine, a, commandOf(r))
	if err != nil {
		return api.ExecSession{}, err
	}
	on := context.WithoutCancel(ctx) // so that the command can be ended and waited for after ctx has ended
	wait := func() (int, error) {
		code, err := s.Wait(on)
		if refused, ok := errors.AsType[*docker.RefusalError](err); ok {
			err = &api.ExecError{Code: refused.Code, Reason: refused.Reason}
		}
		return code, err
	}
	session := api.ExecSession{Stdin: s.Stdin, Stdout: s.Stdout, Wait: wait, Close: func() { s.Close(on) }}
	session.Resize = func(rows, cols uint16) error { return s.Resize(on, rows, cols) }
	if s.Stderr != nil {
		session.Stderr = s.Stderr
	}
	return session, nil
}
