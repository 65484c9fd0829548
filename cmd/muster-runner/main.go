// Command muster-runner is the process between a daemon and its tasks, as a program of its own. The muster binary
// contains it, so nobody installs or starts it by hand.
//
// A runner stays on its host for as long as a task runs. It takes 9 MB of memory, and 11 MB with 100 tasks. As a command
// of muster it took 39 MB: 5 MB of its own, and pages of a program of 50 MB whose packages touch their pages as they are
// initialized. To give these pages back does not last, because recent kernels map whole huge pages around each touch.
// The daemon writes the program to its data directory, and not to a memfd, which some hosts do not execute.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/musterhq/muster/worker/runner"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// version is set by the linker.
var version = "dev"

// atExit is called at the end of the program. A build with the tag profile sets it.
var atExit = func() {}

// run runs a runner, or the guard of one.
func run(ctx context.Context, args []string) int {
	if n := len(args) - 1; n >= 0 && args[n] == runner.GuardFlag {
		return runner.GuardCommand(ctx, args[:n], nil)
	}
	return runner.Command(ctx, version, args, func(cfg *runner.Config, _ *slog.Logger) {
		cfg.Guard = append(append([]string{"/proc/self/exe"}, args...), runner.GuardFlag)
	})
}

func main() {
	if code, failed := spawn.Become(); failed {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	stop()
	atExit()
	os.Exit(code)
}
