//go:build e2e

package e2e

// Chromium, headless, and the door that it uses.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	browser "github.com/musterhq/muster/internal/testkit/chromium"
)

// Bounds for browsers, which are slow on a busy machine.
const (
	slow        = time.Minute     // for one step
	browserLife = 8 * time.Minute // for all steps of a test
)

// chromium is a browser with an empty profile.
type chromium struct {
	t       *testing.T
	ctx     context.Context //nolint:containedctx // chromedp keeps the browser in it
	profile string
	closing sync.Once
}

// newChromium starts a browser. If there is none the test is skipped. rules say where host names lead.
func newChromium(t *testing.T, rules string) *chromium {
	t.Helper()
	c := &chromium{t: t, profile: t.TempDir()}
	flags := map[string]any{"disable-popup-blocking": true}
	if rules != "" {
		flags["host-resolver-rules"] = rules
	}
	ctx, cancel := context.WithTimeout(context.Background(), browserLife)
	tab, stop := browser.New(ctx, chromiumProgram(t), c.profile, 1280, 800, flags)
	c.ctx = tab
	t.Cleanup(func() {
		c.close()
		stop()
		cancel()
	})
	if err := chromedp.Do(c.ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// close ends the browser, so that its profile has all its data.
func (c *chromium) close() { c.closing.Do(func() { _ = chromedp.Cancel(c.ctx) }) }

// tab is one tab. Errors of its page, such as violations of its policy, are in complaints.
type tab struct {
	*chromium
	mu         sync.Mutex
	complaints []string // guarded by mu
}

func (c *chromium) newTab() *tab {
	c.t.Helper()
	ctx, _ := chromedp.NewContext(c.ctx)
	x := &tab{chromium: &chromium{t: c.t, ctx: ctx, profile: c.profile}}
	x.listen(func(ev any) {
		text := ""
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			text = e.ExceptionDetails.Text
		case *log.EventEntryAdded:
			text = e.Entry.Text + " " + e.Entry.URL
		default:
			return
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.complaints = append(x.complaints, text)
	})
	return x
}

// listen calls each with the events of the tab. each must not wait.
func (x *tab) listen(each func(any)) {
	x.t.Helper()
	if err := chromedp.Listen(x.ctx, each); err != nil {
		x.t.Fatal(err)
	}
}

func (x *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	x.t.Helper()
	if err := chromedp.Do(x.ctx, actions...); err != nil {
		x.t.Fatal(err)
	}
}

// until waits until an expression of the page is true. The page may be loaded again during the wait.
func (x *tab) until(expression string) {
	x.t.Helper()
	late, tick := time.NewTimer(slow), time.NewTicker(50*time.Millisecond)
	defer late.Stop()
	defer tick.Stop()
	for {
		yes, err := chromedp.Run(x.ctx, chromedp.Evaluate[bool](expression))
		if yes {
			return
		}
		select {
		case <-tick.C:
		case <-late.C:
			text, _ := chromedp.Run(x.ctx, chromedp.Evaluate[string](`location.href + " " + document.documentElement.innerText`))
			x.t.Fatalf("%s was never true: %v; the page is %s", expression, err, text)
		}
	}
}

// eval returns the value of an expression, which may be a promise.
func eval[T any](x *tab, expression string) T {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.ctx, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		x.t.Fatalf("%.200s: got %v, want a value", expression, err)
	}
	return v
}

// quiet fails if the page has complained of anything other than what is allowed.
func (x *tab) quiet(allowed ...string) {
	x.t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, text := range x.complaints {
		ok := false
		for _, a := range allowed {
			ok = ok || strings.Contains(text, a)
		}
		if !ok {
			x.t.Errorf("got a complaint of the page, want none: %s", text)
		}
	}
}

// contains returns the files of the profile that contain a word.
func (c *chromium) contains(word string) (names []string) {
	c.t.Helper()
	err := filepath.WalkDir(c.profile, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || (err == nil && !e.Type().IsRegular()) {
			return nil
		}
		if err != nil {
			return err
		}
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(word)) {
			rel, _ := filepath.Rel(c.profile, path)
			names = append(names, rel)
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return names
}

// uiProcess is a running `muster ui`.
type uiProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   *bufio.Scanner
	keys  *os.File
	root  string // http://127.0.0.1:PORT/
	code  string // the code of the address that was printed last
	ended chan error
}

// openDoor runs `muster ui` for a user until the test ends.
func (d *daemon) openDoor(args ...string) *uiProcess {
	d.t.Helper()
	in, keys, err := os.Pipe()
	if err != nil {
		d.t.Fatal(err)
	}
	u := &uiProcess{t: d.t, keys: keys, ended: make(chan error, 1)}
	u.cmd = exec.Command(binary(d.t), append([]string{"ui", "--no-open"}, args...)...)
	u.cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+d.socket)
	u.cmd.Stdin, u.cmd.Stderr = in, os.Stderr
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: d.user}
	out, err := u.cmd.StdoutPipe()
	if err == nil {
		err = u.cmd.Start()
	}
	if err != nil {
		d.t.Fatal(err)
	}
	in.Close()
	u.out = bufio.NewScanner(out)
	d.t.Cleanup(func() { keys.Close(); _ = u.cmd.Process.Kill(); _ = u.cmd.Wait() })
	u.next()
	return u
}

// next reads the next address.
func (u *uiProcess) next() string {
	u.t.Helper()
	if !u.out.Scan() {
		u.t.Fatalf("muster ui printed nothing more: got %v, want an address", u.out.Err())
	}
	address := u.out.Text()
	base, code, ok := strings.Cut(address, "#code=")
	parts := strings.SplitAfterN(base, "/", 4)
	if !ok || len(parts) != 4 {
		u.t.Fatalf("muster ui printed %q, want an address with a code", address)
	}
	u.root, u.code = strings.Join(parts[:3], ""), code
	return address
}

// another asks for another address.
func (u *uiProcess) another() string {
	u.t.Helper()
	if _, err := u.keys.WriteString("\n"); err != nil {
		u.t.Fatal(err)
	}
	return u.next()
}
