// Command muster-runner is the process between a daemon and its tasks, as a separate program: in memory a tenth of
// muster's size. The muster binary contains it, so nobody installs or starts it by hand.
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
