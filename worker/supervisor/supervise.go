package supervisor

// Keeping connected to each runner, and starting one where none lives.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/timerslack"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/scratch"
)

const (
	// redialFirst and redialMost bound the pause between attempts to connect to a runner that lives.
	redialFirst = 5 * time.Millisecond
	redialMost  = time.Second
	// welcomeWithin bounds the wait for a runner's Welcome.
	welcomeWithin = 10 * time.Second
	// unreachableMost is how long a runner may live without being reachable. After that it is killed, because no
	// lease can be renewed through it.
	unreachableMost = 15 * time.Second
)

// errDead says that a runner is dead and that nothing of its tasks is left.
var errDead = errors.New("supervisor: runner is dead")

// keeper keeps connected to one runner until that is dead. It runs in a goroutine of its own and reports to the
// state.
type keeper struct {
	s       *state
	d       *Driver
	n       int
	process *os.Process   // if this daemon started it, until it was reaped
	fresh   bool          // it was just started and may not hold its lock yet
	info    protocol.Info // known once it is dead
	pidfd   *os.File      // of the runner; nil: it was not reached yet
}

// lives reports whether the runner is known to live. Then a missing lock file means that the file was removed.
func (k *keeper) lives() bool {
	if k.pidfd == nil {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(k.pidfd.Fd()), Events: unix.POLLIN}} //nolint:gosec // a descriptor
	for {
		// A signal can interrupt even a poll that does not wait. That says nothing about the runner.
		if n, err := unix.Poll(fds, 0); !errors.Is(err, unix.EINTR) {
			return n == 0 && err == nil
		}
	}
}

// reached notes the process of the runner.
func (k *keeper) reached(info protocol.Info) {
	if k.pidfd != nil || info.PID <= 0 {
		return
	}
	if fd, err := unix.PidfdOpen(info.PID, 0); err == nil {
		k.pidfd = os.NewFile(uintptr(fd), "runner")
	}
}

func (k *keeper) run(ctx context.Context) {
	pause, heard := redialFirst, time.Now()
	defer func() { _ = k.pidfd.Close() }() // holds no data, and nil has none
	for ctx.Err() == nil {
		reached, err := k.visit(ctx)
		switch {
		case errors.Is(err, errDead):
			k.d.do <- func() { k.s.gone(k.n) }
			for _, group := range k.info.Groups {
				cgroup.RemoveSoon(group)
			}
			return
		case reached:
			pause, heard = redialFirst, time.Now()
			if err != nil && ctx.Err() == nil {
				k.d.log.WarnContext(ctx, "connection to runner broke", "generation", k.n, "error", err)
			}
		case time.Since(heard) > unreachableMost:
			k.killUnreachable()
			heard = time.Now()
		}
		wait(ctx, pause)
		pause = min(2*pause, redialMost)
	}
	if k.process != nil {
		_ = k.process.Release() // it outlives this daemon
	}
}

// visit connects to the runner and reads its reports until the connection breaks. If the runner is dead, it cleans up
// and returns errDead.
func (k *keeper) visit(ctx context.Context) (reached bool, err error) {
	if (!k.fresh || exited(k.process)) && !k.lives() {
		lock, err := k.d.dir.TryLock(k.n)
		if err != nil {
			return false, err
		}
		if lock != nil {
			return false, k.cleanUp(ctx, lock)
		}
	}
	conn, err := protocol.Dial(k.d.dir.Socket(k.n))
	if err != nil {
		return false, nil // the runner has not opened its socket yet, or is just exiting
	}
	k.fresh = false
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(welcomeWithin)) // a broken connection shows when it is read
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	r := bufio.NewReader(conn)
	m, err := protocol.ReadReport(r)
	if err != nil {
		return true, err
	}
	if m.Welcome == nil {
		return true, fmt.Errorf("supervisor: runner %d: its first message is not a Welcome", k.n)
	}
	_ = conn.SetReadDeadline(time.Time{}) // as above
	if ctx.Err() != nil {
		return true, leave(conn) // the end of ctx has set a deadline, which the last SetReadDeadline may have undone
	}
	k.reached(m.Welcome.Info)
	k.d.do <- func() { k.s.welcomed(k.n, conn, *m.Welcome) }
	err = k.listen(r)
	if ctx.Err() != nil {
		err = leave(conn)
	}
	k.d.do <- func() { k.s.runners.disconnected(k.n, conn) }
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return true, err
}

