//go:build e2e

package e2e

// What local users and their tasks can reach of a daemon on the same host.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/api"
)

// TestInheritedDescriptorsDoNotReachTasks starts a daemon that inherits descriptor 7, a file of root that no other user
// may open. Neither a task nor a command in it has that descriptor, and neither the daemon nor its runner keeps it.
func TestInheritedDescriptorsDoNotReachTasks(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("for root only\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(secret, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	d := newDaemon(t, "amy", "--gpus", "none")
	d.extra = []*os.File{file, file, file, file, file} // descriptors 3 to 7
	d.start()
	const attack = "head -c 13 <&7; echo changed >&7; ls -l /proc/self/fd"
	for _, command := range [][]string{
		{"run", "--", "sh", "-c", attack},
		{"run", "--", d.helperProgram(attack)},
	} {
		checkDescriptors(t, d.muster(command...).stdout, secret)
	}
	g := newGate(t)
	id := d.ok(append([]string{"submit", "--"}, g.script("true")...)...)
	d.untilState(id, "RUNNING")
	checkDescriptors(t, d.muster("exec", id, "--", "sh", "-c", attack).stdout, secret)
	for _, pid := range append(d.runners(), d.cmd.Process.Pid) {
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(all) == 0 {
			t.Fatalf("descriptors of %d: got %v, want some", pid, err)
		}
		for _, fd := range all {
			if to, _ := os.Readlink(fd); to == secret {
				t.Errorf("process %d still has %s open as %s", pid, to, fd)
			}
		}
	}
	g.open()
	d.untilState(id, "SUCCEEDED")
	if text, err := os.ReadFile(secret); err != nil || string(text) != "for root only\n" {
		t.Errorf("the file of root: got %q, %v, want it unchanged", text, err)
	}
}

// checkDescriptors checks the descriptors that a task reports: 0, 1 and 2, and the directory that ls itself reads.
func checkDescriptors(t *testing.T, said, secret string) {
	t.Helper()
	if strings.Contains(said, secret) || strings.Contains(said, "for root") {
		t.Errorf("a task reached %s:\n%s", secret, said)
	}
	open := 0
	for line := range strings.Lines(said) {
		if strings.Contains(line, " -> ") && !strings.Contains(line, "/proc/") {
			open++
		}
	}
	if open != 3 {
		t.Errorf("a task has %d descriptors, want 0, 1 and 2:\n%s", open, said)
	}
}

// helperProgram writes a script that everybody may change, so that the runner starts it through its helper process.
func (d *daemon) helperProgram(script string) string {
	d.t.Helper()
	path := filepath.Join(d.t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil { //nolint:gosec // it is executed
		d.t.Fatal(err)
	}
	return path
}

// ordinary is an account without rights, and system one of the system: its uid is below UID_MIN.
var (
	ordinary = &syscall.Credential{Uid: nobody, Gid: nobody}
	system   = &syscall.Credential{Uid: 1, Gid: 1}
)

const systemName = "daemon" // of uid 1

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be several users")
	}
}

