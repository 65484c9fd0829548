package runner

// Ending what a runner that was killed left behind.

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/cgroup"
)

const (
	// orphanFirst and orphanMost bound the pause before looking again whether
	// orphans are gone.
	orphanFirst = 5 * time.Millisecond
	orphanMost  = time.Second
)

// EndOrphans kills every process that a dead runner's tasks left, and returns
// when none is there any more. The caller holds the dead runner's lock.
//
// The main processes died with their runner. The rest is found by their control
// group, or by the session and the environment that they were started with.
func (d Dir) EndOrphans(ctx context.Context, info Info) error {
	if info.Boot != "" && info.Boot != bootID() {
		return nil // no process outlives a boot
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	hunted := map[int]uint64{}
	for wait := orphanFirst; ; wait = min(2*wait, orphanMost) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-pause.C:
		}
		if !d.killOrphans(info, hunted) {
			return nil
		}
		pause.Reset(wait)
	}
}

// RemoveGroups removes the control groups of a dead runner. It may take a
// moment, and nothing depends on it.
func (i Info) RemoveGroups() {
	for _, dir := range i.Groups {
		cgroup.RemoveSoon(dir)
	}
}

// killOrphans says whether there are any. Those that it has found are hunted:
// a process that dies loses what it is known by before it is gone.
func (d Dir) killOrphans(info Info, hunted map[int]uint64) bool {
	if info.Cgroup != "" {
		if !cgroup.Populated(info.Cgroup) {
			return false
		}
		cgroup.Kill(info.Cgroup)
		return true
	}
	if suspects, leaders := d.suspects(info.Generation); len(suspects) > 0 {
		find(suspects, leaders, hunted)
	}
	for pid, start := range hunted {
		if startTicks(pid) != start || ended(pid) {
			delete(hunted, pid)
			continue
		}
		signalProcess(pid, start, unix.SIGKILL)
	}
	return len(hunted) > 0
}

// find adds the processes that belong to suspects to the hunted.
func find(suspects map[job.Attempt]bool, leaders sessions, hunted map[int]uint64) {
	for _, pid := range allPIDs() {
		start := startTicks(pid)
		if start == 0 || pid == os.Getpid() {
			continue
		}
		a, marked := mark(pid)
		sid, err := unix.Getsid(pid)
		if marked && suspects[a] || err == nil && leaders.hold(sid, start) {
			hunted[pid] = start
		}
	}
}

// sessions are the pids of leaders of sessions, with the tick at which each began.
type sessions map[int]uint64

// hold says whether a process that began at start in session sid is of one of
// these: its leader is gone, and holds the number for as long as anyone is in
// it, or is still the same.
func (s sessions) hold(sid int, start uint64) bool {
	since, ok := s[sid]
	leader := startTicks(sid)
	return ok && start >= since && (leader == 0 || leader == since)
}

// suspects lists the attempts of runner n whose end is not on disk, and the
// sessions that their main processes led.
func (d Dir) suspects(n int) (map[job.Attempt]bool, sessions) {
	f, err := os.Open(d.notes(n))
	if err != nil {
		return nil, nil // it started nothing
	}
	defer f.Close()
	ended := d.ended()
	suspects, leaders := map[job.Attempt]bool{}, sessions{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var who noted
		if json.Unmarshal(lines.Bytes(), &who) != nil {
			continue // cut off with its writer
		}
		if a, err := job.ParseAttempt(who.Attempt); err == nil && !ended[who.Attempt] {
			suspects[a] = true
			leaders[who.PID] = who.Ticks
		}
	}
	return suspects, leaders
}

// ended names the attempts whose end is on disk. Of what cannot be read it
// says nothing: a process that is looked for in vain does no harm.
func (d Dir) ended() map[string]bool {
	ends, _ := d.Ends()
	all := make(map[string]bool, len(ends))
	for _, e := range ends {
		all[e.Attempt] = true
	}
	return all
}
