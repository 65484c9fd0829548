package spawn

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
)

// A failed start is the host's if another host may start the task. Only what no task can start with has the code for which
// a host pauses itself.
func TestExitOfTellsTheHostFromTheUser(t *testing.T) {
	l := &launch{who: Account{name: "ada"}}
	fork := func(errno unix.Errno) error {
		return whyNot(&Order{Start: &protocol.Start{Command: []string{"x"}}}, l, errno)
	}
	for name, c := range map[string]struct {
		err   error
		state job.State
		code  int
	}{
		"no descriptors for a pipe":   {fmt.Errorf("runner: make pipe: %w", unix.EMFILE), job.NodeFail, CodeOurs},
		"no scratch directory":        {fmt.Errorf("runner: make scratch directory: %w", unix.EROFS), job.NodeFail, CodeOurs},
		"no space or inodes":          {&os.PathError{Op: "mkdir", Path: "/x", Err: unix.ENOSPC}, job.NodeFail, CodeOurs},
		"no control group":            {errors.New("runner: cgroup: no such file or directory"), job.NodeFail, CodeOurs},
		"no memory for a fork":        {fork(unix.ENOMEM), job.NodeFail, CodeOurs},
		"no files for a fork":         {fork(unix.ENFILE), job.NodeFail, CodeOurs},
		"no processes":                {fork(unix.EAGAIN), job.NodeFail, CodeNotExecutable},
		"the user's quota":            {fmt.Errorf("runner: write script: %w", unix.EDQUOT), job.NodeFail, CodeNotExecutable},
		"workdir, no descriptors":     {refuseFor(unix.EMFILE, "workdir"), job.NodeFail, CodeOurs},
		"workdir on a stale mount":    {refuseFor(unix.ESTALE, "workdir"), job.NodeFail, CodeNotExecutable},
		"a file does not answer":      {RefuseHere("did not answer"), job.NodeFail, CodeNotExecutable},
		"program not found":           {notFound("x"), job.Failed, codeNotFound},
		"no interpreter":              {fork(unix.ENOENT), job.Failed, CodeNotExecutable},
		"not a program":               {fork(unix.ENOEXEC), job.Failed, CodeNotExecutable},
		"arguments too long":          {fork(unix.E2BIG), job.Failed, CodeNotExecutable},
		"workdir is a loop of links":  {refuseFor(unix.ELOOP, "workdir"), job.Failed, CodeNotExecutable},
		"output file, the disk full":  {refuseFor(unix.ENOSPC, "output file"), job.Failed, CodeNotExecutable},
		"workdir that does not exist": {Refuse(CodeNotExecutable, "workdir"), job.Failed, CodeNotExecutable},
	} {
		x := ExitOf(c.err, time.Now())
		if x.State != c.state || x.Code != c.code || x.Started || x.FailedStart() != (c.state == job.NodeFail) {
			t.Errorf("%s: %s with code %d, want %s with %d", name, x.State, x.Code, c.state, c.code)
		}
	}
}