// TestDaemonOfAUserRunsOnlyThatUsersTasks runs a daemon of an ordinary user in a cluster. Tasks of others are not
// offered to it, whether or not other hosts could run them, because they would read its key.
func TestDaemonOfAUserRunsOnlyThatUsersTasks(t *testing.T) {
	t.Parallel()
	asRoot(t)
	amy := newDaemon(t, "amy", "--gpus", "none", "--no-worker").start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--config", os.DevNull)
	if err := os.Chown(ben.dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	ben.as = ordinary
	inv := amy.invite()
	ben.env = []string{"MUSTER_TOKEN=" + inv.Token}
	ben.start(inv.flags()[:2*len(inv.Bootstrap)]...)
	amy.untilNodes(2)
	steal := []string{"--", "cat", filepath.Join(ben.dir, "data", "identity.key")}

	amy.fails(3, []string{"user: root", "runs only tasks of nobody"}, append([]string{"submit"}, steal...)...)
	ben.fails(3, []string{"user: root", "runs only tasks of nobody"}, append([]string{"submit"}, steal...)...)
	held := amy.ok(append([]string{"submit", "--hold"}, steal...)...)
	amy.ok("release", held)
	amy.until(held, "waiting for a host that may run it", func(j api.Job) bool { return j.Reason == "NoMatch" })
	if why := amy.ok("why", held); !strings.Contains(why, "user: root") || !strings.Contains(why, "runs only tasks of nobody") {
		t.Errorf("why: want the user, got\n%s", why)
	}
	if node := amy.ok("node", "show", "ben"); !strings.Contains(node, "nobody only") {
		t.Errorf("node show: want nobody only, got\n%s", node)
	}

	amy.user = ordinary // its own user's task may be submitted at any host of the cluster
	if id := amy.ok("run", "--", "id", "-un"); id != "nobody" {
		t.Errorf("the task of the daemon's user ran as %q, want %q", id, "nobody")
	}
	amy.user = nil
	if j := amy.show(held); j.State != "PENDING" {
		t.Errorf("root's task is %s, want PENDING", j.State)
	}
	amy.ok("cancel", held)

	ben.kill()
	ben.env = nil // it has joined
	ben.start("--run-others-as-me")
	amy.untilNodes(2)
	id := amy.ok("submit", "--", "id", "-un")
	amy.untilState(id, "SUCCEEDED")
	if out := amy.ok("logs", id); out != "nobody" {
		t.Errorf("with --run-others-as-me root's task ran as %q, want %q", out, "nobody")
	}
	root := newDaemon(t, "root", "--gpus", "none", "--run-others-as-me")
	root.launch()
	root.waitExit("run-others-as-me", "daemon of root")
}

// TestJobsOfOtherHostsDoNotRunAsSystemAccounts checks that a job of another host does not run under the name of an
// account of the system. A job of that account on its own host does.
func TestJobsOfOtherHostsDoNotRunAsSystemAccounts(t *testing.T) {
	asRoot(t)
	amy := newDaemon(t, "amy", "--gpus", "none", "--no-worker").start()
	ben := newDaemon(t, "ben", "--gpus", "none").start(amy.invite().flags()...)
	amy.untilNodes(2)
	amy.user, ben.user = system, system
	id := amy.ok("submit", "--", "id", "-un")
	amy.until(id, "refused", func(j api.Job) bool { return j.Reason == "NoMatch" })
	if why := amy.ok("why", id); !strings.Contains(why, "user "+systemName+" is an account of the system here") {
		t.Errorf("why: want that it is an account of the system, got\n%s", why)
	}
	if out := ben.ok("run", "--", "id", "-un"); out != systemName {
		t.Errorf("the account's own task ran as %q, want its name", out)
	}
	amy.user = ordinary
	if out := amy.ok("run", "--", "id", "-un"); out != "nobody" { // its uid is above those of the system
		t.Errorf("the task of an ordinary user ran as %q, want %q", out, "nobody")
	}
}

// TestTokenIsNotOnACommandLine checks the three ways to give the token of an invitation, and who can see it.
func TestTokenIsNotOnACommandLine(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	if line := amy.ok("invite"); !strings.HasPrefix(line, "MUSTER_TOKEN=") || strings.Contains(line, "--token") {
		t.Errorf("invite: got %q, want the token in a variable", line)
	}
	inv := amy.invite("--uses", "2")
	bootstrap := inv.flags()[:2*len(inv.Bootstrap)]
	ben := newDaemon(t, "ben", "--gpus", "none")
	ben.env = []string{"MUSTER_TOKEN=" + inv.Token}
	ben.start(bootstrap...)
	amy.untilNodes(2)
	id := ben.ok("submit", "-w", "ben", "--", "env")
	ben.untilState(id, "SUCCEEDED")
	for _, pid := range ben.runners() {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || strings.Contains(string(text), inv.Token) {
			t.Errorf("the runner has the token in its environment, or %v, want string(text) without %q", err, inv.Token)
		}
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", ben.cmd.Process.Pid))
	if err != nil || strings.Contains(string(text), inv.Token) || strings.Contains(ben.ok("logs", id), inv.Token) {
		t.Errorf("the token is on a command line or in the environment of a task, or %v", err)
	}

	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(inv.Token+"\n"), 0o644); err != nil { //nolint:gosec // that it is not private is the point
		t.Fatal(err)
	}
	cat := newDaemon(t, "cat", "--gpus", "none")
	cat.launch(append(bootstrap, "--token-file", file)...)
	cat.waitExit("token-file", "others may read", "chmod 600")
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	cat.start(append(bootstrap, "--token-file", file)...)
	amy.untilNodes(3)

	dan := newDaemon(t, "dan", "--gpus", "none")
	inv = amy.invite()
	dan.launch(append(bootstrap, "--token="+inv.Token)...)
	dan.waitExit("daemon: --token", "list of processes", "MUSTER_TOKEN", "--token-file", "--insecure-token")
	dan.start(append(bootstrap, "--token="+inv.Token, "--insecure-token")...)
	amy.untilNodes(4)
}

// TestHTTPOfRootNeedsAToken checks that root never serves HTTP without a token, nor with one that others can read or
// replace.
func TestHTTPOfRootNeedsAToken(t *testing.T) {
	asRoot(t)
	refused := func(name string, words []string, args ...string) {
		t.Helper()
		d := newDaemon(t, name, append([]string{"--gpus", "none", "--http", fmt.Sprintf("127.0.0.1:%d", freePort(t))}, args...)...)
		d.launch()
		d.waitExit(words...)
	}
	refused("none", []string{"http", "only to those who have its token"})
	dir := t.TempDir()
	write := func(name string, mode os.FileMode, uid int) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("0123456789abcdef\n"), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(path, uid, -1); err != nil {
			t.Fatal(err)
		}
		return path
	}
	refused("open", []string{"token file", "others may read or change it"}, "--http-token", write("open", 0o644, 0))
	refused("other", []string{"token file", "it belongs to user nobody"}, "--http-token", write("other", 0o600, nobody))
	link := filepath.Join(dir, "link")
	if err := os.Symlink(write("private", 0o600, 0), link); err != nil {
		t.Fatal(err)
	}
	refused("link", []string{"token file", "symbolic link"}, "--http-token", link)
	newDaemon(t, "right", "--gpus", "none", "--http", fmt.Sprintf("127.0.0.1:%d", freePort(t)), "--http-token", filepath.Join(dir, "private")).start()
}

// TestFallbackDirectoryOfAnotherUserIsRefused starts a daemon of a user without a runtime directory, where another user
// has made the directory of its socket.
func TestFallbackDirectoryOfAnotherUserIsRefused(t *testing.T) {
	asRoot(t)
	tmp := t.TempDir()
	for path, mode := range map[string]os.FileMode{filepath.Dir(tmp): 0o755, tmp: 0o777 | os.ModeSticky} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	trap := filepath.Join(tmp, fmt.Sprintf("muster-%d", nobody))
	if err := os.Mkdir(trap, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(trap, int(system.Uid), int(system.Gid)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(trap, 0o777); err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, "ben", "--gpus", "none", "--config", os.DevNull)
	d.args = slices.DeleteFunc(d.args, func(a string) bool { return a == "--data-dir" || a == "--socket" || strings.HasPrefix(a, d.dir) })
	d.env, d.as = []string{"TMPDIR=" + tmp, "HOME=", "XDG_RUNTIME_DIR="}, ordinary
	d.launch()
	d.waitExit("muster-65534", "belongs to user "+systemName)
	if left, err := os.ReadDir(trap); err != nil || len(left) > 0 {
		t.Errorf("the daemon left %v there, %v, want nothing", left, err)
	}
}
