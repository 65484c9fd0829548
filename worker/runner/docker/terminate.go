package docker

// Ending a container so that all of its processes have the grace, and not only its command.
//
// The kernel kills all processes of a container when the first one ends. The first is docker-init, which ends when the
// command does. So docker-init is stopped until the others have ended. Then it goes on, finds that the command has ended,
// and ends with its exit code.
//
// See docs/adr, ADR 159.

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/worker/runner/proc"
)

const (
	// maxStops and stopPause bound the wait until all processes have stopped. A process that hangs in the kernel never
	// does.
	maxStops  = 20
	stopPause = time.Millisecond
	// emptyLists is how many lists without a process show that there is none.
	emptyLists = 3
)

// stopSignal returns the signal that an image names for its program, or TERM.
func stopSignal(name string) unix.Signal {
	if name != "" && !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 && sig != unix.SIGSTOP {
		return sig
	}
	return unix.SIGTERM
}

// stopSignalOf returns the signal with which the command of a container ends: that of the image if the command is the
// image's, or is run by the image's entrypoint. A script of the task does not know it.
func stopSignalOf(img client.ImageInspectResult, command []string) unix.Signal {
	if img.Config == nil || len(command) > 0 && len(img.Config.Entrypoint) == 0 {
		return unix.SIGTERM
	}
	return stopSignal(img.Config.StopSignal)
}

// End sends a signal that ends all processes of the container; the command gets the image's stop signal in place of TERM.
// The container lives on until all have ended. If only the engine has the permission, it signals only the first process.
func (r *running) End(sig unix.Signal) {
	r.signalled.Store(true)
	go func() {
		if r.local && r.end(sig) {
			return
		}
		_ = r.kill(strconv.Itoa(int(r.ofCommand(sig)))) // callers that wait for the end try again
	}()
}

// ofCommand returns the signal that the command gets in place of another.
func (r *running) ofCommand(sig unix.Signal) unix.Signal {
	if sig == unix.SIGTERM {
		return r.stop
	}
	return sig
}

// end does what End does, from this host. It returns false if it has no permission.
func (r *running) end(sig unix.Signal) bool {
	command := r.first.Pid
	if r.init {
		r.held.Store(true)
		if err := r.first.Signal(unix.SIGSTOP); err != nil {
			return r.first.diesWithin(0)
		}
		defer r.release()
		command = firstOf(proc.Children(r.first.Pid))
	}
	for pid, start := range r.stopAll() {
		with := sig
		if pid == command {
			with = r.ofCommand(sig)
		}
		proc.SignalProcess(pid, start, with)
		proc.SignalProcess(pid, start, unix.SIGCONT)
	}
	if r.init {
		r.awaitAll()
	}
	return true
}

// release lets docker-init go on. It returns false if docker-init was not stopped.
func (r *running) release() bool {
	return r.held.Swap(false) && r.first.Signal(unix.SIGCONT) == nil
}

// commandEnded reports whether the command has ended while docker-init is stopped.
func (r *running) commandEnded() bool {
	return r.held.Load() && proc.Ended(firstOf(proc.Children(r.first.Pid)))
}

// stopAll stops the processes of the container until all have stopped and none is new, and returns them with their starts.
// Otherwise one that is forked just now would get no signal, or a program that a handler of the signal starts would get it.
func (r *running) stopAll() map[int]uint64 {
	stopped := map[int]uint64{}
	for range maxStops {
		found, run := false, false
		for _, pid := range r.first.members(r.init) {
			switch start := proc.StartTicks(pid); {
			case start == 0:
			case stopped[pid] == 0:
				stopped[pid], found = start, true
				proc.SignalProcess(pid, start, unix.SIGSTOP)
			case !proc.Stopped(pid):
				run = true
			}
		}
		if !found && !run {
			break
		}
		if !found {
			time.Sleep(stopPause)
		}
	}
	return stopped
}

// awaitAll waits until no process of the container lives but docker-init and commands of muster exec, which are not its
// descendants. A process whose parent ends just now may be missing from a list, so it wants several empty lists in a row.
func (r *running) awaitAll() {
	for empty := 0; empty < emptyLists && !r.first.diesWithin(0); {
		left := slices.DeleteFunc(proc.Descendants(r.first.Pid)[1:], proc.Ended)
		if len(left) == 0 {
			empty++
			time.Sleep(stopPause)
			continue
		}
		empty = 0
		f, err := proc.Open(left[0])
		if err != nil {
			continue // it has just ended
		}
		if slices.Contains(proc.Descendants(r.first.Pid), left[0]) { // its pid was not reused
			proc.AwaitEnd(f)
		}
		_ = f.Close() // nothing was written to it
	}
}

// firstOf returns the process that started first, or 0. Docker-init has started the command before any other process of the
// container existed.
func firstOf(pids []int) int {
	first, at := 0, uint64(math.MaxUint64)
	for _, pid := range pids {
		if start := proc.StartTicks(pid); start != 0 && (start < at || start == at && pid < first) {
			first, at = pid, start
		}
	}
	return first
}
