// Package files is about the files of tasks on this host: it brings those that
// a job was submitted with before the task starts, keeps those that the job
// asked for when the task has ended, and reads both for whoever may have them.
//
// Driver wraps the driver that runs the tasks. Bringing files takes place while
// an attempt is STARTING, outside its time limit and within its lease; what it
// is doing is on disk, so that a daemon that was killed goes on with it.
package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/musterhq/muster/blob"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// ErrNone says that an attempt has no files that could be read: it left
// nothing, or what it left was not asked for and is gone.
var ErrNone = errors.New("no files are kept of it")

// Config says where files lie.
type Config struct {
	Dir       string // of the tasks and their runners; see runner.Dir
	Boot      string // this incarnation of the host: deadlines of another mean nothing
	AllowRoot bool   // tasks of root are run
	Inside    string // as whom containers run; see runner.Container
	// Most bounds the files that one task brings along, as they lie on the disk;
	// 0: no bound. A few chunks can make a tree of any size.
	Most job.Size
}

// Fetcher brings a tree into this host's store.
type Fetcher interface {
	Fetch(ctx context.Context, h blob.Hash, holders []blob.Holder) (blob.Tree, int64, error)
	// Fetching is how far the fetch of a tree has come, if one is under way.
	Fetching(h blob.Hash) (blob.Fetching, bool)
}

// Unpacker makes a private copy of a tree.
type Unpacker interface {
	Unpack(ctx context.Context, t blob.Tree, dir string, owner *blob.Owner) error
}

// Needs is what a Driver is joined to.
type Needs struct {
	Driver  worker.Driver // runs the tasks
	Adopter worker.Adopter
	Fetcher Fetcher
	Store   Unpacker
	// Holders are the daemons that may have a job's files, the likeliest first.
	Holders func(ctx context.Context, id job.ID) []blob.Holder
	// Tell takes what becomes of tasks; it may block, but not after Run has ended.
	Tell func(worker.DriverEvent)
}

// staging is where the files of tasks that have not begun lie.
func (c Config) staging() string { return filepath.Join(c.Dir, "staging") }

// record is the file that says what an attempt was told to do, until it ends.
func (c Config) record(a job.Attempt) string { return filepath.Join(c.staging(), a.String()+".json") }

// brought is the directory with what the attempt brings, until it begins.
func (c Config) brought(a job.Attempt) string { return filepath.Join(c.staging(), a.String()) }

// kept is the directory with what was asked for of an attempt that ended.
func (c Config) kept(a job.Attempt) string {
	return filepath.Join(protocol.Dir(c.Dir).Task(a), "files")
}

// about says where the files of an attempt that ended come from.
func (c Config) about(a job.Attempt) string {
	return filepath.Join(protocol.Dir(c.Dir).Task(a), "files.json")
}

// scratch is a task's directory while it lives, and until it is cleared away.
func (c Config) scratch(a job.Attempt) string { return protocol.Dir(c.Dir).Scratch(a) }

// account is as whom a task of a user runs.
func (c Config) account(user string, container bool) (spawn.Account, error) {
	as := ""
	if container {
		as = c.Inside
	}
	return spawn.AccountInside(user, as, c.AllowRoot)
}

// owner is whom a task's files belong to, nil for this process's own user.
func (c Config) owner(t worker.Task) (*blob.Owner, error) {
	account, err := c.account(t.User, t.Spec.Image != "")
	if err != nil || !account.Other() {
		return nil, err
	}
	return &blob.Owner{UID: account.UID, GID: account.GID}, nil
}

// workdir is the directory of this host that is not ours and that a task works
// in, if it does. That of a container is none of this host's.
func workdir(s job.Spec) string {
	if s.Image != "" {
		return ""
	}
	return s.Workdir
}

func makeStaging(c Config) error {
	if err := os.MkdirAll(c.staging(), 0o700); err != nil {
		return fmt.Errorf("files: %w", err)
	}
	apart(c.staging())
	return nil
}