func (k *keeper) listen(r io.Reader) error {
	for {
		m, err := protocol.ReadReport(r)
		if err != nil {
			return err
		}
		k.d.do <- func() { k.s.reported(k.n, m) }
	}
}

// leaveWithin bounds the time for telling a runner that this daemon ends.
const leaveWithin = time.Second

// leave tells a runner that this daemon ends.
func leave(conn net.Conn) error {
	frame, err := protocol.Frame(protocol.Request{Leave: true})
	if err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(leaveWithin)) // a broken connection shows when it is written
	_, err = conn.Write(frame)
	return err
}

// cleanUp ends what a dead runner left. It returns errDead when nothing is left.
func (k *keeper) cleanUp(ctx context.Context, lock *os.File) error {
	defer lock.Close()
	info, err := k.d.dir.ReadInfo(k.n)
	if err != nil {
		k.d.log.DebugContext(ctx, "lock file of dead runner not read", "generation", k.n, "error", err)
	}
	k.info = info
	if err := endOrphans(ctx, k.d.dir, info); err != nil {
		return err // ctx has ended
	}
	if k.d.cfg.EndContainers != nil {
		if err := k.d.cfg.EndContainers(ctx, k.d.cfg.Dir, k.n); err != nil {
			return err
		}
	}
	if k.process != nil {
		if _, err := k.process.Wait(); err != nil {
			k.d.log.DebugContext(ctx, "runner not reaped", "generation", k.n, "error", err)
		}
	}
	if err := k.d.dir.Remove(k.n); err != nil {
		k.d.log.WarnContext(ctx, "files of dead runner not removed", "generation", k.n, "error", err)
	}
	k.d.removeTmps(ctx, protocol.Tmps(k.d.dir, k.n))
	k.d.clearLogs(ctx)
	return errDead
}

// removeTmps removes the directories that tasks of dead runners had as their /tmp. That may take long, so it runs in the
// background.
func (d *Driver) removeTmps(ctx context.Context, paths ...string) {
	for _, path := range paths {
		go func() {
			if err := scratch.Remove(path); err != nil {
				d.log.WarnContext(ctx, "what tasks left in /tmp not removed, until the daemon starts again", "error", err)
			}
		}()
	}
}

func (d *Driver) clearLogs(ctx context.Context) {
	if err := d.dir.ClearLogs(); err != nil {
		d.log.WarnContext(ctx, "logs of dead runners not removed", "error", err)
	}
}

// killUnreachable kills a runner that lives but cannot be reached.
func (k *keeper) killUnreachable() {
	if killed, err := signalRunner(k.d.dir, k.n, unix.SIGKILL); err == nil && killed {
		k.d.log.Error("runner lives but its socket is gone, it was killed", "generation", k.n)
	}
}

