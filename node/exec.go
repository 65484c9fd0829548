package node

// Commands in this host's tasks.

import (
	"context"
	"errors"
	"fmt"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	execdriver "github.com/musterhq/muster/worker/driver/exec"
	"github.com/musterhq/muster/worker/runner"
)

var _ api.Exec = execBackend{}

type execBackend struct {
	driver    *execdriver.Driver
	work      *worker.Loop
	allowRoot bool
}

// Exec runs a command in an attempt.
func (b execBackend) Exec(ctx context.Context, a job.Attempt, r api.ExecRequest) (api.ExecSession, error) {
	uid, err := b.uid(ctx, a)
	if err != nil {
		return api.ExecSession{}, err
	}
	s, err := b.driver.Exec(ctx, a, execdriver.Beside{Command: r.Command, TTY: r.TTY, Term: r.Term, Rows: r.Rows, Cols: r.Cols}, uid)
	if code := execdriver.CodeOf(err); code != 0 {
		return api.ExecSession{}, &api.ExecError{Code: code, Reason: errors.Unwrap(err).Error()}
	}
	if errors.Is(err, execdriver.ErrNotRunning) {
		err = fmt.Errorf("attempt %s: %w: %w", a, api.ErrConflict, err)
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

// uid is that of the attempt's user.
func (b execBackend) uid(ctx context.Context, a job.Attempt) (int, error) {
	records, err := b.work.Attempts(ctx)
	if err != nil {
		return 0, answerOf(err)
	}
	for _, r := range records {
		if r.Attempt == a {
			account, err := runner.AccountOf(r.User, b.allowRoot)
			return account.UID, err
		}
	}
	return 0, fmt.Errorf("attempt %s: %w: it does not run here", a, api.ErrConflict)
}
