// Command muster-runner is the process between a daemon and its tasks, as a
// program of its own: a tenth of muster's size in memory. muster carries it
// within itself, so nobody installs or starts it by hand.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/musterhq/muster/worker/runner"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// version is set by the linker.
var version = "dev"

func main() {
	if code, failed := spawn.Become(); failed {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := runner.Command(ctx, version, os.Args[1:], nil)
	stop()
	os.Exit(code)
}
