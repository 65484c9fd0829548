// Command muster is the daemon that runs on every host, and the verbs that talk to it.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/musterhq/muster/internal/timerslack"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// version and date are set by the linker; date is the date of the version, such as 2026-12-01, or empty if it is not
// known.
var (
	version = "dev"
	date    string
)

// atExit is called at the end of the program. A build with the tag profile sets it.
var atExit = func() {}

func main() {
	runtime.MemProfileRate = 0 // nobody asks for a profile of the heap, and its table takes 1.4 MB
	if code, failed := spawn.Become(); failed {
		os.Exit(code)
	}
	if len(os.Args) > 1 && os.Args[1] == "daemon" {
		timerslack.Restart()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, streams{os.Stdin, os.Stdout, os.Stderr})
	stop()
	atExit()
	os.Exit(code)
}

// streams are the standard streams of a verb.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}
