// Package chromium starts Debian's Chromium without a screen, for tests and benchmarks. They drive it with chromedp.
package chromium

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"time"

	"github.com/chromedp/chromedp"
)

// ErrNone means that this machine has no Chromium.
var ErrNone = errors.New("no Chromium: install chromium, or name one in MUSTER_CHROMIUM")

// startWait is long, for a machine that is busy with other tests.
const startWait = 2 * time.Minute

// Program returns the path of the browser.
func Program() (string, error) {
	for _, name := range []string{os.Getenv("MUSTER_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return path, nil
		}
	}
	return "", ErrNone
}

// New returns the context of the first tab of a browser that keeps what it has in a directory. The browser starts with
// the first action there, and ends with stop.
func New(ctx context.Context, program, dir string, width, height int, flags map[string]any) (tab context.Context, stop func()) {
	opts := []chromedp.ExecAllocatorOption{
		chromedp.NoFirstRun, chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU, chromedp.ExecPath(program),
		chromedp.UserDataDir(dir), chromedp.WindowSize(width, height), chromedp.WSURLReadTimeout(startWait),
	}
	for _, f := range []string{"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync"} {
		opts = append(opts, chromedp.Flag(f, true))
	}
	for name, value := range flags {
		opts = append(opts, chromedp.Flag(name, value))
	}
	alloc, end := chromedp.NewExecAllocator(ctx, opts...)
	tab, leave := chromedp.NewContext(alloc)
	return tab, func() {
		leave()
		end()
	}
}
