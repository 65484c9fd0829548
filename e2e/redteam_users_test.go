//go:build e2e

package e2e

// Attacks of a local user on the daemon of root: memory, disk, priorities and names.

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

var usersAttacks = []attack{
	{name: "a user cancels scattered tasks of arrays of 1,000,000", users: true, try: (*field).scatteredArrays},
	{name: "a user asks for priority 100", users: true, try: (*field).highPriority},
	{name: "a user fills the disk with three tasks", users: true, try: (*field).fullDisk},
	{name: "a user makes another's names and ids ambiguous", users: true, try: (*field).sameNames},
	{name: "a user looks at others' with visibility own", users: true, try: (*field).lookForJobs},
	{name: "a user opens streams", users: true, try: (*field).streams},
	{name: "a user uploads slowly", users: true, try: (*field).uploads},
	{name: "a user asks without end", users: true, try: (*field).manyRequests},
	{name: "a user sends half of a request", users: true, try: (*field).halfRequests},
	{name: "a job file of nested YAML", try: (*field).nestedYAML},
	{name: "a token on a command line", try: (*field).tokensInSight},
}

// mallorysClient returns a client of root's daemon, and closes its connections when the attack ends.
func (f *field) mallorysClient() *http.Client {
	f.t.Helper()
	c := f.root.clientAs(int(f.mallory.Uid))
	f.t.Cleanup(c.CloseIdleConnections)
	return c
}

