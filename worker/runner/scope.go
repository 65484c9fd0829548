package runner

// The runner's own systemd scope unit.

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// scopeWithin bounds the wait for systemd. Tasks cannot start during that wait.
const scopeWithin = 5 * time.Second

// enterScope moves this process out of the daemon's service into a scope unit of its own. Stopping or killing the
// service then does not touch the runner and its tasks, and the runner may divide the scope's control group. If the
// runner divided the service's own control group, systemd could not start the service again (EBUSY): a group with
// controllers for its subgroups may hold no process. DelegateSubgroup= would help from systemd 254 on, but Debian 12 has
// 252. At shutdown systemd sends TERM to the scope, and the runner ends its tasks in order. The daemon does not make the
// scope, because the runner would have to wait for it before its first group.
func enterScope(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, scopeWithin)
	defer cancel()
	connect := systemd.NewUserConnectionContext
	if os.Geteuid() == 0 {
		connect = systemd.NewWithContext
	}
	conn, err := connect(ctx)
	if err != nil {
		return fmt.Errorf("runner: reach systemd: %w", err)
	}
	defer conn.Close()
	name := "muster-runner-" + strconv.Itoa(os.Getpid()) + ".scope"
	done := make(chan string, 1)
	_, err = conn.StartTransientUnitContext(ctx, name, "fail", []systemd.Property{
		systemd.PropDescription("tasks of muster"),
		systemd.PropPids(uint32(os.Getpid())), //nolint:gosec // a pid is above 0
		{Name: "Delegate", Value: dbus.MakeVariant(true)},
		{Name: "TasksMax", Value: dbus.MakeVariant(^uint64(0))},
		{Name: "CollectMode", Value: dbus.MakeVariant("inactive-or-failed")},
	}, done)
	if err != nil {
		return fmt.Errorf("runner: make %s: %w", name, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("runner: make %s: systemd says %q", name, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("runner: make %s: %w", name, ctx.Err())
	}
}
