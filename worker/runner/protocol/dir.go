package protocol

// The files of a runner's directory, and how a runner is known to live.

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

// Dir names the files of one daemon's tasks:
//
//	runner-N.lock   locked for as long as runner N lives; holds its Info
//	runner-N.sock   where it listens
//	runner-N.exec   where it takes commands to run in its tasks
//	runner-N.log    what it has to say; runner-N.log.1 is what it said before
//	runner-N.boxes  the containers it has begun and not removed
//	runner-N.pins/  where whoever runs containers holds what their mounts show
//	runner-N.tasks  the main processes it has started, without control groups
//	runner-N.ends-K segment K of the ends that runner N has written
//	runner-N.hosts/ hostfiles, each shared by its tasks for which it says the same
//	tasks/ATTEMPT/  script scratch/, and the log (package output)
type Dir string

// Tasks is the directory that holds one directory for each attempt.
func (d Dir) Tasks() string { return filepath.Join(string(d), "tasks") }

// Task is the directory of one attempt. A process of the attempt can exist
// only if its directory does.
func (d Dir) Task(a job.Attempt) string { return filepath.Join(d.Tasks(), a.String()) }

// Scratch is the directory that a task has for itself while it runs.
func (d Dir) Scratch(a job.Attempt) string { return filepath.Join(d.Task(a), "scratch") }

// Lock is the file that runner n holds locked for as long as it lives.
func (d Dir) Lock(n int) string { return d.runner(n, "lock") }

// Socket is where runner n listens; see Dial for why not to use it directly.
func (d Dir) Socket(n int) string { return d.runner(n, "sock") }

// ExecSocket is where runner n takes requests for commands in its tasks.
func (d Dir) ExecSocket(n int) string { return d.runner(n, "exec") }

// Log is where the standard output and error of runner n go.
func (d Dir) Log(n int) string { return d.runner(n, "log") }

// MainProcesses is the file with one MainProcess for each task of runner n, where
// tasks have no control groups.
func (d Dir) MainProcesses(n int) string { return d.runner(n, "tasks") }

// Pins is a directory for whoever runs containers for runner n. What is mounted
// on it goes with the runner.
func (d Dir) Pins(n int) string { return d.runner(n, "pins") }

// Hosts holds the hostfiles of runner n's tasks.
func (d Dir) Hosts(n int) string { return d.runner(n, "hosts") }

// Boxes is where whoever runs containers for runner n keeps their names.
func (d Dir) Boxes(n int) string { return d.runner(n, "boxes") }

func (d Dir) runner(n int, ext string) string {
	return filepath.Join(string(d), "runner-"+strconv.Itoa(n)+"."+ext)
}

// Make creates the directory. When root runs tasks for others, those must be
// able to pass through it to their scratch directories.
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
			return fmt.Errorf("runner: open directory to tasks: %w", err)
		}
	}
	return nil
}

// Generations lists the runners that left a lock file, oldest first.
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

// Info is what a runner says of itself in its lock file, for whoever finds
// that it is dead.
type Info struct {
	Generation int    `json:"generation"`
	PID        int    `json:"pid"`
	Version    string `json:"version"`
	Boot       string `json:"boot"`             // boot id of the kernel: after a reboot nothing of it is left
	Cgroup     string `json:"cgroup,omitempty"` // directory of the control group above its tasks' own
	// Groups are all directories of control groups that it made.
	Groups []string `json:"groups,omitempty"`
	// Containers says that it runs containers, and no processes.
	Containers bool `json:"containers,omitempty"`
	// Isolation says for people what holds its tasks.
	Isolation string `json:"isolation,omitempty"`
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

// TryLock takes the lock of runner n; nil means that the runner lives. Closing
// the file gives the lock back.
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

// Remove deletes the files of a runner that is gone, except its log and the
// ends that it wrote.
func (d Dir) Remove(n int) error {
	_ = unix.Unmount(d.Pins(n), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) // most have none
	return errors.Join(gone(os.Remove(d.Socket(n))), gone(os.Remove(d.ExecSocket(n))), gone(os.Remove(d.MainProcesses(n))), gone(os.Remove(d.Boxes(n))), gone(os.Remove(d.Pins(n))),
		os.RemoveAll(d.Hosts(n)), gone(os.Remove(d.Lock(n))))
}

// gone forgives that a file does not exist.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// AwaitDeath returns when runner n is dead.
func (d Dir) AwaitDeath(n int) error {
	f, err := os.OpenFile(d.Lock(n), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("runner: open lock of runner %d: %w", n, err)
	}
	defer f.Close() // gives the lock back at once: whoever buries the runner wants it
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

// WriteInfo replaces what a lock file holds.
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
