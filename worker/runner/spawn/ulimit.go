package spawn

// The resource limits (setrlimit) of each process of a task, which tasks inherit from the runner.

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/job"
)

// Ulimit is one resource limit of a process: soft is in force, and the process may raise it to hard.
type Ulimit struct {
	name       string
	resource   int
	soft, hard uint64
}

// ulimits are the limits that can be configured, by their names in limits.conf. Sizes are in bytes.
var ulimits = []struct {
	name     string
	resource int
	size     bool
}{
	{"as", unix.RLIMIT_AS, true},
	{"core", unix.RLIMIT_CORE, true},
	{"fsize", unix.RLIMIT_FSIZE, true},
	{"memlock", unix.RLIMIT_MEMLOCK, true},
	{"nofile", unix.RLIMIT_NOFILE, false},
	{"nproc", unix.RLIMIT_NPROC, false},
	{"stack", unix.RLIMIT_STACK, true},
}

// DefaultUlimits returns limits that suit GPU programs: unlimited pinned memory, because the driver and RDMA lock the
// memory that they transfer; a large stack; and descriptors for data loaders with many workers.
func DefaultUlimits() []string {
	return []string{"memlock=unlimited", "stack=64MiB:unlimited", "nofile=65536:524288"}
}

const unlimited = "unlimited"

// ParseUlimit reads NAME=SOFT[:HARD]. Without HARD, HARD is SOFT.
func ParseUlimit(text string) (Ulimit, error) {
	name, values, _ := strings.Cut(text, "=")
	for _, known := range ulimits {
		if known.name != name {
			continue
		}
		soft, hard, both := strings.Cut(values, ":")
		if !both {
			hard = soft
		}
		u := Ulimit{name: name, resource: known.resource}
		var errs [2]error
		u.soft, errs[0] = limitValue(soft, known.size)
		u.hard, errs[1] = limitValue(hard, known.size)
		if err := errors.Join(errs[:]...); err != nil || u.soft > u.hard {
			return Ulimit{}, fmt.Errorf("%.60q: want NAME=SOFT[:HARD], each %s or unlimited", text, map[bool]string{true: "a size such as 64MiB", false: "a number"}[known.size])
		}
		return u, nil
	}
	names := make([]string, len(ulimits))
	for i, known := range ulimits {
		names[i] = known.name
	}
	return Ulimit{}, fmt.Errorf("%.60q: want NAME=SOFT[:HARD] with one of %s", text, strings.Join(names, " "))
}

func limitValue(text string, size bool) (uint64, error) {
	if text == unlimited {
		return unix.RLIM_INFINITY, nil
	}
	if size {
		var n job.Size
		err := n.UnmarshalText([]byte(text))
		return uint64(max(0, n)), err
	}
	return strconv.ParseUint(text, 10, 63)
}

// ApplyUlimits sets the limits of this process, and so of its tasks. A process that is not root cannot raise a hard
// limit; the limit is then set as high as permitted, and logged.
func ApplyUlimits(all []string, log *slog.Logger) error {
	for _, text := range all {
		u, err := ParseUlimit(text)
		if err != nil {
			return fmt.Errorf("runner: ulimit: %w", err)
		}
		// syscall.Setrlimit and not unix.Setrlimit: otherwise Go would start tasks with the descriptor limit that the
		// runner itself was started with.
		err = syscall.Setrlimit(u.resource, &syscall.Rlimit{Cur: u.soft, Max: u.hard})
		if err == nil {
			continue
		}
		var now syscall.Rlimit
		if err := syscall.Getrlimit(u.resource, &now); err != nil {
			return fmt.Errorf("runner: ulimit %s: %w", u.name, err)
		}
		now.Cur, now.Max = min(u.soft, now.Max), min(u.hard, now.Max)
		if err := syscall.Setrlimit(u.resource, &now); err != nil {
			return fmt.Errorf("runner: ulimit %s: %w", u.name, err)
		}
		log.Info("limit of tasks is lower than wanted", "limit", text, "soft", now.Cur, "hard", now.Max)
	}
	return nil
}

// processBound limits the number of processes of a task where no control group does. It lowers the runner's own limit
// while it forks: a limit that is set after the fork comes too late for a task that forks at once. The kernel counts
// all processes of the user, so this only stops fork bombs; it is no per-task limit. It does not bind root.
type processBound struct{ mu sync.Mutex }

// during calls fork while the limit is most processes.
func (b *processBound) during(most int, fork func() (int, error)) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &own); err != nil {
		return 0, fmt.Errorf("runner: bound processes: %w", err)
	}
	bound := unix.Rlimit{Cur: min(own.Cur, uint64(most)), Max: own.Max} //nolint:gosec // a Start has no negative one
	if err := unix.Setrlimit(unix.RLIMIT_NPROC, &bound); err != nil {
		return 0, fmt.Errorf("runner: bound processes: %w", err)
	}
	pid, err := fork()
	if back := unix.Setrlimit(unix.RLIMIT_NPROC, &own); back != nil && err == nil && pid == 0 {
		err = fmt.Errorf("runner: bound processes: %w", back)
	}
	if err == nil {
		bound.Max = bound.Cur
		_ = unix.Prlimit(pid, unix.RLIMIT_NPROC, &bound, nil) // also the hard limit, so that the task cannot raise it; fails if the process has ended
	}
	return pid, err
}
