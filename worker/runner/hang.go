package runner

// Starts that hang: in a directory or a file that a task's user named and whose
// file server does not answer. No thread can be called back from there, so that
// one start is given up and another thread takes its place among the starters.

import (
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/protocol"
)

const (
	// slowStart is how long a start may take before another starter is begun in
	// place of its own.
	slowStart = time.Second
	// maxStuck bounds the starters that hang, and maxStuckUser those of one user.
	maxStuck     = 64
	maxStuckUser = 8
)

// fate says who decides about a task that a starter has in hand: the starter,
// once it makes the process, or the loop, once it has ended the task.
type fate struct{ of atomic.Int32 }

const (
	fateNew int32 = iota // it may be known from an earlier runner
	fateOpen
	fateBorn
	fateDropped
)

func (f *fate) open()         { f.of.Store(fateOpen) }
func (f *fate) born() bool    { return f.of.CompareAndSwap(fateOpen, fateBorn) }
func (f *fate) drop() bool    { return f.of.CompareAndSwap(fateOpen, fateDropped) }
func (f *fate) dropped() bool { return f.of.Load() == fateDropped }

// step is what a starter is looking at, for when it hangs there.
type step = int32

const (
	stepOwn step = iota // nothing of its user's
	stepWorkdir
	stepCommand
	stepOutput
)

// waitsFor is what the task's start waits for, for people.
func (t *task) waitsFor(s *protocol.Start) string {
	switch t.step.Load() {
	case stepWorkdir:
		return "workdir " + s.Workdir
	case stepCommand:
		if s.Script != "" {
			return "the interpreter of its script"
		}
		return "command " + s.Command[0]
	case stepOutput:
		if s.Stdout == s.Stderr || s.Stderr == "" {
			return "output file " + s.Stdout
		}
		return "output files " + s.Stdout + " and " + s.Stderr
	}
	return "its files on this node"
}

// slow is called when a start takes long.
func (l *loop) slow(t *task, s *protocol.Start) {
	if !t.handed || t.back {
		return // it has come back meanwhile
	}
	l.stuck[t] = s.User
	l.log.Warn("start hangs", "attempt", t.name, "user", s.User, "waits_for", t.waitsFor(s))
	l.report(protocol.Report{Progress: &protocol.Progress{Attempt: t.name, Detail: clip("waits for " + t.waitsFor(s) + ", which does not answer")}})
	if len(l.stuck) <= maxStuck {
		go l.starter.run(l)
	}
	if l.dropHanded(); t.fate.dropped() {
		return
	}
	time.AfterFunc(l.cfg.Answer-slowStart, func() {
		l.do <- func() {
			l.drop(t, refuse(codeNotExecutable, "%s did not answer within %s on this node", t.waitsFor(s), l.cfg.Answer))
		}
	})
}

// drop ends a task that a starter has in hand, unless its process is being made.
func (l *loop) drop(t *task, err error) {
	if t.handed && !t.back && t.fate.drop() {
		l.neverStarted(t, err)
	}
}

// dropHanded ends the tasks in the starters' hands that are not wanted any more.
func (l *loop) dropHanded() {
	for t := range l.starting {
		if t.watch.cause != causeNone {
			l.drop(t, refuse(codeNotExecutable, "%s", t.watch.detail))
		}
	}
}

// hopeless says why a user's start would only hang as well.
func (l *loop) hopeless(user string) error {
	n := 0
	for _, other := range l.stuck {
		if other == user {
			n++
		}
	}
	if n < maxStuckUser {
		return nil
	}
	return refuse(codeNotExecutable, "%d starts of user %s hang in files that do not answer on this node", n, user)
}

// goTo makes a directory that of this thread, as the task's user: the process
// that it makes begins there. The process could enter it by itself, but the
// whole runner would wait for it.
func (s *starter) goTo(who identity, dir string) error {
	return whyNotIn(who, dir, who.as(func() error { return unix.Chdir(dir) }))
}

// goBack leaves it.
func (s *starter) goBack() {
	if err := unix.Chdir("/"); err != nil {
		s.log.Error("starter stays in the directory of a task", "error", err) // it keeps a file system busy at most
	}
}

// maxScripts is how many scripts the kernel follows from one to the next.
const maxScripts = 4

// touch reads the beginning of a program, and of the interpreters of a script,
// as the kernel does when it executes them: where that hangs, nobody but the
// reader waits. What is wrong with a program is left to the kernel to say.
func touch(path string) {
	for range maxScripts {
		if path = interpreter(path); path == "" {
			return
		}
	}
}

// interpreter is what the first line of a script names; empty for none.
func interpreter(path string) string {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	var begin [256]byte
	n, err := unix.Read(fd, begin[:])
	if err != nil {
		return ""
	}
	line, isScript := strings.CutPrefix(string(begin[:n]), "#!")
	if line, _, _ = strings.Cut(line, "\n"); !isScript || len(strings.Fields(line)) == 0 {
		return ""
	}
	if path = strings.Fields(line)[0]; !filepath.IsAbs(path) {
		return ""
	}
	return path
}
