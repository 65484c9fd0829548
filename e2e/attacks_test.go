//go:build e2e

package e2e

// Web pages of attackers, in a browser of a user who has a door open, or a daemon that serves HTTP on loopback.

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
)

// pageAttack is a function of a page. It tries everything that browsers can do against the server at base, where a job
// runs, and returns what it could read. Its WebSockets run a command.
const pageAttack = `async (base, job, command) => {
  const got = [];
  const read = (how, what) => got.push(how + ": " + String(what).slice(0, 100));
  const within = (p) => Promise.race([Promise.resolve(p).catch(() => {}), new Promise((done) => setTimeout(done, 3000))]);
  const element = (how, tag, props, look) => within(new Promise((done) => {
    const e = document.createElement(tag);
    e.onload = () => { try { look(e); } catch {} done(); };
    e.onerror = done;
    Object.assign(e, props);
    document.body.append(e);
  }));
  const submitted = '{"command":["touch","' + command[1] + '"]}';
  const all = [];
  for (const path of ["/v1/jobs", "/v1/nodes", "/v1/jobs/" + job + "/tasks/0/logs", "/v1/jobs/" + job + "/tasks/0/files?path=*", "/openapi.json", "/docs", "/metrics", "/", "/door/trade"]) {
    const url = base + path;
    for (const mode of ["cors", "no-cors"]) for (const credentials of ["omit", "include"])
      all.push(within(fetch(url, { mode, credentials }).then((r) => r.text()).then((t) => t && read("fetch " + mode + " " + path, t))));
    all.push(within(new Promise((done) => {
      const x = new XMLHttpRequest();
      x.onload = () => { read("xhr " + path, x.responseText); done(); };
      x.onerror = done;
      x.open("GET", url);
      x.send();
    })));
    all.push(element("script", "script", { src: url }, () => read("script " + path, "ran")));
    all.push(element("module", "script", { type: "module", src: url }, () => read("module " + path, "ran")));
    all.push(element("image", "img", { src: url }, () => read("image " + path, "shown")));
    all.push(element("style", "link", { rel: "stylesheet", href: url }, (e) => read("style " + path, e.sheet)));
    all.push(element("frame", "iframe", { src: url }, (e) => { const t = e.contentDocument && e.contentDocument.body && e.contentDocument.body.innerText; if (t) read("frame " + path, t); }));
    all.push(element("object", "object", { data: url }, (e) => { const t = e.contentDocument && e.contentDocument.body && e.contentDocument.body.innerText; if (t) read("object " + path, t); }));
  }
  all.push(within(new Promise((done) => {
    const s = new EventSource(base + "/v1/events");
    s.onopen = () => { read("eventsource", "open"); s.close(); done(); };
    s.onerror = () => { s.close(); done(); };
  })));
  for (const protocols of [[], ["muster"], ["muster", "muster.ticket.AAAAAAAAAAAAAAAAAAAAAAAAAA"]]) for (const what of ["exec", "attach"])
    all.push(within(new Promise((done) => {
      const s = new WebSocket(base.replace("http", "ws") + "/v1/jobs/" + job + "/tasks/0/" + what, protocols);
      s.onopen = () => { read("websocket " + what, "open"); s.send(new TextEncoder().encode(JSON.stringify({ command }))); };
      s.onclose = done;
      s.onerror = done;
    })));
  const changes = [["POST", "/v1/jobs", submitted], ["POST", "/v1/jobs/" + job + "/cancel", "{}"], ["DELETE", "/v1/jobs/" + job, ""], ["PUT", "/v1/uploads/trees/x", "x"],
    ["POST", "/v1/tickets", '{"target":"/v1/jobs/' + job + '/tasks/0/exec"}'], ["POST", "/v1/invitations", "{}"], ["POST", "/door/trade", '{"code":"x"}']];
  for (const [method, path, body] of changes) {
    for (const type of ["application/json", "text/plain", "application/x-www-form-urlencoded"]) for (const mode of ["cors", "no-cors"])
      all.push(within(fetch(base + path, { method, mode, credentials: "include", body: body || undefined, headers: { "Content-Type": type } }).then((r) => r.text()).then((t) => t && read(method + " " + path, t))));
    navigator.sendBeacon(base + path, new Blob([body], { type: "text/plain" }));
    for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
      const frame = document.createElement("iframe");
      frame.name = "f" + Math.random();
      const form = document.createElement("form");
      Object.assign(form, { method: "post", action: base + path, enctype, target: frame.name });
      const field = document.createElement("input");
      // as text/plain this is JSON: {"command":[…],"x":"=…"}
      Object.assign(field, { name: body.replace(/}$/, ',"name":"'), value: '"}' });
      form.append(field);
      document.body.append(frame, form);
      form.submit();
    }
  }
  const w = window.open(base + "/");
  await Promise.all(all);
  await new Promise((done) => setTimeout(done, 1000));
  try { if (w && w.document && w.document.body && w.location.href !== "about:blank") read("window", w.location.href); } catch {}
  if (w) w.close();
  return got;
}`

