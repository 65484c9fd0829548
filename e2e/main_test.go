//go:build e2e

package e2e

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// TestMain gives the tested programs the signals of a terminal. They inherit what this process ignores: SIGHUP if it was
// started by nohup, and SIGINT if a shell without job control started it in the background. A caught signal is not
// inherited.
func TestMain(m *testing.M) {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(m.Run())
}
