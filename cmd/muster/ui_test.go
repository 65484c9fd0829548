package main

// The verb ui: what it prints, and when it ends.

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testkit/exetest"
)

// uiRun is a running verb.
type uiRun struct {
	t     *testing.T
	out   *bufio.Scanner
	keys  *os.File
	ended chan int
}

// startUI runs the verb at a fake daemon until its input ends.
func startUI(t *testing.T, args ...string) *uiRun {
	t.Helper()
	f := newFake(t, map[string]http.HandlerFunc{
		"GET /v1/daemon": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"name":"amy"}`) },
		"GET /v1/stats": func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" {
				t.Errorf("the daemon got %v, want neither the secret nor a cookie", r.Header)
			}
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jobs":{"RUNNING":7}}`)
		},
	})
	in, keys := pipe(t)
	out, told := pipe(t)
	u := &uiRun{t: t, out: bufio.NewScanner(out), keys: keys, ended: make(chan int, 1)}
	go func() {
		u.ended <- run(t.Context(), append([]string{"muster", "ui", "--socket", f.socket, "--no-open"}, args...), streams{in, told, io.Discard})
		told.Close()
	}()
	return u
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// address returns the next printed address without its code, and the code.
func (u *uiRun) address() (base, code string) {
	u.t.Helper()
	if !u.out.Scan() {
		u.t.Fatalf("the verb ended with %d, want another address", <-u.ended)
	}
	base, code, ok := strings.Cut(u.out.Text(), "#code=")
	if !ok {
		u.t.Fatalf("got %q, want an address with a code", u.out.Text())
	}
	return base, code
}

func ask(t *testing.T, method, url, secret, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// The address gives the page, its code the secret, and the secret the daemon's data. Enter prints another address, and
// the end of the input ends the verb.
func TestUIPrintsAnAddressWithACode(t *testing.T) {
	u := startUI(t, "jobs")
	page, code := u.address()
	root := strings.TrimSuffix(page, "jobs")
	if status, text := ask(t, "GET", page, "", ""); status != http.StatusOK || !strings.Contains(text, "<title>muster</title>") || strings.Contains(text, code) {
		t.Errorf("the page: got %d %s, want 200 without the code", status, text)
	}
	trade := func(code string) (int, string) {
		status, text := ask(t, "POST", root+"door/trade", "", fmt.Sprintf(`{"code":%q}`, code))
		var doc struct{ Secret string }
		_ = json.Unmarshal([]byte(text), &doc)
		return status, doc.Secret
	}
	status, secret := trade(code)
	if status != http.StatusOK || secret == "" {
		t.Fatalf("the code: got status %d, want 200 and a secret", status)
	}
	if status, text := ask(t, "GET", root+"v1/stats", secret, ""); status != http.StatusOK || text != `{"jobs":{"RUNNING":7}}` {
		t.Errorf("the daemon: got %d %s, want 200 and the totals", status, text)
	}
	if status, _ := ask(t, "GET", root+"v1/stats", "", ""); status != http.StatusUnauthorized {
		t.Errorf("without the secret: status %d, want status %d", status, http.StatusUnauthorized)
	}
	io.WriteString(u.keys, "\n")
	if again, other := u.address(); again != page || other == code {
		t.Errorf("Enter printed %s, %s, want the same page with another code", again, other)
	} else if status, _ := trade(other); status != http.StatusOK {
		t.Errorf("the second code: status %d, want status %d", status, http.StatusOK)
	}
	u.keys.Close()
	if code := <-u.ended; code != exitDone {
		t.Errorf("exit %d, want %v", code, exitDone)
	}
	if _, err := http.Get(page); err == nil {
		t.Error("the port is open after the end")
	}
}

func TestUIRefusesInvalidArguments(t *testing.T) {
	clearEnvironment(t)
	none := filepath.Join(t.TempDir(), "none")
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"ui nothing":          {2, "no page nothing; the pages are gpus, jobs, members, nodes, submit, topology, users"},
		"ui v1/jobs":          {2, "no page"},
		"ui --port 70000":     {2, "--port 70000: want a number from 1 to 65535"},
		"ui --port 0":         {2, "--port 0: want a number"},
		"ui jobs nodes":       {2, "at most one page"},
		"ui --socket " + none: {1, "no daemon answers on " + none},
	} {
		var err strings.Builder
		if code := run(t.Context(), append([]string{"muster"}, strings.Fields(line)...), streams{strings.NewReader(""), io.Discard, &err}); code != want.code || !strings.Contains(strings.ReplaceAll(err.String(), `"`, ""), want.text) {
			t.Errorf("%s: exit %d, %s, want %d, %s", line, code, err.String(), want.code, want.text)
		}
	}
}

// The code is on no command line: the browser gets a file that only its user can read, and that is removed.
func TestBrowserGetsTheCodeInAFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", dir)
	opener, seen := filepath.Join(dir, "xdg-open"), filepath.Join(dir, "seen")
	script := "#!/bin/sh\n{ echo \"$*\"; stat -c %a \"$1\"; stat -c %a \"$(dirname \"$1\")\"; cat \"$1\"; } >" + seen + ".new; mv " + seen + ".new " + seen + "\n"
	if err := exetest.Write(opener, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	const address = "http://127.0.0.1:4000/jobs?a=1&b=2#code=HUSH"
	if why := startBrowser(opener, address, 5*time.Second); why != "" {
		t.Fatal(why)
	}
	text := ""
	for tick := time.NewTicker(10 * time.Millisecond); text == ""; <-tick.C {
		b, err := os.ReadFile(seen)
		if err != nil && t.Context().Err() != nil {
			t.Fatal(err)
		}
		text = string(b)
	}
	lines := strings.SplitN(text, "\n", 4)
	if len(lines) != 4 || strings.Contains(lines[0], "HUSH") || lines[1] != "600" || lines[2] != "700" || !strings.Contains(lines[3], "url=http://127.0.0.1:4000/jobs?a=1&amp;b=2#code=HUSH\"") {
		t.Errorf("the browser got\n%s\nwant a file of the user with the address", text)
	}
	for tick := time.NewTicker(10 * time.Millisecond); ; <-tick.C {
		if left, err := filepath.Glob(filepath.Join(dir, "muster-ui-*")); err == nil && len(left) == 0 {
			break
		}
	}
}
