package hostinfo

// The identity of the current boot of this host or container.

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/procfs"
)

// Incarnation identifies the current boot by the kernel's boot ID, the PID namespace, and the start of the
// namespace's first process in ticks since boot. Not every process may read the last part; then it is left out.
func Incarnation(ctx context.Context) (string, error) {
	boot, err := BootID(ctx)
	if err != nil {
		return "", err
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", fmt.Errorf("machine: read the PID namespace: %w", err)
	}
	namespace = strings.TrimSuffix(strings.TrimPrefix(namespace, "pid:["), "]")
	return fmt.Sprintf("%s/%s/%s", boot, namespace, firstStart()), nil
}

// BootID identifies the current boot of the whole host, also in a container.
func BootID(context.Context) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("machine: read the id of this boot: %w", err)
	}
	return strings.TrimSpace(string(boot)), nil
}

// firstStart returns when process 1 started, in ticks since boot; "-" if unknown. A wall-clock time would move when
// the clock is set.
func firstStart() string {
	p, err := procfs.NewProc(1)
	if err != nil {
		return "-"
	}
	s, err := p.Stat()
	if err != nil {
		return "-"
	}
	return fmt.Sprint(s.Starttime)
}
