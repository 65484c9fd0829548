package main

// Starting a browser for the verb ui. All users of a host can read the command lines of processes, so the address with
// its code must not be on one. The browser gets a file that only this user can read, and that leads to the address.

import (
	"cmp"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// openers are the programs that start the user's browser; the first that exists is used.
var openers = []string{"xdg-open", "sensible-browser"}

// openBrowser opens an address in a browser. The file that leads there is removed after a time. If no browser is
// started, it returns why.
func openBrowser(address string, life time.Duration) (why string) {
	switch {
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return "there is no display"
	case os.Getenv("SSH_CONNECTION") != "":
		return "this is a session of ssh"
	case os.Getuid() == 0:
		return "browsers are not for root"
	}
	for _, name := range openers {
		if program, err := exec.LookPath(name); err == nil {
			return startBrowser(program, address, life)
		}
	}
	return "there is no xdg-open"
}

func startBrowser(program, address string, life time.Duration) (why string) {
	file, err := leadFile(address)
	if err != nil {
		return err.Error()
	}
	time.AfterFunc(life, func() { _ = os.RemoveAll(filepath.Dir(file)) })
	cmd := exec.Command(program, file)                   //nolint:noctx // the browser outlives this process
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C is not for the browser
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(filepath.Dir(file))
		return err.Error()
	}
	go func() { _ = cmd.Wait() }() // the user sees in the browser whether it worked
	return ""
}

// leadFile writes a page that leads to an address at once. It is in a directory that only this user can enter.
func leadFile(address string) (string, error) {
	dir, err := os.MkdirTemp(cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()), "muster-ui-")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "open.html")
	text := fmt.Sprintf("<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\"><meta http-equiv=\"refresh\" content=\"0;url=%s\"><title>muster</title>\n", html.EscapeString(address))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		_ = os.RemoveAll(dir)
		return "", err
	}
	return file, nil
}
