//go:build e2e

package e2e

// A viewer: a tab of Debian's Chromium, which tests use as a person does. Without a browser they are skipped.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/musterhq/muster/internal/dashboard/ui"
	browser "github.com/musterhq/muster/internal/testkit/chromium"
	"github.com/musterhq/muster/internal/testkit/needtest"
)

// watching bounds what a page may take on a machine that is busy with other tests.
const watching = 2 * time.Minute

// viewer is one tab of a browser of its own.
type viewer struct {
	t    *testing.T
	ctx  context.Context //nolint:containedctx // chromedp keeps the tab in it
	base string

	mu   sync.Mutex
	said []string // guarded by mu: errors of pages, and reports of policy violations
}

// front serves the dashboard of a daemon to a browser, with the rights of the daemon's socket. It accepts everybody.
func (d *daemon) front() string {
	d.t.Helper()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "daemon"
			r.Out.Header.Del("Origin") // a daemon takes no commands from web pages
			r.Out.Header.Del("Sec-Websocket-Protocol")
		},
		ModifyResponse: func(r *http.Response) error {
			if r.StatusCode == http.StatusSwitchingProtocols {
				r.Header.Set("Sec-Websocket-Protocol", "muster")
			}
			return nil
		},
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", d.socket)
		}},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet && ui.Serves(r.URL.Path):
			ui.Serve(w, r)
		case r.URL.Path == "/v1/tickets":
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"ticket": "any"}`) // the proxy needs none
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	d.t.Cleanup(s.CloseClientConnections)
	return s.URL
}

func chromiumProgram(t *testing.T) string {
	t.Helper()
	return needtest.Browser(t)
}

// browse opens a tab of a new browser. At the end of the test no page may have had an error.
func browse(t *testing.T, base string, width, height int) *viewer {
	t.Helper()
	dir, err := os.MkdirTemp("", "muster-browser-") //nolint:usetesting // the browser writes there until it has ended
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, stop := browser.New(context.Background(), chromiumProgram(t), dir, width, height, nil)
	t.Cleanup(stop)
	b := &viewer{t: t, ctx: ctx, base: base}
	if err := chromedp.Listen(ctx, b.waitLine); err != nil { // also starts the browser
		t.Fatal(err)
	}
	b.run("set the size", chromedp.EmulateViewport(int64(width), int64(height)))
	t.Cleanup(func() {
		if t.Failed() {
			b.keep("failed")
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, s := range b.said {
			t.Errorf("a page had an error: %s", s)
		}
	})
	return b
}

// waitLine records what a page writes to the console as an error, and what the browser reports about it. An answer of the
// daemon that is not a success is no error of the page.
func (b *viewer) waitLine(e any) {
	said := ""
	switch e := e.(type) {
	case *runtime.EventExceptionThrown:
		said = e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			said += " " + x.Description
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			for _, a := range e.Args {
				said += fmt.Sprintf("%s %s ", a.Value, a.Description)
			}
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Level == cdplog.EntryLevelError && e.Entry.Source != cdplog.EntrySourceNetwork {
			said = string(e.Entry.Source) + ": " + e.Entry.Text
		}
	}
	if said != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.said = append(b.said, said)
	}
}

func (b *viewer) run(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, watching)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// open opens a page of the dashboard.
func (b *viewer) open(path string) {
	b.t.Helper()
	b.run("open "+path, chromedp.Navigate(b.base+path))
}

// evalIn returns the value of an expression in the page, which may be a promise.
func evalIn[T any](b *viewer, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, watching)
	defer cancel()
	for {
		value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
		if err == nil {
			return value
		}
		if ctx.Err() != nil || !containsAny(err.Error(), "context was destroyed", "Cannot find context", "navigated or closed") { // the page is being replaced
			b.t.Fatalf("evaluate %.300s: %v", expression, err)
		}
	}
}

func containsAny(text string, words ...string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
}

// pageText is the visible text of the page, with its fields.
const pageText = `((document.querySelector('main')||document.body)?.innerText || '') + ' ' + [...document.querySelectorAll('dialog[open], .banner, .notices')].map((e) => e.innerText).join(' ')`

// shows waits until the page shows all these words.
func (b *viewer) shows(words ...string) {
	b.t.Helper()
	b.until(fmt.Sprintf("show %q", words), func() bool { return containsAll(evalIn[string](b, pageText), words) })
}

// until polls ten times a second.
func (b *viewer) until(what string, as func() bool) {
	b.t.Helper()
	tick := time.NewTicker(time.Second / 10)
	defer tick.Stop()
	late := time.NewTimer(watching)
	defer late.Stop()
	for !as() {
		select {
		case <-tick.C:
		case <-late.C:
			b.t.Fatalf("the page %s did not %s:\n%s", evalIn[string](b, "location.href"), what, evalIn[string](b, pageText))
		}
	}
}

// click clicks the visible button or link with this text.
func (b *viewer) click(name string) {
	b.t.Helper()
	quoted, _ := json.Marshal(name)
	find := fmt.Sprintf(`[...document.querySelectorAll(document.querySelector('dialog[open]') ? 'dialog[open] button' : 'button, a, summary')].find((e) => (e.innerText.trim() === %[1]s || e.getAttribute('aria-label') === %[1]s) && !e.disabled && e.getClientRects().length)`, quoted)
	b.until("have a button "+name, func() bool { return evalIn[bool](b, "Boolean("+find+")") })
	at := evalIn[struct{ X, Y float64 }](b, find+".scrollIntoView({block: 'center'}), (() => { const r = "+find+".getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2}; })()")
	b.run("click "+name, chromedp.MouseClickXY(at.X, at.Y))
}

// write types text into the field with this label.
func (b *viewer) write(label, words string) {
	b.t.Helper()
	quoted, _ := json.Marshal(label)
	field := fmt.Sprintf(`[...document.querySelectorAll('input, textarea')].find((e) => e.getAttribute('aria-label') === %[1]s || e.closest('label')?.querySelector('span')?.innerText === %[1]s)`, quoted)
	b.until("have a field "+label, func() bool { return evalIn[bool](b, "Boolean("+field+")") })
	evalIn[bool](b, field+".focus() || true")
	b.run("type "+words, chromedp.KeyEvent(words))
}

// press presses keys, such as kb.Tab.
func (b *viewer) press(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.run("press a key", chromedp.KeyEvent(k))
	}
}

// keep writes a screenshot to the directory of MUSTER_SCREENSHOTS, if there is one.
func (b *viewer) keep(name string) {
	dir := os.Getenv("MUSTER_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, watching)
	defer cancel()
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, strings.ReplaceAll(b.t.Name(), "/", "-")+"-"+name+".png"), png, 0o600)
	}
	if err != nil {
		b.t.Logf("no screenshot: %v", err)
	}
}

// enter gives a token to the page, and waits for what the page shows then.
func (b *viewer) enter(token, then string) {
	b.t.Helper()
	b.open("/")
	b.shows("This tab is not let in")
	b.write("The token of this daemon: the content of its file http-token", token)
	evalIn[bool](b, "window.before = true")
	b.press(kb.Enter)
	b.until("load again", func() bool { return !evalIn[bool](b, "Boolean(window.before)") })
	b.shows(then)
}

// axe returns the script that finds accessibility faults: npm's axe-core, from MUSTER_AXE or fetched with npm.
func axe(t *testing.T) string {
	t.Helper()
	path := os.Getenv("MUSTER_AXE")
	if path == "" {
		npm := needtest.Runs(t, "npm", "--version") // or name the file axe.min.js in MUSTER_AXE
		dir := t.TempDir()
		cmd := exec.CommandContext(t.Context(), npm, "install", "--prefix", dir, "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-timeout=20000", "--fetch-retries=1", "axe-core@4.14.1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("no axe-core: npm cannot install it; name the file axe.min.js in MUSTER_AXE: %v\n%s", err, out)
		}
		path = filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	}
	script, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// accessible fails the test for each fault that axe finds in the page.
func (b *viewer) accessible(script string) {
	b.t.Helper()
	b.run("load axe", chromedp.Evaluate[chromedp.Void](script+";0"))
	found := evalIn[string](b, `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) => v.id + ': ' + v.nodes.map((n) => n.target.join(' ') + ' ' + n.failureSummary).join('; ')).join('\n'))`)
	if found != "" {
		b.t.Errorf("axe, on %s: want no faults, got %s", evalIn[string](b, "location.pathname"), found)
	}
}
