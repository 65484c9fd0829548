//go:build e2e

package e2e

// The door of a real daemon, with a real browser.

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/creack/pty"
)

const isIn = `document.querySelector("main table") !== null`

// TestDoorKeepsItsSecret opens the page with a code, uses the code again, opens further tabs, and looks for the secret
// wherever others could see it.
func TestDoorKeepsItsSecret(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	u := amy.openDoor()
	address := u.root + "#code=" + u.code
	browser := newChromium(t, "")

	first := browser.newTab()
	first.run(chromedp.Navigate(address))
	first.until(isIn)
	first.until(`document.querySelector("main").innerText.includes("amy")`)
	if text := eval[string](first, `document.querySelector("main").innerText`); !strings.Contains(text, "amy") {
		t.Errorf("the page: want amy, got\n%s", text)
	}
	if href := eval[string](first, `location.href`); href != u.root {
		t.Errorf("the address: got %s, want no code", href)
	}
	if cookie := eval[string](first, `document.cookie`); cookie != "" {
		t.Errorf("cookies: got %s, want none", cookie)
	}
	secret := eval[string](first, `sessionStorage.getItem("muster.secret")`)
	if len(secret) < 40 {
		t.Fatalf("the secret: got %q, want at least 40 letters", secret)
	}
	submit := `fetch("/v1/jobs", {method: "POST", body: '{"command":["sleep","300"]}', headers: {"Content-Type": "application/json", Authorization: "Bearer " + sessionStorage.getItem("muster.secret")}}).then(r => r.status)`
	if status := eval[int](first, submit); status != http.StatusCreated {
		t.Errorf("the page itself submits a job: got status %d, want 201", status)
	}
	amy.untilState(amy.ok("jobs", "--all", "-q"), "RUNNING")
	first.run(chromedp.Reload())
	first.until(`document.querySelector("main").innerText.includes("RUNNING")`)
	first.quiet()

	second := browser.newTab()
	second.run(chromedp.Navigate(address))
	second.until(`document.body.innerText.includes("not let in")`)
	second.quiet("401")
	if kept := eval[*string](second, `sessionStorage.getItem("muster.secret")`); kept != nil {
		t.Errorf("a used code: got %s, want no secret", *kept)
	}
	second.run(chromedp.Navigate(u.another()))
	second.until(isIn)

	if opened := eval[bool](first, `new Promise(done => {
		const w = window.open("/nodes");
		const look = () => { if (w.document && w.document.querySelector("main [role=table]")) done(true); else setTimeout(look, 50); };
		look();
	})`); !opened {
		t.Error("a tab that the page opens has no access")
	}
	if n := eval[int](first, `fetch("/").then(r => r.headers.get("content-security-policy").includes("unsafe") ? 1 : 0)`); n != 0 {
		t.Errorf("the policy has something unsafe: got %v, want 0", n)
	}

	for _, word := range []string{secret, u.code} {
		nobodySees(t, amy, word)
	}
	browser.close()
	for _, name := range browser.contains(secret) {
		if strings.Contains(name, "History") || strings.Contains(name, "Visited") || strings.Contains(name, "Cookies") {
			t.Errorf("the secret is in %s of the browser's profile, want a text without %q, a text without %q and a text without %q", name, "History", "Visited", "Cookies")
		}
	}
}

// nobodySees looks for a word in command lines, in the log of the daemon and in its audit log.
func nobodySees(t *testing.T, d *daemon, word string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(d.dir, "data", "audit.jsonl*"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no audit log: got %v, want one", err)
	}
	for _, name := range append(all, logs...) {
		if text, err := os.ReadFile(name); err == nil && strings.Contains(string(text), word) {
			t.Errorf("%s has a secret", name)
		}
	}
	if strings.Contains(d.log(), word) {
		t.Error("the log of the daemon has a secret")
	}
}

// TestDoorGivesAnotherUserNothing checks, as another user of the host, what a door of root gives without its secret.
func TestDoorGivesAnotherUserNothing(t *testing.T) {
	asRoot(t)
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	u := amy.openDoor()
	amy.user = ordinary
	port := strings.TrimSuffix(strings.TrimPrefix(u.root, "http://"), "/")
	token := filepath.Join(amy.dir, "guess")
	if err := os.WriteFile(token, []byte("0123456789abcdef0123456789\n"), 0o644); err != nil { //nolint:gosec // it is a guess
		t.Fatal(err)
	}
	for _, args := range [][]string{{"nodes"}, {"jobs", "--all"}, {"submit", "--", "true"}, {"audit"}, {"invite"}} {
		for _, more := range [][]string{nil, {"--api-token", token}} {
			args := append(append([]string{"--addr", port}, more...), args...)
			r := amy.fails(1, []string{"press Enter where muster ui runs"}, args...)
			if r.stdout != "" {
				t.Errorf("muster %q: got %s, want nothing", args, r.stdout)
			}
		}
	}
	files := fmt.Sprintf("cat /proc/%[1]d/environ /proc/%[1]d/mem; ls -l /proc/%[1]d/fd; tr '\\0' ' ' </proc/%[1]d/cmdline", u.cmd.Process.Pid)
	cmd := exec.Command("sh", "-c", files)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: ordinary}
	seen, err := cmd.Output()
	if err != nil || strings.Contains(string(seen), u.code) || strings.Contains(string(seen), "MUSTER_SOCKET") || !strings.Contains(string(seen), "ui --no-open") {
		t.Errorf("another user sees of the process: got %v, want the command line without secrets\n%s", err, seen)
	}
	amy.user = nil
	if text := amy.ok("jobs", "--all", "-q"); text != "" {
		t.Errorf("jobs: got %s, want none", text)
	}
}

// TestDoorEndsWithItsTerminal closes the terminal of a door.
func TestDoorEndsWithItsTerminal(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	for name, end := range map[string]func(*os.File){
		"closed": func(near *os.File) { near.Close() },
		"Ctrl-C": func(near *os.File) { _, _ = near.WriteString("\x03") },
		"Ctrl-D": func(near *os.File) { _, _ = near.WriteString("\x04") },
	} {
		cmd := exec.Command(binary(t), "ui", "--no-open")
		cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+amy.socket)
		near, err := pty.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		shown := make([]byte, 4096)
		n, err := io.ReadAtLeast(near, shown, len("http://127.0.0.1:1/#code="))
		if err != nil || !strings.HasPrefix(string(shown[:n]), "http://127.0.0.1:") {
			t.Fatalf("%s: got %q, %v, want an address", name, shown[:n], err)
		}
		end(near) // nothing reads it: it would stay open as long as a read waits
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		near.Close()
	}
}
