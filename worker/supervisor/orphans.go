package supervisor

// Killing the processes that a dead runner left.

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/cgroup"
	"github.com/musterhq/muster/worker/runner/proc"
	"github.com/musterhq/muster/worker/runner/protocol"
)

const (
	// orphanFirst and orphanMost bound the pause between checks whether the orphans are gone.
	orphanFirst = 5 * time.Millisecond
	orphanMost  = time.Second
)

// endOrphans kills every process that the tasks of a dead runner left. It returns nil when none is left, or the error of
// ctx. The caller holds the dead runner's lock.
//
// The main processes died with their runner. The others are found by their control group, or by the session and the
// environment that they were started with.
func endOrphans(ctx context.Context, d protocol.Dir, info protocol.Info) error {
	if info.Boot != "" && info.Boot != proc.BootID() {
		return nil // no process survives a reboot
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	found := map[int]uint64{}
	for wait := orphanFirst; ; wait = min(2*wait, orphanMost) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
		if !killOrphans(d, info, found) {
			return nil
		}
		pause.Reset(wait)
	}
}

// killOrphans kills the orphans that it finds and reports whether any are left. It keeps every orphan in found, by
// pid with its start, because a dying process loses its environment and session before it is gone.
func killOrphans(d protocol.Dir, info protocol.Info, found map[int]uint64) bool {
	if info.Cgroup != "" {
		if !cgroup.Populated(info.Cgroup) {
			return false
		}
		cgroup.Kill(info.Cgroup)
		return true
	}
	if suspects, leaders := suspectsOf(d, info.Generation); len(suspects) > 0 {
		addOrphans(suspects, leaders, found)
	}
	for pid, start := range found {
		if proc.StartTicks(pid) != start || proc.Ended(pid) {
			delete(found, pid)
			continue
		}
		proc.SignalProcess(pid, start, unix.SIGKILL)
	}
	return len(found) > 0
}

// addOrphans adds the processes of suspects to found.
func addOrphans(suspects map[job.Attempt]bool, leaders sessions, found map[int]uint64) {
	end := time.Now().Add(proc.ExecTime)
	for _, pid := range proc.AllPIDs() {
		start := proc.StartTicks(pid)
		if start == 0 || pid == os.Getpid() {
			continue
		}
		a, marked := proc.AttemptOf(pid, end)
		sid, err := unix.Getsid(pid)
		if marked && suspects[a] || err == nil && leaders.hold(sid, start) {
			found[pid] = start
		}
	}
}

// sessions are process sessions: the pid of each leader, with the tick at which it started.
type sessions map[int]uint64

// hold reports whether a process that started at start belongs to session sid of these. It does if the leader is
// still the same process or is gone: as long as the session has members, the kernel does not reuse the leader's pid.
func (s sessions) hold(sid int, start uint64) bool {
	since, ok := s[sid]
	leader := proc.StartTicks(sid)
	return ok && start >= since && (leader == 0 || leader == since)
}

// suspectsOf returns the attempts of runner n whose exit is not on disk, and the sessions that their main processes
// led.
func suspectsOf(d protocol.Dir, n int) (map[job.Attempt]bool, sessions) {
	f, err := os.Open(d.MainProcesses(n))
	if err != nil {
		return nil, nil // it started nothing
	}
	defer f.Close()
	ended := endedAttempts(d)
	suspects, leaders := map[job.Attempt]bool{}, sessions{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var who protocol.MainProcess
		if json.Unmarshal(lines.Bytes(), &who) != nil {
			continue // the runner died while it wrote this line
		}
		if a, err := job.ParseAttempt(who.Attempt); err == nil && !ended[who.Attempt] {
			suspects[a] = true
			leaders[who.PID] = who.Ticks
		}
	}
	return suspects, leaders
}

// endedAttempts returns the attempts whose exit is on disk. It leaves out exits that cannot be read: looking for
// processes of an ended attempt does no harm.
func endedAttempts(d protocol.Dir) map[string]bool {
	ends, _ := d.Ends()
	all := make(map[string]bool, len(ends))
	for _, e := range ends {
		all[e.Attempt] = true
	}
	return all
}
