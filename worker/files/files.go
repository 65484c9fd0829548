// Package files handles the files of tasks on this host. It stages uploaded files before a task starts, keeps the
// files that the job asked for when the task has ended, and serves both to users.
//
// Driver wraps the driver that runs the tasks, because files are the same for every driver, and the worker's core need not
// know of them. Files are staged while an attempt is STARTING: outside its time limit but within its lease. What Driver is
// doing is on disk, so that a new daemon continues after the old one was killed. The size of an upload is checked before
// the first file is written, because a tree can name one chunk a thousand times.
//
// Files to download are moved from the scratch directory, not copied: a checkpoint of 100 GB costs a rename while the
// devices of the task wait. To store them by content as uploads would read and write everything once more, for files that
// are rarely equal.
package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/musterhq/muster/internal/upload"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
	"github.com/musterhq/muster/worker/runner/spawn"
	"github.com/musterhq/muster/worker/userfile"
)

// ErrNone says that no files of an attempt can be read: it left none, or the job did not ask to keep them and they
// were removed.
var ErrNone = errors.New("no files are kept of it")

// Config says where files lie and how tasks run.
type Config struct {
	Dir       string // of the tasks and their runners; see protocol.Dir
	Boot      string // id of this boot of the host; deadlines of another boot mean nothing
	AllowRoot bool   // tasks of user root may run
	Inside    string // the user that containers run as; see protocol.Container.As
	// Most bounds the disk space of the files that one task uploads; 0: no limit. A tree of a few chunks can be of
	// any size.
	Most job.Size
}

// Fetcher copies a tree into this host's store.
type Fetcher interface {
	Fetch(ctx context.Context, h upload.Hash, holders []upload.Holder) (upload.Tree, int64, error)
	// Fetching returns the progress of a tree's fetch, or false if none is in progress.
	Fetching(h upload.Hash) (upload.Fetching, bool)
}

// Unpacker makes a private copy of a tree.
type Unpacker interface {
	Unpack(ctx context.Context, t upload.Tree, dir string, owner *upload.Owner) error
}

// Needs are the parts that a Driver works with.
type Needs struct {
	Driver  driver.Driver // runs the tasks
	Adopter driver.Adopter
	Fetcher Fetcher
	Store   Unpacker
	// Holders returns the daemons that may have a job's files, the most likely first.
	Holders func(ctx context.Context, id job.ID) []upload.Holder
	// Tell receives the events of tasks. It may block, but not after Run has ended.
	Tell func(driver.Event)
}

// staging is the directory for attempts that have not started.
func (c Config) staging() string { return filepath.Join(c.Dir, "staging") }

// record is the file that describes an attempt until it ends.
func (c Config) record(a job.Attempt) string { return filepath.Join(c.staging(), a.String()+".json") }

// staged is the directory with the uploaded files of an attempt until it starts.
func (c Config) staged(a job.Attempt) string { return filepath.Join(c.staging(), a.String()) }

// kept is the directory with the files that are kept of an attempt that has ended.
func (c Config) kept(a job.Attempt) string {
	return filepath.Join(protocol.Dir(c.Dir).Task(a), scratch.KeptFiles)
}

// about is the file that describes the kept files of an attempt.
func (c Config) about(a job.Attempt) string {
	return filepath.Join(protocol.Dir(c.Dir).Task(a), scratch.KeptAbout)
}

// scratch is the scratch directory of an attempt.
func (c Config) scratch(a job.Attempt) string { return protocol.Dir(c.Dir).Scratch(a) }

// account returns the account that a user's tasks run as.
func (c Config) account(user string, container bool) (spawn.Account, error) {
	as := ""
	if container {
		as = c.Inside
	}
	return spawn.AccountInside(user, as, c.AllowRoot)
}

// owner returns the owner of a task's files, or nil if that is this process's own user.
func (c Config) owner(t driver.Task) (*upload.Owner, error) {
	account, err := c.account(t.User, t.Spec.Image != "")
	if err != nil || !account.Other() {
		return nil, err
	}
	return &upload.Owner{UID: account.UID, GID: account.GID, Charge: userfile.Charge}, nil
}

// workdir returns the task's working directory on this host if the job names one, otherwise "". For a container it is
// "", because the directory is inside the container.
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
	spreadDirs(c.staging())
	return nil
}
