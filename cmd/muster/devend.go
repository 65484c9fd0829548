package main

// Ending the runners that the daemons of dev leave behind, and with them their tasks.

import (
	"path/filepath"
	"strings"
	"syscall"

	"github.com/shirou/gopsutil/v4/process"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/daemon"
)

// endRunners sends SIGTERM to each runner whose command line names the directory. A runner then ends its tasks before
// it exits.
func endRunners(dir string) {
	all, err := process.Processes()
	if err != nil {
		return
	}
	for _, p := range all {
		line, err := p.CmdlineSlice()
		if err != nil || !isRunner(line) || !strings.Contains(strings.Join(line, " "), dir) {
			continue
		}
		if err := p.SendSignal(syscall.SIGTERM); err == nil {
			waitGone(p)
		}
	}
}

// isRunner recognizes a runner by its command line: the separate program, or the hidden verb.
func isRunner(line []string) bool {
	return len(line) > 1 && (line[1] == "runner" || line[1] == "container-runner" || strings.HasPrefix(filepath.Base(line[0]), daemon.RunnerPrefix))
}

// waitGone waits for a runner that was told to stop, at most for the time that tasks have between SIGTERM and
// SIGKILL.
func waitGone(p *process.Process) {
	fd, err := unix.PidfdOpen(int(p.Pid), 0)
	if err != nil {
		return
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(devStopGrace.Milliseconds()))
}