// bait serves a page for attacks. It also acts as a careless server, to show that the attacks work.
type bait struct {
	*httptest.Server
	port    string
	changed atomic.Int64 // requests that a careless server would have obeyed
}

func newBait(t *testing.T) *bait {
	t.Helper()
	b := &bait{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		w.Header().Set("Access-Control-Allow-Credentials", "true")
		switch {
		case r.URL.Path == "/evil":
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<!doctype html><body>hello")
		case r.Method != http.MethodGet && r.Method != http.MethodOptions:
			b.changed.Add(1)
			fmt.Fprint(w, "changed")
		case strings.HasSuffix(r.URL.Path, "/events"):
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: x\n\n")
		default:
			w.Header().Set("Content-Type", "text/html")
			if r.Header.Get("Sec-Fetch-Dest") == "script" {
				w.Header().Set("Content-Type", "text/javascript")
			}
			fmt.Fprint(w, "1")
		}
	}))
	t.Cleanup(b.Close)
	_, b.port, _ = net.SplitHostPort(b.Listener.Addr().String())
	return b
}

// attackFrom returns what a page at an address reads from the server at base.
func (c *chromium) attackFrom(address, base, job, mark string) []string {
	c.t.Helper()
	x := c.newTab()
	defer chromedp.Cancel(x.ctx)
	x.run(chromedp.Navigate(address))
	return eval[[]string](x, fmt.Sprintf("(%s)(%q, %q, [\"touch\", %q])", pageAttack, base, job, mark))
}

// rebindFrom does the same from a page whose name led to another address when it was loaded, and leads to the server
// now, so that the server's own address is that of the page.
func (c *chromium) rebindFrom(base, job, mark string) []string {
	c.t.Helper()
	x := c.newTab()
	defer chromedp.Cancel(x.ctx)
	x.listen(func(ev any) {
		e, ok := ev.(*fetch.EventRequestPaused)
		if !ok {
			return
		}
		go func() {
			_, err := chromedp.Call(x.ctx, fetch.FulfillRequest, fetch.FulfillRequestParams{
				RequestID: e.RequestID, ResponseCode: http.StatusOK, Body: []byte("<!doctype html><body>hello"),
				ResponseHeaders: []*fetch.HeaderEntry{{Name: "Content-Type", Value: "text/html"}},
			})
			if err != nil {
				c.t.Errorf("the page under its former name: got %v, want no error", err)
			}
		}()
	})
	if _, err := chromedp.Call(x.ctx, fetch.Enable, fetch.EnableParams{Patterns: []*fetch.RequestPattern{{URLPattern: base + "/evil"}}}); err != nil {
		c.t.Fatal(err)
	}
	x.run(chromedp.Navigate(base + "/evil"))
	return eval[[]string](x, fmt.Sprintf("(%s)(%q, %q, [\"touch\", %q])", pageAttack, base, job, mark))
}