// submits posts a job of mallory and returns its id, or "" if mallory has as many waiting jobs as a user may have.
func (f *field) submits(c *http.Client, body string) string {
	f.t.Helper()
	text, err := postTo(c, "/v1/jobs", body)
	_, rest, ok := strings.Cut(text, `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if full := strings.Contains(text, "too much waits here: user "); err != nil || !ok && !full {
		f.t.Errorf("submit: got %v, %.300s, want an id or the limit", err, text)
	}
	return id
}

// cancels cancels all jobs of mallory, with the verb that people use.
func (f *field) cancels() {
	f.t.Helper()
	if r := f.as(f.root, f.mallory, "", "cancel", "all"); r.code != 0 && !strings.Contains(r.stderr, "no job") {
		f.t.Errorf("cancel all: exit %d: got %s, want 0 or no job", r.code, r.stderr)
	}
}

// scatteredArrays cancels one of each 256 tasks, in one array after the other.
func (f *field) scatteredArrays() {
	defer f.cancels()
	const size, apart = 1_000_000, 256
	c := f.mallorysClient()
	for n := 0; n < 3 || f.ctx.Err() == nil; n++ {
		id := f.submits(c, fmt.Sprintf(`{"command":["true"],"hold":true,"array":"0-%d"}`, size-1))
		if id == "" {
			f.cancels() // and begin again
			continue
		}
		for first := 0; first < size; {
			var tasks strings.Builder
			for ; first < size && tasks.Len() < 24_000; first += apart {
				fmt.Fprintf(&tasks, "%d,", first)
			}
			text, err := postTo(c, "/v1/jobs/"+id+"/cancel", `{"tasks":"`+strings.TrimSuffix(tasks.String(), ",")+`"}`)
			if err != nil || strings.Contains(text, `"error"`) {
				f.t.Errorf("cancel: got %v, %.300s, want no error", err, text)
				return
			}
		}
	}
}

// highPriority asks for a priority above that of an ordinary user, and for the whole host.
func (f *field) highPriority() {
	defer f.cancels()
	r := f.as(f.root, f.mallory, "", "submit", "--priority", "100", "-c", "8", "--array", "0-999", "--", "sleep", "1")
	if r.code == 0 || !containsAll(r.stderr, []string{"priority", "50"}) {
		f.t.Errorf("--priority 100: exit %d, want a refusal that names the limit: %s", r.code, r.stderr)
	}
	f.pause(time.Second)
}

// fullDisk fills the scratch of a host with a small disk. Another user's task goes on there, and its end is known.
func (f *field) fullDisk() {
	d := newDaemon(f.t, "small", "--gpus", "none", "--log-level", "info", "--config", os.DevNull, "--cpus", "8")
	mountSmall(f.t, filepath.Join(d.dir, "data"), "128m")
	accounts := fmt.Sprintf("victim:x:%d:%[1]d::/tmp:/bin/sh\nmallory:x:%d:%[2]d::%s:/bin/sh\n", f.victim.Uid, f.mallory.Uid, f.home)
	d.args, d.program = append(append(withAccounts(f.t, accounts)[1:], d.program), d.args...), "unshare"
	d.start()
	if err := os.Chmod(d.dir, 0o711); err != nil { //nolint:gosec // so that users reach the socket
		f.t.Fatal(err)
	}
	for range 3 {
		f.as(d, f.mallory, "", "submit", "--", "sh", "-c", "head -c 60000000 /dev/zero >fill; exec sleep 20") // it may be refused
	}
	f.pause(time.Second)
	if r := f.as(d, f.victim, "", "run", "--", "sh", "-c", "echo done"); r.code != 0 || r.stdout != "done\n" {
		f.t.Errorf("another user's task on the full host: exit %d after %s: got %s%s, want 0, done", r.code, r.took.Round(time.Millisecond), r.stdout, r.stderr)
	}
	if r := f.as(d, f.victim, "", "jobs", "--all", "--json"); r.code != 0 || !strings.Contains(r.stdout, `"SUCCEEDED"`) {
		f.t.Errorf("its end is not known: exit %d\n%s%s\nwant exit 0 and stdout with %q", r.code, r.stdout, r.stderr, `"SUCCEEDED"`)
	}
	if r := f.as(d, f.mallory, "", "cancel", "all"); r.code != 0 && !strings.Contains(r.stderr, "no job") {
		f.t.Errorf("cancel: exit %d: got %s, want 0 or no job", r.code, r.stderr)
	}
	untilRight(f.t, patience, func() string {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(filepath.Join(d.dir, "data"), &fs); err != nil {
			return err.Error()
		}
		if free := fs.Bavail * uint64(fs.Bsize); free < 64<<20 { //nolint:gosec // a block size is positive
			return fmt.Sprintf("%d MB are free after all tasks have ended", free>>20)
		}
		return ""
	})
}

// sameNames submits jobs with the names of others' jobs, or with their ids as names.
func (f *field) sameNames() {
	defer f.cancels()
	r := f.as(f.root, f.victim, "", "submit", "--hold", "-J", "mine", "--", "true")
	id := strings.TrimSpace(r.stdout)
	if r.code != 0 || id == "" {
		f.t.Fatalf("submit: got %s, want an id", r.stderr)
	}
	for _, name := range []string{"mine", id, id[:4], id[:1], id[:10], "last", "all"} {
		f.as(f.root, f.mallory, "", "submit", "--hold", "-J", name, "--", "true") // it may be refused
	}
	for _, name := range []string{"mine", id[:4], id[:10], id} {
		if r := f.as(f.root, f.victim, "", "show", name, "--json"); r.code != 0 || !strings.Contains(r.stdout, id) {
			f.t.Errorf("their owner names a job as %q: exit %d: got %.300s, want 0 and the job", name, r.code, r.stderr)
		}
	}
	if r := f.as(f.root, f.victim, "", "cancel", "mine"); r.code != 0 {
		f.t.Errorf("cancel: exit %d, want 0: %s", r.code, r.stderr)
	}
	f.as(f.root, f.victim, "", "cancel", id)
}

// lookForJobs looks for a job of another user through every verb that takes a name.
func (f *field) lookForJobs() {
	accounts := fmt.Sprintf("victim:x:%d:%[1]d::/tmp:/bin/sh\nmallory:x:%d:%[2]d::%s:/bin/sh\n", f.victim.Uid, f.mallory.Uid, f.home)
	d := newDaemonAt(f.t, withAccounts(f.t, accounts), "127.0.0.1", "shy", "--gpus", "none", "--log-level", "info", "--config", os.DevNull, "--visibility", "own").start()
	if err := os.Chmod(d.dir, 0o711); err != nil { //nolint:gosec // so that users reach the socket
		f.t.Fatal(err)
	}
	f.as(d, f.victim, "", "run", "-J", "hush", "--", "true")
	r := f.as(d, f.victim, "", "submit", "--hold", "-J", "hush", "--", "true")
	id := strings.TrimSpace(r.stdout)
	for _, args := range [][]string{
		{"users"},
		{"users", "--json"},
		{"jobs", "--all"},
		{"show", id},
		{"why", id},
		{"logs", id},
		{"cancel", id},
		{"show", "hush"},
		{"usage"},
		{"nodes"},
		{"top", "--once"},
		{"submit", "-d", "afterok:" + id, "--", "true"},
		{"submit", "-d", "afterok:hush", "--", "true"},
		{"submit", "-d", "afterany:" + id[:6], "--", "true"},
	} {
		r := f.as(d, f.mallory, "", args...)
		out := strings.ReplaceAll(strings.ReplaceAll(r.stdout+r.stderr, id, "ID"), strings.Join(args, " "), "")
		if strings.Contains(out, "victim") || strings.Contains(out, "hush") && !strings.Contains(strings.Join(args, " "), "hush") {
			f.t.Errorf("%q shows another user's job: %.300s", args, out)
		}
		if args[0] == "submit" && r.code == 0 {
			f.t.Errorf("%q says whether there is such a job: %s", args, r.stdout)
		}
	}
}

func (f *field) streams() {
	c := f.mallorysClient()
	for range 300 {
		resp, err := c.Get("http://muster/v1/events")
		if err == nil {
			f.t.Cleanup(func() { resp.Body.Close() })
		}
	}
	f.flood(8, func(int) {
		if resp, err := c.Get("http://muster/v1/events"); err == nil {
			resp.Body.Close()
		}
	})
}

func (f *field) uploads() {
	c := f.mallorysClient()
	var n, begun atomic.Int64
	f.flood(64, func(int) {
		req, err := http.NewRequestWithContext(f.ctx, http.MethodPut, fmt.Sprintf("http://muster/v1/uploads/trees/%064x", n.Add(1)), &trickle{ctx: f.ctx, begun: &begun})
		if err != nil {
			f.t.Error(err)
			return
		}
		if resp, err := c.Do(req); err == nil {
			resp.Body.Close()
		}
	})
}

func (f *field) manyRequests() {
	defer f.cancels()
	c := f.mallorysClient()
	id := f.submits(c, `{"command":["true"],"hold":true}`)
	paths := []string{"/v1/jobs/" + id, "/v1/jobs?limit=1000", "/v1/jobs/" + id + "/why", "/v1/nodes", "/v1/users", "/v1/stats"}
	var n atomic.Int64
	f.flood(64, func(int) {
		i := n.Add(1)
		if i%8 == 0 && i < 1600 { // 200 jobs, which are cancelled quickly
			_, _ = postTo(c, "/v1/jobs", `{"command":["true"],"hold":true}`)
			return
		}
		if resp, err := c.Get("http://muster" + paths[i%int64(len(paths))]); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
}

func (f *field) halfRequests() {
	begun := bytes.Repeat([]byte("x"), 16<<10)
	copy(begun, "GET /v1/jobs HTTP/1.1\r\nHost: muster\r\nX: ")
	f.flood(1000, func(int) {
		c, err := f.root.dialAs(int(f.mallory.Uid))
		if err != nil {
			f.pause(100 * time.Millisecond)
			return
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, _ = c.Write(begun)
		gone := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, c); close(gone) }()
		select {
		case <-f.ctx.Done():
		case <-gone:
			f.pause(100 * time.Millisecond)
		}
	})
}

// nestedYAML makes the client read job files that expand from few bytes. Its memory is bounded, so that this host
// survives a client without bounds.
func (f *field) nestedYAML() {
	defer f.cancels()
	var aliases strings.Builder
	aliases.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		fmt.Fprintf(&aliases, "a%d: &a%[1]d [%s]\n", i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	var blocks strings.Builder
	for i := range 600 {
		blocks.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	// The maximum of a process starts with the memory of the process that started it.
	least := f.client("name: plain\ncommand: [\"true\"]\nhold: true\n", "plain")
	for name, text := range map[string]string{
		"brackets":  "command: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000),
		"braces":    "env: " + strings.Repeat("{a: ", 40_000) + strings.Repeat("}", 40_000),
		"questions": strings.Repeat("? ", 100_000),
		"dashes":    strings.Repeat("- ", 100_000),
		"blocks":    blocks.String(),
		"aliases":   aliases.String() + "command: *a11\n",
	} {
		if most := f.client(text, name); most-least > mostMemory {
			f.t.Errorf("got %d KB of %s cost the client %d MB, want at most %d", len(text)>>10, name, (most-least)>>20, mostMemory>>20)
		}
	}
}

// client submits a job file, and returns the highest memory of the client, which may use at most 4 GiB.
func (f *field) client(text, name string) int {
	f.t.Helper()
	file := filepath.Join(f.home, name+".yaml")
	write(f.t, file, text)
	cmd := exec.CommandContext(f.t.Context(), "prlimit", "--as="+strconv.Itoa(4<<30), f.program, "submit", "-F", file)
	r := f.asOnce(cmd, f.root, f.mallory, "")
	if (r.code == 0) != (name == "plain") || strings.Count(r.stderr, "\n") > 1 || len(r.stderr) > 1000 {
		f.t.Errorf("%s: exit %d, want one line: %.300s", name, r.code, r.stderr)
	}
	use, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		f.t.Fatal("no usage of the client")
	}
	f.t.Logf("%d KB of %s: the client took %s and %d MB", len(text)>>10, name, r.took.Round(time.Millisecond), use.Maxrss>>10)
	return int(use.Maxrss << 10)
}

// tokensInSight gives tokens where all users see them.
func (f *field) tokensInSight() {
	inv := f.control.invite()
	dir := f.t.TempDir()
	for _, args := range [][]string{
		{"daemon", "--data-dir", filepath.Join(dir, "d"), "--socket", filepath.Join(dir, "s"), "--listen", "/ip4/127.0.0.1/tcp/0", "--token", inv.Token},
		{"join", inv.Bootstrap[0], "--token", inv.Token},
		{"join", "--token=" + inv.Token, inv.Bootstrap[0]},
	} {
		r := f.as(f.control, nil, "", args...)
		if r.code != 2 || !strings.Contains(r.stderr, "--insecure-token") || strings.Contains(r.stderr, inv.Token) {
			f.t.Errorf("%s: exit %d, want 2 and --insecure-token: %.300s", args[0], r.code, r.stderr)
		}
	}
}
