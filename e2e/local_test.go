//go:build e2e

package e2e

// What local users and their tasks can reach of a daemon on the same host.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInheritedDescriptors starts a daemon that inherits descriptor 7, a file of root that nobody else may open. Neither
// a task nor a command in it has that descriptor, and neither the daemon nor its runner keeps it.
func TestInheritedDescriptors(t *testing.T) {
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
	d.extra = []*os.File{file, file, file, file, file} // 3 to 7
	d.start()
	const attack = "head -c 13 <&7; echo changed >&7; ls -l /proc/self/fd"
	for _, command := range [][]string{
		{"run", "--", "sh", "-c", attack},
		{"run", "--", d.helperProgram(attack)},
	} {
		onlyStreams(t, d.muster(command...).stdout, secret)
	}
	g := newGate(t)
	id := d.ok(append([]string{"submit", "--"}, g.script("true")...)...)
	d.untilState(id, "RUNNING")
	onlyStreams(t, d.muster("exec", id, "--", "sh", "-c", attack).stdout, secret)
	for _, pid := range append(d.runners(), d.cmd.Process.Pid) {
		all, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil || len(all) == 0 {
			t.Fatalf("descriptors of %d: %v", pid, err)
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
		t.Errorf("the file of root is %q now, %v", text, err)
	}
}

// onlyStreams checks what a task says of its descriptors: 0, 1 and 2, and the directory that ls itself reads.
func onlyStreams(t *testing.T, said, secret string) {
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

// helperProgram writes a script that everybody may change, which the runner starts by its helper process.
func (d *daemon) helperProgram(script string) string {
	d.t.Helper()
	path := filepath.Join(d.t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil { //nolint:gosec // it is executed
		d.t.Fatal(err)
	}
	return path
}
