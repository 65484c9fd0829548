//go:build e2e

package e2e

// Whose jobs a host runs, and as which user: users that it does not know, root, and requests over TCP.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// eve is a user whom this host does not know.
var eve = &syscall.Credential{Uid: 2001, Gid: 2001}

// withAccounts returns a command that runs another one on a host with these accounts besides its own.
func withAccounts(t *testing.T, accounts string) []string {
	t.Helper()
	text, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "passwd")
	write(t, file, string(text)+accounts)
	if err := os.Chmod(file, 0o644); err != nil { //nolint:gosec // all users read it
		t.Fatal(err)
	}
	return []string{"unshare", "-m", "sh", "-c", "mount --bind " + file + ` /etc/passwd && exec "$@"`, "sh"}
}

// TestHostRunsJobsOfUsersItKnows checks that no job goes to a host that does not know its user, or that runs no jobs of
// root. It then checks what is answered at once while hosts are silent.
func TestHostRunsJobsOfUsersItKnows(t *testing.T) {
	asRoot(t)
	known := withAccounts(t, "eve:x:2001:2001::/:/bin/sh\n")
	amy := newDaemonAt(t, known, "127.0.0.1", "amy", "--gpus", "none", "--no-worker").start()
	inv := amy.invite("--uses", "2")
	newDaemon(t, "ben", "--gpus", "none", "--cpus", "2", "--allow-root=false").start(inv.flags()...) // it fits best
	cat := newDaemonAt(t, known, "127.0.0.1", "cat", "--gpus", "none", "--cpus", "4").start(inv.flags()...)
	amy.untilNodes(3)
	if err := os.Chmod(cat.dir, 0o711); err != nil { //nolint:gosec // so that the task's user reaches its directory
		t.Fatal(err)
	}

	amy.user = eve
	for range 3 {
		if out := amy.ok("run", "--", "id", "-un"); out != "eve" {
			t.Errorf("the task ran as %q, want %q", out, "eve")
		}
	}
	if out := amy.ok("offers"); !strings.Contains(out, "ben: has no user eve") || !strings.Contains(out, "cat") {
		t.Errorf("offers: want that ben has no user eve, got\n%s", out)
	}
	amy.fails(3, []string{"user: eve", "ben: has no user eve"}, "submit", "-w", "ben", "--", "true")
	amy.user = nil
	if out := amy.ok("run", "--", "id", "-un"); out != "root" {
		t.Errorf("the task ran as %q, want %q", out, "root")
	}
	if out := amy.ok("offers"); !strings.Contains(out, "ben: runs no jobs of root") {
		t.Errorf("offers: want that ben runs no jobs of root, got\n%s", out)
	}
	amy.fails(3, []string{"user: root", "ben: runs no jobs of root"}, "submit", "-w", "ben", "--", "true")

	cat.kill()
	for _, args := range [][]string{{"submit", "--cpus", "64", "--", "true"}, {"submit", "--cpus", "64", "--array", "0-9", "--", "true"}} {
		if r := amy.fails(3, []string{"cpus: 64"}, args...); r.took > 4*time.Second { // 1.1 s on an idle host; before it was 5 s
			t.Errorf("%v took %s, want at most 4 s", args, r.took)
		}
	}
	if r := amy.muster("node", "show", "cat"); r.code != 0 || r.took > 4*time.Second || !strings.Contains(r.stdout, "does not answer") {
		t.Errorf("node show: got %+v, want in time that it does not answer", r)
	}
	amy.ok("submit", "--cpus", "4", "--hold", "--", "true") // as long as it is only silent
	amy.ok("peers", "--revoke", "cat")
	amy.fails(3, []string{"cpus: 4", "met by 0 of 2 nodes"}, "submit", "--cpus", "4", "--", "true")
	if out := amy.ok("offers", "--cpus", "4"); strings.Contains(out, "cat") {
		t.Errorf("offers after the revocation: want them without cat, got\n%s", out)
	}
}

