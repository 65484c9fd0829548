//go:build e2e

package e2e

// Attacks of a local user with paths that the daemon of root opens: each verb that takes a path, with each hostile
// path.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

var pathsAttacks = []attack{
	{name: "a user's output goes to a file of the kernel", users: true, try: (*field).sysctls},
	{name: "a user works in the directories of others' processes", users: true, try: (*field).othersDirectories},
}

// domain returns the domain name of the host that root's daemon sees. It belongs to a namespace of the daemon, so that
// the attack changes nothing outside of it.
func (f *field) domain(set ...string) string {
	f.t.Helper()
	script := "cat /proc/sys/kernel/domainname"
	if len(set) > 0 {
		script = "echo " + set[0] + " >/proc/sys/kernel/domainname"
	}
	out, err := exec.Command("nsenter", "-t", strconv.Itoa(f.root.cmd.Process.Pid), "-u", "sh", "-c", script).CombinedOutput()
	if err != nil {
		f.t.Fatalf("%s: %v, %s", script, err, out)
	}
	return strings.TrimSpace(string(out))
}

// kept links are in mallory's home.
func (f *field) link(name, to string) string {
	f.t.Helper()
	path := filepath.Join(f.home, name)
	_ = os.Remove(path)
	if err := os.Symlink(to, path); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Lchown(path, int(f.mallory.Uid), int(f.mallory.Gid)); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// sysctls writes a sysctl through everything that writes what a user names.
func (f *field) sysctls() {
	const name = "/proc/sys/kernel/domainname"
	f.domain("calm")
	link, dir := f.link("sysctl", name), f.link("kernel", "/proc/sys/kernel")
	for _, args := range [][]string{
		{"-o", name},
		{"-o", "/proc/self/root" + name},
		{"-o", "/proc/sys/../sys/kernel/domainname"},
		{"-o", link},
		{"-o", dir + "/domainname"},
		{"-o", filepath.Join(f.home, "out"), "-e", name},
		{"-D", "/proc/sys/kernel", "-o", "domainname"},
		{"-D", dir, "-o", "domainname"},
		{"-o", "/proc/sys/kernel/%x", "-J", "domainname"},
	} {
		args = append(append([]string{"run"}, args...), "--", "sh", "-c", "echo taken; echo taken >&2")
		r := f.as(f.root, f.mallory, f.home, args...)
		if r.code == 0 || strings.TrimSpace(r.stderr) == "" || r.stderr == "taken\n" {
			f.t.Errorf("%q: exit %d, want a failure with its reason: %s", args, r.code, r.stderr)
		}
		if now := f.domain(); now != "calm" {
			f.t.Errorf("%q has set %s to %q, want calm", args, name, now)
			f.domain("calm")
		}
	}
}

// closed starts a process of the victim in a directory behind a closed home, and one in a mount namespace of its own.
// Both directories have a file that everybody could read if the directories above were open.
func (f *field) closed() (home, mounted int, dir string) {
	f.t.Helper()
	dir = openDir(f.t)
	inner, hidden := filepath.Join(dir, "home", "work"), filepath.Join(dir, "hidden")
	write(f.t, filepath.Join(inner, "secret"), "hush")
	write(f.t, filepath.Join(hidden, "empty"), "")
	for path, mode := range map[string]os.FileMode{inner: 0o777, filepath.Join(dir, "home"): 0o700} {
		if err := os.Chmod(path, mode); err != nil {
			f.t.Fatal(err)
		}
		if err := os.Chown(path, int(f.victim.Uid), int(f.victim.Gid)); err != nil {
			f.t.Fatal(err)
		}
	}
	start := func(in string, args ...string) int {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = in
		if args[0] == "sleep" {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: f.victim}
		}
		if err := cmd.Start(); err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd.Process.Pid
	}
	home = start(inner, "sleep", "600")
	mounted = start("/", "unshare", "-m", "sh", "-c", fmt.Sprintf("mount -t tmpfs none %s && chmod 777 %[1]s && echo hush >%[1]s/secret && exec setpriv --reuid=%d --regid=%[2]d --clear-groups sleep 600", hidden, f.victim.Uid))
	untilRight(f.t, patience, func() string {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d/root%s/secret", mounted, hidden)); err != nil {
			return err.Error()
		}
		return ""
	})
	return home, mounted, dir
}

// othersDirectories reads and writes files of the victim through the links that the kernel has for the victim's
// processes.
func (f *field) othersDirectories() {
	home, mounted, dir := f.closed()
	cwd := fmt.Sprintf("/proc/%d/cwd", home)
	root := fmt.Sprintf("/proc/%d/root%s/hidden", mounted, dir)
	link := f.link("cwd", cwd)
	up := fmt.Sprintf("/proc/%d/task/%[1]d/cwd", home)
	for _, at := range []string{cwd, root, link, up, cwd + "/.", fmt.Sprintf("/proc/%d/root/..%s/hidden", mounted, dir)} {
		for _, args := range [][]string{
			{"run", "-D", at, "--", "cat", "secret"},
			{"run", "-D", at, "-o", "loot", "--", "cat", "secret"},
			{"run", "-o", at + "/loot", "--", "echo", "planted"},
			{"run", "-o", filepath.Join(f.home, "fine"), "-e", at + "/loot", "--", "sh", "-c", "echo planted >&2"},
			{"run", "--download", "kept", "--", "ln", "-s", at + "/secret", "kept"},
			{"run", "--download", "sub/secret", "--", "ln", "-s", at, "sub"},
		} {
			r := f.as(f.root, f.mallory, f.home, args...)
			if strings.Contains(r.stdout, "hush") {
				f.t.Errorf("%q reads %q, want nothing of the victim", args, r.stdout)
			}
			if args[1] != "--download" && r.code == 0 {
				f.t.Errorf("%q succeeds, want a failure", args)
			}
		}
	}
	for _, name := range []string{"kept", "sub/secret"} {
		if text, err := os.ReadFile(filepath.Join(f.home, name)); err == nil && strings.Contains(string(text), "hush") {
			if info, _ := os.Lstat(filepath.Join(f.home, strings.Split(name, "/")[0])); info.Mode()&os.ModeSymlink == 0 {
				f.t.Errorf("--download brings %s: %q", name, text)
			}
		}
	}
	for _, path := range []string{filepath.Join(dir, "home", "work", "loot"), fmt.Sprintf("/proc/%d/root%s/hidden/loot", mounted, dir)} {
		if text, err := os.ReadFile(path); err == nil {
			f.t.Errorf("mallory has written %s: got %q, want an error", path, text)
		}
	}
}
