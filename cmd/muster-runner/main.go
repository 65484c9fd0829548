// Command muster-runner is the process between a daemon and its tasks, as a program of its own. It needs a tenth of
// muster's memory. The muster binary contains it, so nobody installs or starts it by hand.
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
