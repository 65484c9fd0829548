package protocol

// The files in a runner's directory, and how to tell whether a runner lives.

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker/runner/proc"
)

// Dir is the directory of one daemon's runners and tasks. N is the generation of a runner:
//
//	runner-N.lock   locked as long as runner N lives; holds its Info
//	runner-N.sock   the socket for requests
//	runner-N.exec   the socket for commands in tasks
//	runner-N.log    its log; runner-N.log.1 is the older half
//	runner-N.boxes  the containers that it has started and not removed
//	runner-N.pins/  bind mounts that hold the sources of containers' mounts
//	runner-N.tasks  the main processes that it has started, if there are no control groups
//	runner-N.ends-K segment K of the exit journal that runner N has written
//	runner-N.room   disk space for ends of tasks; becomes the next segment
//	runner-N.hosts/ hostfiles; tasks with the same hosts share one
//	runner-N.spare/ empty scratch directories of ended tasks, for later tasks
//	runner-N.tmp/   the directories that tasks have as their /tmp
//	silent          attempts whose directories later ones have taken, because they wrote no output; silent.1 is the older half
//	tasks/ATTEMPT/  the file script, the directory scratch/, and the log (package output)
type Dir string

// Tasks is the directory that holds one directory for each attempt.
func (d Dir) Tasks() string { return filepath.Join(string(d), "tasks") }

// Task is the directory of one attempt. A process of the attempt can exist only if its directory does.
func (d Dir) Task(a job.Attempt) string { return filepath.Join(d.Tasks(), a.String()) }

// Scratch is the scratch directory of an attempt.
func (d Dir) Scratch(a job.Attempt) string { return filepath.Join(d.Task(a), "scratch") }

// Silent is the file in d that lists the attempts whose directories later attempts have taken, one a line.
func Silent(d Dir) string { return filepath.Join(string(d), "silent") }

// Lock is the file that runner n keeps locked as long as it lives.
func (d Dir) Lock(n int) string { return d.runner(n, "lock") }

// Socket is the socket for requests to runner n. Use Dial, because the path may be too long for a socket address.
func (d Dir) Socket(n int) string { return d.runner(n, "sock") }

// ExecSocket is the socket for commands in tasks of runner n.
func (d Dir) ExecSocket(n int) string { return d.runner(n, "exec") }

// Log is where standard output and error of runner n go.
func (d Dir) Log(n int) string { return d.runner(n, "log") }

// MainProcesses is the file with one MainProcess for each task of runner n. It exists only where tasks have no
// control groups.
func (d Dir) MainProcesses(n int) string { return d.runner(n, "tasks") }

// Pins is the directory of bind mounts for the containers of runner n. They are unmounted when the runner is dead.
func (d Dir) Pins(n int) string { return d.runner(n, "pins") }

// Room is the file in d of runner n that holds disk space for the ends of its tasks.
func Room(d Dir, n int) string { return d.runner(n, "room") }

// Hosts is the directory of hostfiles for the tasks of runner n.
func (d Dir) Hosts(n int) string { return d.runner(n, "hosts") }

// Spares is the directory in d of empty scratch directories of runner n.
func Spares(d Dir, n int) string { return d.runner(n, "spare") }

// Tmps is the directory in d with the directories that tasks of runner n have as their /tmp. It stays when the runner is
// dead.
func Tmps(d Dir, n int) string { return d.runner(n, "tmp") }

// Containers is the file that lists the containers of runner n.
func (d Dir) Containers(n int) string { return d.runner(n, "boxes") }

func (d Dir) runner(n int, ext string) string {
	return filepath.Join(string(d), "runner-"+strconv.Itoa(n)+"."+ext)
}

// Make creates the directory. If the runner is root, other users must be able to pass through the directory to their
// scratch directories.
func (d Dir) Make() error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	for _, path := range []string{string(d), d.Tasks()} {
		if err := os.MkdirAll(path, mode); err != nil {
			return fmt.Errorf("runner: make directory: %w", err)
		}
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("runner: set mode of directory: %w", err)
		}
	}
	return nil
}

