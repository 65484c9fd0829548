package spawn

// What a container is started from: its files on this host, its user, its output.

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/pump"
)

// Container is one container to run.
type Container struct {
	protocol.Container

	Attempt  job.Attempt
	Sources  Sources // of its mounts
	Limits   protocol.Limits
	Command  []string // empty: that of the image
	Workdir  string   // inside the container; empty: that of the image
	Env      []string
	Scratch  string   // directory of this host, mounted at the same path
	Files    []string // of this host, mounted at the same paths
	UID, GID int
	Groups   []uint32
	Out, Err io.Writer
	// Cut makes writes to Out and Err fail from now on. They may be blocked, because a file that gets a copy of the
	// output may lie on a file server that hangs.
	Cut   func()
	Input *protocol.Input // nil: it gets no input

	Progress func(text string)                 // called with what the start waits for
	Began    func(pid int, p Process, in Sink) // called once the container has a process; in is nil without Input
}

// HasTerminal reports whether the container has a terminal.
func (b Container) HasTerminal() bool { return b.Input != nil && b.Input.TTY }

// Sink is where the input of a task is written: a pipe, a terminal, or the connection of a container.
type Sink interface {
	Write(p []byte) (int, error)
	SetWriteDeadline(t time.Time) error
	// Close ends the use of the sink.
	Close() error
	// CloseWrite lets the task read end of file.
	CloseWrite() error
	// Resize sets the size of the terminal.
	Resize(rows, cols uint16) error
}

// Process is a container that runs.
type Process interface {
	// Signal sends a signal to all processes of the container. It does not wait.
	Signal(sig unix.Signal)
	// End is Signal with a signal that ends the container, TERM or HUP. The container lives on until all of its processes
	// have ended. It does not wait for that.
	End(sig unix.Signal)
	// Members lists the pids of its processes, as far as this host sees them.
	Members() []int
}

// PrepareContainer makes the files of a container on this host, and the outlet for its output. The caller closes the
// sources and finishes the outlet.
func (s *Spawner) PrepareContainer(ctx context.Context, o *Order) (b Container, out *pump.Outlet, err error) {
	who, err := AccountInside(o.Start.User, o.Start.Container.As, s.allowRoot)
	if err != nil {
		return Container{}, nil, err
	}
	dir := s.dir.Task(o.Attempt)
	b = Container{
		Container: *o.Start.Container, Attempt: o.Attempt, Limits: o.Start.Limits, Command: o.Start.Command, Workdir: o.Start.Workdir,
		Scratch: s.dir.Scratch(o.Attempt), UID: who.UID, GID: who.GID, Input: o.Start.Input,
	}
	if b.Workdir == "" && (o.Start.Files != "" || o.Start.Keeps) {
		b.Workdir = b.Scratch // its uploaded files are there, and kept files are looked for there
	}
	if who.cred != nil {
		b.Groups = who.cred.Groups
	}
	if b.Sources, err = s.sources(ctx, who, b.Mounts); err != nil {
		return Container{}, nil, err
	}
	defer func() {
		if err != nil {
			b.Sources.Close()
		}
	}()
	if err := makeScratch(b.Scratch, o.Start.Files); err != nil {
		return Container{}, nil, err
	}
	if err := who.own(b.Scratch); err != nil {
		return Container{}, nil, err
	}
	who.home = b.Scratch // the user's home directory is not mounted
	if b.Env, err = s.environment(o, who, b.Scratch); err != nil {
		return Container{}, nil, err
	}
	b.Env = setVariable(b.Env, "HOME", variable(o.Start.Env, "HOME", b.Scratch)) // a container inherits none of this host
	if o.Start.Hostfile != "" {
		b.Files = append(b.Files, variable(b.Env, "MUSTER_HOSTFILE", ""))
	}
	l := &launch{who: who, workdir: workdir{b.Scratch, -1}}
	if o.Start.Script != "" {
		if err := s.command(o, l, b.Env); err != nil {
			return Container{}, nil, err
		}
		b.Command = l.argv
		b.Files = append(b.Files, filepath.Join(dir, "script"))
	}
	out, err = s.containerOutput(ctx, o, &b)
	return b, out, err
}

// AccountInside returns the user that a container runs as: the task's user, unless the daemon's configuration names
// another user (as) for all containers.
func AccountInside(user, as string, allowRoot bool) (Account, error) {
	who, err := AccountOf(user, allowRoot)
	if err != nil || as == "" {
		return who, err
	}
	uid, gid, err := ParseUser(as)
	if err != nil {
		return who, Refuse(CodeNotExecutable, "%v", err)
	}
	if os.Geteuid() != 0 && uid != os.Geteuid() {
		return who, Refuse(CodeNotExecutable, "user %s for containers: only a daemon of root can give files to others", as)
	}
	other := Account{name: who.name, UID: uid, GID: gid}
	if os.Geteuid() == 0 {
		other.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)} //nolint:gosec // ParseUser bounds both
	}
	return other, nil
}

// ParseUser reads UID or UID:GID. Without GID, GID is UID.
func ParseUser(text string) (uid, gid int, err error) {
	u, g, both := strings.Cut(text, ":")
	if !both {
		g = u
	}
	a, errU := strconv.ParseUint(u, 10, 31)
	b, errG := strconv.ParseUint(g, 10, 31)
	if errU != nil || errG != nil {
		return 0, 0, fmt.Errorf("user %.40q: want UID or UID:GID", text)
	}
	return int(a), int(b), nil //nolint:gosec // 31 bits
}
