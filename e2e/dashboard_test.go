//go:build e2e

package e2e

// The dashboard in a browser: every page, and what a person does there, by clicks and by keys.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/musterhq/muster/api"
)

const pageToken = "0123456789abcdef"

// withPage starts two daemons, and returns the address of the dashboard of the first one.
func withPage(t *testing.T) (amy, ben *daemon, base string) {
	t.Helper()
	chromiumProgram(t)
	amy = newDaemon(t, "amy", "--gpus", "sim:2xH100-80GB", "--cpus", "4", "--label", "rack=r1").start()
	ben = newDaemon(t, "ben", "--gpus", "sim:2xH100-80GB", "--cpus", "4", "--label", "rack=r2").start(amy.invite().flags()...)
	amy.untilNodes(2)
	return amy, ben, amy.front()
}

// TestDashboardAsksForTheToken opens the dashboard of a daemon that listens with --http, which asks for its token.
func TestDashboardAsksForTheToken(t *testing.T) {
	chromiumProgram(t)
	secret := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secret, []byte(pageToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	newDaemon(t, "amy", "--gpus", "sim:2xH100-80GB", "--http", addr, "--http-token", secret).start()
	b := browse(t, "http://"+addr, 1280, 800)
	b.enter("wrong-wrong-wrong", "This tab is not let in")
	b.enter(pageToken, "Capacity")
	b.open("/nodes")
	b.shows("amy", "ready")
}

// TestDashboardPagesAreAccessible opens every page with data: light, dark and on a phone. No page may need sideways
// scrolling, or be inaccessible.
func TestDashboardPagesAreAccessible(t *testing.T) {
	amy, _, base := withPage(t)
	script := axe(t)
	runs := amy.ok("submit", "-J", "long", "-G", "1", "--", "sh", "-c", `printf '\033[31mred\033[0m \033[38;2;255;200;0mtrue\033[0m\n'; echo warn >&2; sleep 300`)
	array := amy.ok("submit", "-J", "sweep", "-a", "0-11", "--", "sh", "-c", "exit $((MUSTER_ARRAY_INDEX % 2))")
	gang := amy.ok("submit", "-J", "gang", "-N", "2", "-G", "2", "--", "sleep", "300")
	amy.untilState(runs, "RUNNING")
	amy.untilDoc(gang, "RUNNING", func(j api.Job) bool { return j.State == "RUNNING" })
	waits := amy.ok("submit", "-J", "waits", "-G", "2", "--", "true")
	amy.untilDoc(array, "FAILED", func(j api.Job) bool { return j.State == "FAILED" })
	pages := []struct {
		path  string
		words []string
	}{
		{"/", []string{"Capacity", "h100-80gb", "sim", "RUNNING", "long", "Resources"}},
		{"/gpus", []string{"4 GPUs on 2 nodes", "amy", "ben", "sim", "allocated"}},
		{"/gpus?state=free", []string{"1 GPU on 1 node"}},
		{"/jobs", []string{"long", "array 12", "gang 2", "4 jobs"}},
		{"/jobs?state=failed", []string{"sweep", "1 job"}},
		{"/jobs/" + runs, []string{"long", "submitted by", "started on"}},
		{"/jobs/" + runs + "/log", []string{"red true", "warn", "following"}},
		{"/jobs/" + runs + "/why", []string{"cpus: 1"}},
		{"/jobs/" + runs + "/files", []string{"List"}},
		{"/jobs/" + runs + "/exec", []string{"Run it in the task"}},
		{"/jobs/" + array, []string{"sh -c 'exit $((MUSTER_ARRAY_INDEX % 2))'", "task 11", "exit code 1", "the job has ended: FAILED"}},
		{"/jobs/" + array + "/tasks", []string{"array 0-11", "12 tasks of 12", "FAILED"}},
		{"/jobs/" + gang + "/tasks", []string{"gang of 2", "Rank"}},
		{"/jobs/" + waits + "/why", []string{"Resources", "gpus: 2", "2 of 2"}},
		{"/nodes", []string{"amy", "rack=r1", "ready"}},
		{"/nodes/amy", []string{"Drain…", "h100-80gb", "What runs here"}},
		{"/topology", []string{"rack r1", "rack r2", "NV18"}},
		{"/users", []string{"Tasks running"}},
		{"/members", []string{"amy", "inviter", "this daemon"}},
		{"/submit", []string{"Command", "muster submit"}},
	}
	for _, view := range []struct {
		name          string
		width, height int
		theme         string
	}{{"light", 1280, 800, "light"}, {"dark", 1280, 800, "dark"}, {"phone", 390, 844, "light"}} {
		t.Run(view.name, func(t *testing.T) {
			b := browse(t, base, view.width, view.height)
			b.open("/")
			b.shows("Capacity")
			evalIn[string](b, fmt.Sprintf("localStorage.setItem('muster.theme', %q), ''", view.theme))
			for i, p := range pages {
				b.open(p.path)
				b.shows(p.words...)
				if wide := evalIn[int](b, "document.documentElement.scrollWidth - innerWidth"); wide > 0 {
					t.Errorf("%s is %d pixels too wide, want 0", p.path, wide)
				}
				b.accessible(script)
				b.keep(fmt.Sprintf("%02d", i))
			}
		})
	}
}

// TestDashboardWorksByClicks uses the pages of a job and a node as a person does, by clicks.
func TestDashboardWorksByClicks(t *testing.T) {
	amy, _, base := withPage(t)
	b := browse(t, base, 1280, 800)
	b.open("/")
	b.shows("Capacity")
	b.click("Submit")
	b.write("Command", `sh -c 'i=0; while true; do i=$((i+1)); echo "line $i"; sleep 0.2; done'`)
	b.write("Name", "by hand")
	b.write("GPUs", "1")
	b.shows("2 nodes would take it now", "--name='by hand'", "--gpus=1")
	evalIn[bool](b, "document.querySelector('form button[type=submit]').click() || true")
	b.shows("by hand", "RUNNING", "submitted by")
	id := strings.TrimPrefix(evalIn[string](b, "location.pathname"), "/jobs/")
	b.click("Log")
	b.shows("line 3", "following")
	b.click("Ⅱ Pause")
	b.shows("paused")
	held := evalIn[string](b, "document.querySelector('.log').innerText")
	amy.until(id, "further", func(_ api.Job) bool { return strings.Contains(amy.ok("logs", "-n", "1", id), "line") })
	if now := evalIn[string](b, "document.querySelector('.log').innerText"); now != held {
		t.Errorf("a paused log: got\n%s\nwant\n%s", now, held)
	}
	b.click("▶ Go on")
	b.shows("following")
	b.click("Why")
	b.shows("gpus: 1", "2 of 2")
	node := amy.show(id).Tasks[0].Node
	b.click(node)
	b.shows("What runs here", id)
	b.click("Drain…")
	b.shows("Drain "+node+"?", "1 task", "hold GPUs for 1 job")
	b.write("Reason", "new fan")
	b.click("Drain it")
	b.shows("draining", "new fan")
	b.click("Resume…")
	b.click("Resume it")
	b.shows("ready")
	b.click(id)
	b.shows("by hand")
	b.click("Cancel…")
	b.shows("1 task runs on 1 node and is ended.")
	b.click("No, leave it")
	if s := amy.show(id).State; s != "RUNNING" {
		t.Errorf("a job that was not to be cancelled is %s, want RUNNING", s)
	}
	b.click("Cancel…")
	b.click("Cancel the job")
	b.shows("CANCELLED", "Cancelled "+id)
	amy.untilState(id, "CANCELLED")
}

// TestDashboardWorksByKeys does the same with keys alone.
func TestDashboardWorksByKeys(t *testing.T) {
	amy, _, base := withPage(t)
	id := amy.ok("submit", "-J", "keys", "--", "sleep", "300")
	amy.untilState(id, "RUNNING")
	b := browse(t, base, 1280, 800)
	b.open("/")
	b.shows("Capacity")
	b.press("?")
	b.shows("Keyboard shortcuts")
	b.press(kb.Escape)
	b.press("g", "j")
	b.shows("1 job")
	b.press("j", kb.Enter)
	b.shows("keys", "submitted by")
	for range 60 { // to the button Cancel, within 60 keys
		if evalIn[string](b, "document.activeElement.innerText") == "Cancel…" {
			break
		}
		b.press(kb.Tab)
	}
	if !evalIn[bool](b, "document.activeElement.matches(':focus-visible') && getComputedStyle(document.activeElement).outlineStyle !== 'none'") {
		t.Error("the focus cannot be seen")
	}
	b.press(kb.Enter)
	b.shows("Cancel keys")
	for range 5 {
		if evalIn[string](b, "document.activeElement.innerText") == "Cancel the job" {
			break
		}
		b.press(kb.Tab)
	}
	b.press(kb.Enter)
	b.shows("CANCELLED")
	b.press("g", "g")
	b.shows("4 GPUs on 2 nodes")
	evalIn[bool](b, "document.querySelector('.tile').focus() || true")
	b.press(kb.ArrowRight, kb.Enter)
	b.shows("What runs here")
	if got := evalIn[string](b, "document.querySelector('h1').innerText"); got != "ben" {
		t.Errorf("the second node of the map: got %q, want %q", got, "ben")
	}
}

// TestDashboardSurvivesItsDaemon kills the daemon behind a page. The page says so, and comes back by itself.
func TestDashboardSurvivesItsDaemon(t *testing.T) {
	amy, _, _ := withPage(t)
	door := amy.openDoor()
	b := browse(t, strings.TrimSuffix(door.root, "/"), 1280, 800)
	b.open("/#code=" + door.code)
	b.shows("Capacity")
	b.open("/nodes")
	b.shows("amy", "ben")
	amy.kill()
	b.shows("No answer from the daemon", "amy", "ben")
	if grey := evalIn[bool](b, "document.querySelector('main').classList.contains('stale')"); !grey {
		t.Error("old data is not marked")
	}
	amy.start()
	b.until("take the banner away", func() bool { return evalIn[bool](b, "!document.querySelector('.banner')") })
	b.shows("up to date")
}

// TestHiddenTabHasNoStream counts the streams of events: one for a visible tab, none for a hidden one.
func TestHiddenTabHasNoStream(t *testing.T) {
	amy, _, base := withPage(t)
	b := browse(t, base, 1280, 800)
	b.open("/")
	b.shows("Capacity")
	streams := func(n string) func() bool {
		return func() bool {
			return evalIn[string](b, `fetch('/metrics').then((r) => r.text()).then((t) => /^muster_api_streams\S* (\d+)/m.exec(t)?.[1] || t.slice(0, 3000))`) == n
		}
	}
	b.until("open one stream", streams("1"))
	b.open("/jobs")
	b.shows("Jobs")
	b.until("have one stream", streams("1"))
	evalIn[bool](b, `(Object.defineProperty(document, 'hidden', {get: () => true, configurable: true}), document.dispatchEvent(new Event('visibilitychange')), true)`)
	b.until("close the stream when it is hidden", streams("0"))
	evalIn[bool](b, `(delete document.hidden, document.dispatchEvent(new Event('visibilitychange')), true)`)
	b.until("open the stream again", streams("1"))
	amy.ok("jobs")
}

// TestDashboardRunsAShellInATask runs a shell in a task.
func TestDashboardRunsAShellInATask(t *testing.T) {
	amy, _, base := withPage(t)
	id := amy.ok("submit", "-J", "shell", "--", "sleep", "300")
	amy.untilState(id, "RUNNING")
	b := browse(t, base, 1280, 800)
	b.open("/")
	b.shows("Capacity")
	b.open("/jobs/" + id + "/exec")
	b.click("Run it in the task")
	b.shows("open")
	b.run("type", chromedp.KeyEvent("echo $((40+2))"+kb.Enter))
	b.until("show the answer", func() bool {
		return strings.Contains(evalIn[string](b, "document.querySelector('.xterm-rows, .terminal').textContent"), "42")
	})
	b.run("type", chromedp.KeyEvent("exit"+kb.Enter))
	b.shows("ended with exit code 0")
}

// TestDashboardModulesComputeCorrectly calls the modules themselves, in the browser.
func TestDashboardModulesComputeCorrectly(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	b := browse(t, amy.front(), 1280, 800)
	b.open("/")
	b.shows("Capacity")
	for _, part := range []struct{ name, module, ask, want string }{
		{"words of a shell", "shell.js", `JSON.stringify(m.words("a 'b c' \"d\\\"e\" f\\ g ''"))`, `["a","b c","d\"e","f g",""]`},
		{"a quote without an end", "shell.js", `String(m.words("a 'b"))`, "null"},
		{"a word is read as it was", "shell.js", `JSON.stringify(m.words(m.quote("it's $HOME \"x\"")))`, `["it's $HOME \"x\""]`},
		{"events in pieces", "events.js", `(() => { const got = []; const p = new m.Parser((e) => got.push(e.kind + e.n)); for (const c of ': alive\nevent: job\ndata: {"n":\ndata: 1}\r\n\r\nid: 7\ndata: not json\n\ndata: {"kind":"x","n":2}\n\n') p.feed(c); return got.join(); })()`, "job1,x2"},
		{"the first event after a quiet time does not wait", "events.js", `(async () => { const got = []; const later = () => new Promise((f) => setTimeout(f, 20)); const b = new m.Batches((all) => got.push(all.join('+')), 3000); b.add(1); b.add(2); await later(); const soon = got.join(); b.add(3); await later(); b.add(4); while (got.length < 2) await later(); return soon + '|' + got.join(); })()`, "1+2|1+2,3+4"},
		{"a cheap drawing is followed by another one soon", "events.js", `(async () => { const times = []; const b = new m.Batches(() => times.push(performance.now()), 5000, 20); const later = (ms) => new Promise((f) => setTimeout(f, ms)); b.add(1); await later(10); b.add(2); while (times.length < 2) await later(10); return String(times[1] - times[0] < 2500); })()`, "true"},
		{"a dear drawing is followed by a long pause", "events.js", `(async () => { const times = []; const b = new m.Batches(() => { times.push(performance.now()); while (performance.now() < times.at(-1) + 100); }, 5000, 20); const later = (ms) => new Promise((f) => setTimeout(f, ms)); b.add(1); await later(300); b.add(2); while (times.length < 2) await later(10); return String(times[1] - times[0] >= 999); })()`, "true"},
		{"a cell of the map of many GPUs is one plain box", "gpus.js", `(() => { const map = document.createElement('div'); map.className = 'map tiny'; for (const c of ['allocated u5', 'shared u5', 'free u0']) { const i = document.createElement('i'); i.className = 'cell ' + c; map.append(i); } document.body.append(map); const has = (el, part, name) => getComputedStyle(el, part)[name]; const said = [...map.querySelectorAll('.cell')].map((c) => [has(c, null, 'position'), has(c, null, 'overflow'), has(c, '::before', 'content'), has(c, '::after', 'content')].join(' ')); map.remove(); return [...new Set(said)].join(); })()`, "static visible none none"},
		{"the end of a fast log is kept in one buffer", "logdata.js", `(() => { const t = new m.Tail(8); const same = t.buf; const out = []; for (const n of [3, 4, 3, 20, 2]) { t.add(new Uint8Array(n).fill(n)); if (n !== 4) { const x = t.take(); out.push(x.skipped + ':' + x.bytes.join('')); } } return out.join() + (t.buf === same); })()`, "0:333,0:4444333,12:2020202020202020,0:22true"},
		{"the room of rows that are forgotten is used again", "ansi.js", `(() => { const x = new m.Indexer(20); const b = new TextEncoder().encode('a\nb\nc\nd\n'); const room = x.offsets; const at = () => x.offsets.subarray(0, x.count).join(); x.feed(b, 8, false); const gone = x.shift(4); const left = at(); x.reset(0); x.feed(b, 8, true); return [gone, left, x.offsets === room, at()].join('|'); })()`, "2|0,2|true|0,2,4,6"},
		{"what has not changed stays the object that it was", "resource.js", `(() => { const a = {items: [{id: 1, g: [1]}, {id: 2}]}; const b = m.reuse(a, {items: [{id: 1, g: [1]}, {id: 2, x: 3}]}); return [b.items[0] === a.items[0], b.items[1] === a.items[1], b.items[1].x, m.reuse(a, structuredClone(a)) === a, m.reuse(a, {items: []}) === a].join(); })()`, "true,false,3,true,false"},
		{"a task that waits again is on no node", "joblist.js", `m.slim({id: '1-a', tasks: [{state: 'PENDING', node: 'b'}, {state: 'RUNNING', node: 'n10'}, {state: 'RUNNING', node: 'n2'}]}).on.join()`, "n2,n10"},
		{"unknown is no number", "format.js", `[m.percent(-1), m.bytes(undefined), m.count(-1), m.duration(NaN), m.percent(0)].join()`, "–,–,–,–,0 %"},
		{"control characters are seen", "format.js", `m.plain('a\u001b\u202eb\nc')`, "a\u241b\ufffdb\u240ac"},
		{"rows of a log", "ansi.js", rowsOf(`'ab\ncd\rEF\n' + 'x'.repeat(45) + '\n'`), "ab|EF|" + strings.Repeat("x", 20) + "|" + strings.Repeat("x", 20) + "|xxxxx"},
		{"sequences in pieces", "ansi.js", rowsOf(`'a\x1b]8;;http://e\x1b\\b\x1b[31mc\x1b[2Jd\x1b]0;t'`), "abcd"},
		{"an end of line ends a sequence", "ansi.js", rowsOf(`'a\x1b]0;title\nb\x1bP..\nc'`), "a|b|c"},
	} {
		ask := fmt.Sprintf(`import(new URL(%q, document.querySelector('script[type=module]').src)).then((m) => %s)`, part.module, part.ask)
		if got := evalIn[string](b, ask); got != part.want {
			t.Errorf("%s: got %q, want %q", part.name, got, part.want)
		}
	}
}

// rowsOf is an expression for the rows of a text whose bytes arrive one by one.
func rowsOf(text string) string {
	return `(() => { const all = new TextEncoder().encode(` + text + `); const x = new m.Indexer(20); for (let i = 1; i <= all.length; i++) x.feed(all, i, i === all.length);
		return Array.from(x.offsets.subarray(0, x.count), (at, i) => m.spans(all, at, i + 1 < x.count ? x.offsets[i + 1] : all.length, x.styles[i]).map((s) => s.text).join('').split('\n')[0]).join('|'); })()`
}