// Generations lists the runners that have a lock file, oldest first.
func (d Dir) Generations() ([]int, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, fmt.Errorf("runner: list %s: %w", d, err)
	}
	var all []int
	for _, e := range entries {
		name, isLock := strings.CutSuffix(e.Name(), ".lock")
		name, isRunner := strings.CutPrefix(name, "runner-")
		if n, err := strconv.Atoi(name); err == nil && isLock && isRunner && n > 0 {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// Attempts lists the attempts that have a directory.
func (d Dir) Attempts() ([]job.Attempt, error) {
	f, err := os.Open(d.Tasks())
	if err != nil {
		return nil, fmt.Errorf("runner: list tasks: %w", err)
	}
	defer f.Close()
	var all []job.Attempt
	for {
		names, err := f.Readdirnames(1024)
		for _, name := range names {
			if a, err := job.ParseAttempt(name); err == nil {
				all = append(all, a)
			}
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("runner: list tasks: %w", err)
		}
	}
}

// Info is what a runner writes about itself to its lock file. It is read when the runner is dead.
type Info struct {
	Generation int    `json:"generation"`
	PID        int    `json:"pid"`
	Version    string `json:"version"`
	Boot       string `json:"boot"`             // boot id of the kernel: no process survives a reboot
	Cgroup     string `json:"cgroup,omitempty"` // directory of the parent of its tasks' control groups
	// Groups are all control group directories that it made.
	Groups []string `json:"groups,omitempty"`
	// Containers says that it runs only containers, and not processes.
	Containers bool `json:"containers,omitempty"`
	// Isolation says for people how its tasks are isolated.
	Isolation string `json:"isolation,omitempty"`
	// Leases is the file descriptor, in the runner, of its table of leases; see package guard. 0: it has none.
	Leases int `json:"leases,omitempty"`
	// PIDNamespace says that the kernel ends all processes of its tasks when the runner ends, however it ends. A runner
	// of an older version never says so, and a runner of containers does not.
	PIDNamespace bool `json:"pid_namespace,omitempty"`
	// SharedTmp says for people why tasks have the /tmp and the /dev/shm of the host. It is empty if they have their own, if
	// the runner runs containers, and if it is of an older version.
	SharedTmp string `json:"shared_tmp,omitempty"`
	// Fences says that it can end each task with its lease for certain, and does so for those whose Start asks for it. See
	// docs/adr, ADR 175.
	Fences bool `json:"fences,omitempty"`
}

// ReadInfo reads the lock file of runner n.
func (d Dir) ReadInfo(n int) (Info, error) {
	var info Info
	b, err := proc.ReadBounded(d.Lock(n), proc.MaxSmallFile)
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	if err != nil {
		return Info{Generation: n}, fmt.Errorf("runner: read lock of runner %d: %w", n, err)
	}
	info.Generation = n
	return info, nil
}

// TryLock takes the lock of runner n. It returns nil without an error if the runner lives. Closing the file releases
// the lock.
func (d Dir) TryLock(n int) (*os.File, error) {
	f, err := os.OpenFile(d.Lock(n), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("runner: open lock of runner %d: %w", n, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close() // nothing was written
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("runner: lock runner %d: %w", n, err)
}

// Remove deletes the files of a dead runner, except its log and its exit journal.
func (d Dir) Remove(n int) error {
	_ = unix.Unmount(d.Pins(n), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // most have none
	return errors.Join(gone(os.Remove(d.Socket(n))), gone(os.Remove(d.ExecSocket(n))), gone(os.Remove(d.MainProcesses(n))), gone(os.Remove(d.Containers(n))), gone(os.Remove(d.Pins(n))), gone(os.Remove(Room(d, n))),
		os.RemoveAll(d.Hosts(n)), os.RemoveAll(Spares(d, n)), gone(os.Remove(d.Lock(n))))
}

// gone returns err, or nil if err says that the file does not exist.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// AwaitDeath returns nil when runner n is dead, or an error if that cannot be seen: a runner without a lock file may
// live.
func (d Dir) AwaitDeath(n int) error {
	f, err := os.OpenFile(d.Lock(n), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("runner: open lock of runner %d: %w", n, err)
	}
	defer f.Close() // releases the lock, which the daemon needs to clean up
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("runner: wait for the lock of runner %d: %w", n, err)
	}
	return nil
}

// WriteInfo replaces the content of a lock file.
func WriteInfo(f *os.File, info Info) error {
	b, err := json.Marshal(info)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err != nil {
		return fmt.Errorf("runner: write lock: %w", err)
	}
	return nil
}
