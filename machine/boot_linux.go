package machine

// Boot: which life of this host, or of this container, this is.

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/procfs"
)

// Incarnation is made of the kernel's id of this boot, the PID namespace, and
// the ticks from boot to the start of that namespace's first process. The last
// is not told to everybody; then it is left out.
func Incarnation(context.Context) (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("machine: read the id of this boot: %w", err)
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return "", fmt.Errorf("machine: read the PID namespace: %w", err)
	}
	namespace = strings.TrimSuffix(strings.TrimPrefix(namespace, "pid:["), "]")
	return fmt.Sprintf("%s/%s/%s", strings.TrimSpace(string(boot)), namespace, firstStart()), nil
}

// firstStart is when process 1 started, in ticks since boot; "-" if not told.
// A time of day would move when the clock is set.
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
