// Command muster-runner is the process between a daemon and its tasks, as a program of its own. It needs a tenth of
// muster's memory. The muster binary contains it, so nobody installs or starts it by hand.
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

// atExit is called at the end of the program. A build with the tag profile sets it.
var atExit = func() {}

func main() {
	if code, failed := spawn.Become(); failed {
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := runner.Command(ctx, version, os.Args[1:], nil)
	stop()
	atExit()
	os.Exit(code)
}