// TestWebPagesOfOthersReachNothing attacks a door, and a daemon that serves HTTP on loopback without a token, from pages of
// another port, of another site and of a name that leads to loopback. They read nothing and change nothing.
func TestWebPagesOfOthersReachNothing(t *testing.T) {
	dir, err := os.MkdirTemp("", "muster-e2e-") //nolint:usetesting // another user must be able to write there
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	mark := filepath.Join(dir, "mark")
	port := freePort(t)
	amy := newDaemon(t, "amy", "--gpus", "none", "--config", os.DevNull, "--http", fmt.Sprintf("127.0.0.1:%d", port))
	if os.Geteuid() == 0 { // a daemon of root serves HTTP with a token only
		for _, d := range []string{amy.dir, dir} {
			if err := os.Chown(d, nobody, nobody); err != nil {
				t.Fatal(err)
			}
		}
		amy.as, amy.user = ordinary, ordinary
	}
	amy.start()
	job := amy.ok("submit", "--download", "*", "--", "sh", "-c", "echo hush; echo hush > kept; exec sleep 600")
	amy.untilState(job, "RUNNING")
	u := amy.openDoor()
	_, door, _ := strings.Cut(strings.TrimSuffix(u.root, "/"), "127.0.0.1:")

	b := newBait(t)
	browser := newChromium(t, "MAP evil.test 127.0.0.1, MAP rebind.test 127.0.0.1")
	own := browser.newTab() // the user's own page, with its secret
	own.run(chromedp.Navigate(u.root + "#code=" + u.code))
	own.until(isIn)

	careless := strings.Join(browser.attackFrom(b.URL+"/evil", b.URL, job, mark), "\n")
	for _, how := range []string{"fetch cors", "xhr", "script", "module", "frame", "object", "eventsource", "window", "POST /v1/jobs", "DELETE"} {
		if !strings.Contains(careless, how) {
			t.Errorf("at a careless server the attack by %s fails, so that it shows nothing; got\n%s", how, careless)
		}
	}
	if n := b.changed.Load(); n < 30 {
		t.Errorf("at a careless server: got %d requests that change something, want at least 30", n)
	}
	for name, target := range map[string]string{"the door": door, "the daemon": fmt.Sprint(port)} {
		for _, x := range []struct{ page, host string }{
			{"127.0.0.1", "127.0.0.1"}, {"127.0.0.1", "localhost"}, {"localhost", "127.0.0.1"}, {"evil.test", "127.0.0.1"}, {"evil.test", "rebind.test"},
		} {
			from, base := "http://"+net.JoinHostPort(x.page, b.port)+"/evil", "http://"+net.JoinHostPort(x.host, target)
			if got := browser.attackFrom(from, base, job, mark); len(got) > 0 {
				t.Errorf("a page of %s at %s by the name %s: got\n%s\nwant nothing", from, name, x.host, strings.Join(got, "\n"))
			}
		}
		for _, line := range browser.rebindFrom("http://rebind.test:"+target, job, mark) {
			if !strings.Contains(line, "is not a name of this server") {
				t.Errorf("a page with a name that leads to %s now: got %s, want that it is not a name of this server", name, line)
			}
		}
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a page has run a command")
	}
	if got := amy.ok("jobs", "--all", "-q"); got != job {
		t.Errorf("jobs: got %q, want %s", got, job)
	}
	if j := amy.show(job); j.State != "RUNNING" {
		t.Errorf("the job is %s, want RUNNING", j.State)
	}
	if got := eval[int](own, `fetch("/v1/stats", {headers: {Authorization: "Bearer " + sessionStorage.getItem("muster.secret")}}).then(r => r.status)`); got != http.StatusOK {
		t.Errorf("the user's own page afterwards: got status %d, want 200", got)
	}
}
