package spawn

// The limits of the kernel's own for each process, which tasks inherit.

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

// Ulimit is one limit of a process: what counts, and what it may raise that to.
type Ulimit struct {
	name       string
	resource   int
	soft, hard uint64
}

// ulimits are those that a host's owner may set, by their names in ulimit and
// limits.conf. Sizes are in bytes.
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

// DefaultUlimits are what work on GPUs needs: pinned memory without a bound,
// as the driver and RDMA lock what they transfer, a stack for deep kernels'
// hosts, and descriptors for loaders with many workers.
func DefaultUlimits() []string {
	return []string{"memlock=unlimited", "stack=64MiB:unlimited", "nofile=65536:524288"}
}

const unlimited = "unlimited"

// ParseUlimit reads NAME=SOFT[:HARD]; HARD is SOFT if it is not given.
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

// ApplyUlimits sets the limits of this process, and so of its tasks, as far as
// it may: who is not root cannot raise the hard one.
func ApplyUlimits(all []string, log *slog.Logger) error {
	for _, text := range all {
		u, err := ParseUlimit(text)
		if err != nil {
			return fmt.Errorf("runner: ulimit: %w", err)
		}
		// The syscall package is told, as it would give tasks back the limit of
		// descriptors that the runner itself began with.
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

// processBound lends the runner's own limit of processes to its tasks where no
// control group bounds them: a limit that is set after the fork comes too late
// for a task that forks at once. The kernel counts all processes of the user, so
// this bounds what a fork bomb can do and is no share; and it does not bind root.
type processBound struct{ mu sync.Mutex }

// during calls fork with the limit.
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
		_ = unix.Prlimit(pid, unix.RLIMIT_NPROC, &bound, nil) // it may not raise it either, unless it is gone
	}
	return pid, err
}