// signalRunner sends a signal to a runner that lives. It returns false if the runner is dead.
func signalRunner(d protocol.Dir, n int, sig unix.Signal) (sent bool, err error) {
	info, err := d.ReadInfo(n)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if info.PID <= 0 {
		return false, fmt.Errorf("supervisor: runner %d has not written its pid", n)
	}
	fd, err := unix.PidfdOpen(info.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("supervisor: open runner %d: %w", n, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	lock, err := d.TryLock(n)
	if lock != nil {
		_ = lock.Close() // the runner is dead; nothing was written
	}
	if err != nil || lock != nil {
		return false, err
	}
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) { // it still held its lock, so its pid was not reused
		return false, fmt.Errorf("supervisor: signal runner %d: %w", n, err)
	}
	return true, nil
}

// exited reports whether a child process has exited, without reaping it.
func exited(p *os.Process) bool {
	if p == nil {
		return true
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, p.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err != nil || info.Signo != 0
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// live starts runner n and keeps connected to it until the runner is dead or ctx ends.
func (s *state) live(ctx context.Context, n int, r role, pause time.Duration) {
	wait(ctx, pause)
	if ctx.Err() != nil {
		return
	}
	k := &keeper{s: s, d: s.d, n: n, fresh: true}
	var err error
	if k.process, err = s.d.launch(n, r); err != nil {
		s.d.log.ErrorContext(ctx, "runner not started", "error", err)
		s.d.do <- func() { s.gone(n) }
		return
	}
	k.run(ctx)
}

// launch starts the process of runner n, detached from this daemon so that it outlives it.
func (d *Driver) launch(n int, r role) (*os.Process, error) {
	open := func() (*os.File, error) {
		return os.OpenFile(d.dir.Log(n), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	}
	out, err := open()
	if errors.Is(err, os.ErrNotExist) { // somebody has removed the directory
		if err = protocol.MakeAgain(d.dir); err == nil {
			out, err = open()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("supervisor: open log of runner: %w", err)
	}
	defer out.Close() // the runner has its own descriptor
	binary, prefix := d.cfg.Binary, d.cfg.Args
	if r == containers {
		binary, prefix = d.cfg.ContainerBinary, d.cfg.ContainerArgs
	}
	args := append(append([]string{}, prefix...), "--dir", d.cfg.Dir, "--generation", strconv.Itoa(n))
	cmd := exec.Command(binary, args...) //nolint:gosec,noctx // our own program, which has to outlive every context
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = runnerEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	start := func() error { return timerslack.Start(cmd.Start) }
	if d.cfg.HostMounts {
		err = inHostMounts(start)
	} else {
		err = start()
	}
	if err != nil {
		return nil, fmt.Errorf("supervisor: start runner: %w", err)
	}
	return cmd.Process, nil
}

// runnerEnv returns the part of the daemon's environment that a runner gets. The daemon's environment may hold
// secrets, so this is only what programs need, and the address of the user's systemd.
func runnerEnv() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "USER", "LANG", "TZ", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// welcomed records that a runner is connected, and compares the attempts that it has with those that are known here.
func (s *state) welcomed(n int, conn net.Conn, w protocol.Welcome) {
	k := s.runners.welcomed(n, conn, w.Info)
	has := map[job.Attempt]bool{}
	for _, m := range w.Running {
		s.started(n, m)
	}
	for _, name := range w.Starting {
		s.starting(n, name)
	}
	for _, m := range w.Running {
		w.Starting = append(w.Starting, m.Attempt)
	}
	for _, name := range w.Starting {
		if a, err := job.ParseAttempt(name); err == nil {
			has[a] = true
			s.again(k, s.entries[a])
		}
	}
	cur := s.runners.current(k.role)
	if k.role == processes && cur == n {
		s.d.fenced(w.Info)
	}
	for a, e := range s.entries {
		switch {
		case e.runner == n && !has[a]:
			s.missing(e)
		case e.runner == 0 && e.role == k.role && cur != 0:
			s.dispatch(e)
		}
	}
	s.runners.drainOthers(cur, k.role)
	s.d.log.Info("runner connected", "generation", n, "pid", w.Info.PID, "version", w.Info.Version, "tasks", len(has))
}

// fenced notes whether the runner of processes fences tasks.
func (d *Driver) fenced(info protocol.Info) {
	if info.Fences {
		d.fences.Store(true)
	}
	if d.cfg.Fences != nil {
		d.cfg.Fences(d.fences.Load(), info.Isolation)
	}
}

// starting records an attempt that an earlier daemon has requested.
func (s *state) starting(n int, name string) {
	a, err := job.ParseAttempt(name)
	if err != nil {
		return // ReadReport has checked it
	}
	if s.entries[a] == nil {
		s.entries[a] = &entry{attempt: a}
		s.d.activity.begin(a)
	}
	s.entries[a].runner = n
}

// reported handles a report of a runner.
func (s *state) reported(n int, m protocol.Report) {
	switch {
	case m.Started != nil:
		s.started(n, *m.Started)
	case m.Progress != nil:
		if a, err := job.ParseAttempt(m.Progress.Attempt); err == nil && s.entries[a] != nil {
			s.report(driver.Event{Attempt: a, Kind: driver.Starting, Detail: m.Progress.Detail})
		}
	case m.Ended != nil:
		if a, err := job.ParseAttempt(m.Ended.Attempt); err == nil {
			s.ends.add(a, protocol.Segment{Runner: n, Number: m.Ended.Segment})
			if e := s.entries[a]; e != nil && e.plain && m.Ended.Silent {
				s.d.spares.ended(a, e.user)
			}
			s.ended(a, s.d.withUsage(a, m.Ended.Exit, m.Ended.CPU, m.Ended.MaxRSS))
		}
	}
}

// gone records that a runner is dead and that nothing of its tasks is left.
func (s *state) gone(n int) {
	s.runners.gone(n)
	for _, e := range s.entries {
		if e.runner == n {
			s.missing(e)
		}
	}
	s.ends.closed(n)
	s.d.log.Info("runner is gone", "generation", n)
}