// inDirectory returns a command that runs another one on a host whose directory service knows the user dora, who is in
// no file: systemd's NSS module, which glibc's getent asks.
func inDirectory(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "nsswitch.conf"), "passwd: files systemd\ngroup: files systemd\n")
	write(t, filepath.Join(dir, "dora.user"), `{"userName":"dora","uid":2002,"gid":2002,"homeDirectory":"/tmp","shell":"/bin/sh","disposition":"regular"}`)
	if err := os.Symlink("dora.user", filepath.Join(dir, "2002.user")); err != nil {
		t.Fatal(err)
	}
	with := []string{"unshare", "-m", "sh", "-c", "mount --bind " + dir + "/nsswitch.conf /etc/nsswitch.conf && mount -t tmpfs none /run && mkdir /run/userdb && " +
		"cp -P " + dir + `/*.user /run/userdb && exec "$@"`, "sh"}
	look := append(slices.Clone(with), "getent", "passwd", "dora")
	if out, err := exec.Command(look[0], look[1:]...).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "dora:") {
		t.Skipf("this host has no libnss-systemd that reads /run/userdb: %v, %s", err, out)
	}
	return with
}

// TestUsersOfADirectoryServiceRunJobs checks that jobs run as users who are in no file of the host. The program of the
// runner cannot ask a directory service itself.
func TestUsersOfADirectoryServiceRunJobs(t *testing.T) {
	asRoot(t)
	amy := newDaemonAt(t, inDirectory(t), "127.0.0.1", "amy", "--gpus", "none", "--cpus", "2").start()
	if err := os.Chmod(amy.dir, 0o711); err != nil { //nolint:gosec // so that the task's user reaches its directory
		t.Fatal(err)
	}
	amy.user = &syscall.Credential{Uid: 2002, Gid: 2002}
	if out := amy.ok("run", "--", "sh", "-c", "echo $(id -u) $(id -g) $USER $HOME"); out != "2002 2002 dora /tmp" {
		t.Errorf("the task ran as %q, want %q", out, "2002 2002 dora /tmp")
	}
	id := amy.ok("submit", "--", "sleep", "600")
	amy.untilState(id, "RUNNING")
	if out := amy.ok("exec", id, "--", "id", "-u"); out != "2002" {
		t.Errorf("exec ran as %q, want %q", out, "2002")
	}
	amy.ok("cancel", id)
}

// TestJobsOverTCPRunAsTheConfiguredUser checks as which user requests over TCP act at a daemon of root.
func TestJobsOverTCPRunAsTheConfiguredUser(t *testing.T) {
	asRoot(t)
	token := filepath.Join(t.TempDir(), "token")
	write(t, token, "0123456789abcdef\n")
	if err := os.Chmod(token, 0o600); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	amy := newDaemon(t, "amy", "--gpus", "none", "--http", addr, "--http-token", token).start()
	over := func(verb string, args ...string) []string {
		return append([]string{verb, "--addr", addr, "--api-token", token}, args...)
	}
	amy.fails(1, []string{"http-user"}, over("submit", "--", "true")...)
	amy.fails(125, []string{"http-user"}, over("run", "--", "true")...)
	if out := amy.ok("jobs", "--all", "-q"); out != "" {
		t.Errorf("jobs were accepted: got %s, want an empty text", out)
	}
	if out := amy.muster("doctor"); !strings.Contains(out.stdout, "--http-user") {
		t.Errorf("doctor: want the option, got\n%s", out.stdout)
	}
	amy.kill()
	if err := os.Chmod(amy.dir, 0o711); err != nil { //nolint:gosec // so that the task's user reaches its directory
		t.Fatal(err)
	}
	amy.start("--http-user", "nobody")
	if out := amy.ok(over("run", "--", "id", "-un")...); out != "nobody" {
		t.Errorf("the task ran as %q, want %q", out, "nobody")
	}
	amy.kill()
	amy.launch("--http-user", "no-such-user-here")
	amy.waitExit("http-user", "no such user")
}
