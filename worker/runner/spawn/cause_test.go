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

// A failed start is the host's fault if another host may start the task. Only an error that no task can start with has
// the code with which a host pauses itself.
func TestFailedStartIsTheHostsOrTheUsersFault(t *testing.T) {
	l := &launch{who: Account{name: "ada"}}
	bounded := func(memory job.Size, errno unix.Errno) error {
		return whyNot(&Order{Start: &protocol.Start{Command: []string{"x"}, Limits: protocol.Limits{Memory: memory}}}, l, errno)
	}
	fork := func(errno unix.Errno) error { return bounded(0, errno) }
	for name, c := range map[string]struct {
		err   error
		state job.State
		code  int
	}{
		"no descriptors for a pipe":   {fmt.Errorf("runner: make pipe: %w", unix.EMFILE), job.NodeFail, CodeOurs},
		"no scratch directory":        {fmt.Errorf("runner: make scratch directory: %w", unix.EROFS), job.NodeFail, CodeOurs},
		"no space or inodes":          {&os.PathError{Op: "mkdir", Path: "/x", Err: unix.ENOSPC}, job.NodeFail, CodeOurs},
		"no control group":            {errors.New("runner: cgroup: no such file or directory"), job.NodeFail, CodeOurs},
		"no memory, others may start": {fork(unix.ENOMEM), job.NodeFail, CodeNotExecutable},
		"no files, others may start":  {fork(unix.ENFILE), job.NodeFail, CodeNotExecutable},
		"its limit is 1 byte":         {bounded(1, unix.ENFILE), job.Failed, CodeNotExecutable},
		"its limit is no cause":       {bounded(1<<30, unix.ENOMEM), job.NodeFail, CodeNotExecutable},
		"no processes":                {fork(unix.EAGAIN), job.NodeFail, CodeNotExecutable},
		"the user's quota":            {fmt.Errorf("runner: write script: %w", unix.EDQUOT), job.NodeFail, CodeNotExecutable},
		"workdir says no descriptors": {refuseFor(unix.EMFILE, "workdir"), job.NodeFail, CodeNotExecutable},
		"workdir says no files":       {refuseFor(unix.ENFILE, "workdir"), job.NodeFail, CodeNotExecutable},
		"workdir says no memory":      {refuseFor(unix.ENOMEM, "workdir"), job.NodeFail, CodeNotExecutable},
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

// withoutDescriptors calls f while this process cannot open files.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	f()
}

// A host that is really exhausted gives the same errors to its root and to other processes.
func TestExhaustedHostIsTheCauseOfFailedStarts(t *testing.T) {
	o := &Order{Start: &protocol.Start{Command: []string{"x"}, Limits: protocol.Limits{Memory: 1}}}
	withoutDescriptors(t, func() {
		for name, err := range map[string]error{
			"a workdir": refuseFor(unix.EMFILE, "workdir"), "a start": whyNot(o, &launch{}, unix.EMFILE),
		} {
			if x := ExitOf(err, time.Now()); x.State != job.NodeFail || x.Code != CodeOurs {
				t.Errorf("%s: %s with code %d, want %v and %v", name, x.State, x.Code, job.NodeFail, CodeOurs)
			}
		}
	})
}
