//go:build e2e

package e2e

// The service under a real systemd, in a container on a copy-on-write view of this machine.

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/testkit/needtest"
)

// machine is a container whose first process is systemd.
type machine struct {
	t      *testing.T
	root   string
	leader string // pid of its systemd
}

func bootSystemd(t *testing.T) machine {
	t.Helper()
	needtest.Root(t, "boots systemd")
	for _, program := range []string{"systemd-nspawn", "nsenter", "systemctl"} { // Debian: systemd-container
		needtest.Runs(t, program, "--version")
	}
	layers := t.TempDir()
	if err := unix.Mount("tmpfs", layers, "tmpfs", 0, ""); err != nil {
		t.Skipf("no tmpfs can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(layers, unix.MNT_DETACH) })
	m := machine{t: t, root: filepath.Join(layers, "root")}
	for _, dir := range []string{m.root, layers + "/upper", layers + "/work"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount("overlay", m.root, "overlay", 0, fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", layers, layers)); err != nil {
		t.Skipf("no overlay can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(m.root, unix.MNT_DETACH) })
	if err := os.WriteFile(filepath.Join(m.root, "etc/machine-id"), []byte("0123456789abcdef0123456789abcdef\n"), 0o444); err != nil {
		t.Fatal(err)
	}
	// The container must not see the files of a muster on this machine.
	for _, own := range []string{"etc/muster", "var/lib/muster", "etc/systemd/system/muster.service.d"} {
		if err := os.RemoveAll(filepath.Join(m.root, own)); err != nil {
			t.Fatal(err)
		}
	}
	nspawn := exec.Command("systemd-nspawn", "--quiet", "--directory="+m.root, "--keep-unit", "--register=no", "--private-network",
		"--link-journal=no", "--console=pipe", "--boot", "systemd.unit=basic.target", "systemd.mask=docker.socket")
	var said bytes.Buffer
	nspawn.Stdout, nspawn.Stderr = &said, &said
	nspawn.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := nspawn.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = nspawn.Wait(); close(ended) }()
	t.Cleanup(func() {
		if t.Failed() && m.leader != "" {
			out, _ := m.command("journalctl", "--no-pager", "-n", "80", "-o", "cat", "-u", "muster").CombinedOutput()
			t.Logf("journal:\n%s\nnspawn: %s", out, said.String())
		}
		if m.leader != "" { // all processes end with the first process of their pid namespace
			_ = exec.Command("kill", "-KILL", m.leader).Run()
		}
		select {
		case <-ended:
		case <-time.After(patience):
			_ = nspawn.Process.Kill()
		}
	})
	m.eventually("systemd runs", func() bool {
		select {
		case <-ended:
			t.Skipf("systemd cannot be booted here: %s", said.String())
		default:
		}
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", nspawn.Process.Pid, nspawn.Process.Pid))
		if err != nil || len(strings.Fields(string(children))) == 0 {
			return false
		}
		m.leader = strings.Fields(string(children))[0]
		out, _ := m.command("systemctl", "is-system-running").Output()
		return strings.HasPrefix(string(out), "running") || strings.HasPrefix(string(out), "degraded")
	})
	return m
}

// command returns a command that runs inside the container.
func (m machine) command(args ...string) *exec.Cmd {
	limit := fmt.Sprint(patience.Seconds())
	cmd := exec.Command("nsenter", append([]string{"-t", m.leader, "-a", "--", "timeout", limit}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}
	return cmd
}

func (m machine) ok(args ...string) string {
	m.t.Helper()
	out, err := m.command(args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%q: got %v, want no error\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (m machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) eventually(what string, is func() bool) {
	m.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late.C:
			m.t.Fatalf("after %s still not true: %s", patience, what)
		}
	}
}

func (m machine) journal() string {
	return m.ok("journalctl", "--no-pager", "-o", "cat", "-u", "muster")
}

// confined checks what the unit denies the daemon, and that tasks lack nothing: their mounts are those of the host.
func (m machine) confined() {
	m.t.Helper()
	pid := m.ok("systemctl", "show", "-p", "MainPID", "--value", "muster")
	const sysctl = "/proc/sys/net/ipv4/ip_default_ttl"
	for _, script := range []string{"echo 64 > " + sysctl, "cat /dev/kmsg", "touch /usr/bin/x"} {
		if out, err := m.command("nsenter", "-t", pid, "-m", "--", "timeout", "5", "sh", "-c", script).CombinedOutput(); err == nil {
			m.t.Errorf("the daemon may %s: got %s, want an error", script, out)
		}
	}
	kept := m.ok("grep", "CapBnd", "/proc/"+pid+"/status")
	var bits uint64
	if _, err := fmt.Sscanf(kept, "CapBnd: %x", &bits); err != nil {
		m.t.Fatal(err)
	}
	for name, bit := range map[string]uint{"sys_module": unix.CAP_SYS_MODULE, "syslog": unix.CAP_SYSLOG, "sys_time": unix.CAP_SYS_TIME, "sys_boot": unix.CAP_SYS_BOOT} {
		if bits&(1<<bit) != 0 {
			m.t.Errorf("the daemon has the capability %s", name)
		}
	}
	asUser := []string{"setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"}
	for _, c := range []struct {
		why    string
		by     []string
		script string
	}{
		{"tasks see the mounts of the host", nil, `[ "$(readlink /proc/self/ns/mnt)" = "$(readlink /proc/1/ns/mnt)" ]`},
		{"root's tasks may write where the host may", nil, "echo 64 > " + sysctl},
		{"a mount of a task is one of the host", nil, "mkdir -p /mnt/m && mount -t tmpfs none /mnt/m && umount /mnt/m"},
		{"control groups can be made", nil, "[ -w /sys/fs/cgroup ]"},
		{"devices", asUser, "echo > /dev/null && head -c 1 /dev/urandom > /dev/null && [ -c /dev/tty ]"},
		{"processes of the user", asUser, "ps -u nobody > /dev/null && id > /dev/null"},
		{"setuid programs", asUser, `grep -q "NoNewPrivs:.*0" /proc/self/status`},
		{"programs without address randomization", asUser, "setarch -R true"},
		{"setuid bits of a file of the user", asUser, "cd /tmp && f=$(mktemp) && chmod u+s $f && rm $f"},
	} {
		if out, err := m.command(append(c.by, "sh", "-c", c.script)...).CombinedOutput(); err != nil {
			m.t.Logf("%s: not even without muster here: %v: %s", c.why, err, out)
			continue
		}
		if out, err := m.command(append(c.by, "muster", "run", "--", "sh", "-c", c.script)...).CombinedOutput(); err != nil {
			m.t.Errorf("%s: got %v, want no error: %s", c.why, err, out)
		}
	}
	// A container without root mounts its own /proc, which the kernel refuses where parts of /proc are hidden.
	const rootless = "unshare --user --map-root-user --mount --pid --fork --mount-proc true"
	if err := m.command(append(asUser, "sh", "-c", rootless)...).Run(); err != nil {
		m.t.Logf("containers without root: not even without muster here: %v", err)
	} else if out, err := m.command(append(asUser, "muster", "run", "--", "sh", "-c", rootless)...).CombinedOutput(); err != nil {
		m.t.Errorf("containers without root: got %v, want no error: %s", err, out)
	}
}

func TestServiceWorksUnderSystemd(t *testing.T) {
	m := bootSystemd(t)
	install := exec.Command("make", "install", "DESTDIR="+m.root)
	install.Dir = ".."
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m.write("/etc/muster/config.yaml", "label: {rack: r1}\nallow-root: true\ngpus: none\n")
	m.write("/etc/systemd/system/muster.service.d/test.conf", "[Service]\nWatchdogSec=3s\n")
	m.ok("systemctl", "daemon-reload")
	m.ok("systemctl", "start", "muster") // returns when the service is ready
	id := m.ok("muster", "submit", "--", "sh", "-c", "while [ ! -e /go ]; do sleep 0.1; done; exit 7")
	state := func() string { return m.ok("muster", "show", id, "--json") }
	m.eventually("the task runs", func() bool { return strings.Contains(state(), `"state": "RUNNING"`) })
	if doctor := m.ok("muster", "doctor"); !strings.Contains(doctor, "this daemon is its main process, reports its state to /run/systemd/notify, watchdog 3s") {
		t.Errorf("doctor: got %s, want the socket and the watchdog", doctor)
	}

	m.confined()
	m.write("/etc/muster/config.yaml", "label: {rack: r2}\nallow-root: true\ngpus: none\ncpus: 1\n")
	m.ok("systemctl", "reload", "muster")
	m.eventually("the label has changed", func() bool { return strings.Contains(m.ok("muster", "nodes"), "rack=r2") })
	if log := m.journal(); !strings.Contains(log, "needs a restart\" setting=cpus") {
		t.Errorf("log: want that cpus needs a restart, got\n%s", log)
	}

	m.ok("systemctl", "restart", "muster")
	m.ok("systemctl", "kill", "-s", "KILL", "--kill-who=main", "muster")
	m.eventually("it is started again after a crash", func() bool { return strings.Contains(m.ok("systemctl", "show", "-p", "NRestarts", "muster"), "=1") })
	m.eventually("it is ready again", func() bool { return m.command("systemctl", "is-active", "--quiet", "muster").Run() == nil })
	m.ok("kill", "-STOP", m.ok("systemctl", "show", "-p", "MainPID", "--value", "muster"))
	m.eventually("the watchdog has ended a daemon that hangs", func() bool { return strings.Contains(m.ok("systemctl", "show", "-p", "NRestarts", "muster"), "=2") })
	m.eventually("it is ready again", func() bool { return m.command("systemctl", "is-active", "--quiet", "muster").Run() == nil })
	if log := m.journal(); strings.Contains(log, "left-over process") {
		t.Errorf("systemd found the runner in the service's cgroup:\n%s\nwant a text without %q", log, "left-over process")
	}

	m.ok("touch", "/go")
	var exit *exec.ExitError
	if err := m.command("muster", "wait", id).Run(); !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("wait: got %v, want exit code 7\n%s", err, state())
	}
	if doc := state(); !strings.Contains(doc, `"attempt": 1`) {
		t.Errorf("got %s, want one attempt", doc)
	}
	m.ok("systemctl", "stop", "muster")
}
