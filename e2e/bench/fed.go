package main

// A server that is fed as by a cluster of 500 nodes, with 4,000 GPUs and 10,000 jobs, and what looks at it: the browser's
// door and `muster top`.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/prometheus/procfs"

	"github.com/musterhq/muster/api"
)

const fedChanges = 50 // a second

// onFed starts the server, which is part of the tests of api, with changes a second, and measures it by its socket.
func onFed(changes int, measure func(ctx context.Context, program, socket string, r *report) error) func(context.Context, string, *report) error {
	return func(ctx context.Context, program string, r *report) error {
		dir, err := os.MkdirTemp("", "muster-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		server, socket := filepath.Join(dir, "fed"), filepath.Join(dir, "s")
		if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", server, "./api").CombinedOutput(); err != nil {
			return fmt.Errorf("./api: %w\n%s", err, out)
		}
		cmd := exec.CommandContext(ctx, server, "-test.run", "^$", "-test.bench", "FedServer$", "-test.benchtime", "1x", "-test.timeout", "0",
			"-fed.socket", socket, "-fed.changes", fmt.Sprint(changes))
		if err := cmd.Start(); err != nil {
			return err
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		client, err := api.NewClient(api.ClientConfig{Socket: socket})
		if err != nil {
			return err
		}
		for range 100 {
			if _, err = client.Daemon(ctx, false); err == nil {
				return measure(ctx, program, socket, r)
			}
			wait(ctx, 100*time.Millisecond)
		}
		return fmt.Errorf("the fed server did not start: %w", err)
	}
}

// door runs `muster ui` before a daemon, and returns an address with a code.
func door(ctx context.Context, program, socket string) (address string, stop func(), err error) {
	in, keys := io.Pipe() // it ends with its input
	cmd := exec.CommandContext(ctx, program, "ui", "--no-open", "--socket", socket)
	cmd.Stdin = in
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		keys.Close()
		_ = cmd.Wait()
	}
	address, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("muster ui did not start: %w", err)
	}
	return strings.TrimSpace(address), stop, nil
}

// top measures `muster top` on a terminal, after it has shown all nodes.
func top(label string) func(ctx context.Context, program, socket string, r *report) error {
	return func(ctx context.Context, program, socket string, r *report) error {
		const calm, watch = 10 * time.Second, 30 * time.Second
		counted := socket + "c"
		var bytes atomic.Int64
		stop, err := counting(ctx, counted, socket, &bytes)
		if err != nil {
			return err
		}
		defer stop()
		cmd := exec.CommandContext(ctx, program, "top", "--socket", counted)
		cmd.Env = append(os.Environ(), "TERM=xterm-256color")
		terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 60, Cols: 200})
		if err != nil {
			return err
		}
		defer terminal.Close()
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
		shown := make(chan struct{})
		go showsWord(terminal, "500 nodes", shown)
		select {
		case <-shown:
		case <-time.NewTimer(time.Minute).C:
			return errors.New("muster top did not show 500 nodes in a minute")
		}
		wait(ctx, calm)
		p, err := procfs.NewProc(cmd.Process.Pid)
		if err != nil {
			return err
		}
		before, err := p.Stat()
		if err != nil {
			return err
		}
		from := bytes.Load()
		wait(ctx, watch)
		after, err := p.Stat()
		if err != nil {
			return err
		}
		status, err := p.NewStatus()
		if err != nil {
			return err
		}
		r.value("top-memory", label+": own", float64(status.RssAnon)/1e6)
		r.value("top-memory", label+": resident", float64(after.ResidentMemory())/1e6)
		r.value("top-cpu", label, 100*(after.CPUTime()-before.CPUTime())/watch.Seconds())
		r.value("top-bytes", label, float64(bytes.Load()-from)/1e3/watch.Seconds())
		return ctx.Err()
	}
}

// showsWord reads the terminal to its end, and closes shown when there is a word on it.
func showsWord(terminal io.Reader, word string, shown chan struct{}) {
	buf, last, found := make([]byte, 64<<10), "", false
	for {
		n, err := terminal.Read(buf)
		if err != nil {
			return
		}
		if text := last + string(buf[:n]); !found && strings.Contains(text, word) {
			found = true
			close(shown)
		} else {
			last = text[max(0, len(text)-len(word)):]
		}
	}
}

// counting passes connections on to a socket, and counts the bytes that come from there.
func counting(ctx context.Context, at, to string, bytes *atomic.Int64) (stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", at)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			var d net.Dialer
			far, err := d.DialContext(ctx, "unix", to)
			if err != nil {
				near.Close()
				continue
			}
			go func() { _, _ = io.Copy(far, near); far.Close() }()
			go func() { _, _ = io.Copy(near, io.TeeReader(far, counter{bytes})); near.Close() }()
		}
	}()
	return func() { l.Close() }, nil
}

type counter struct{ n *atomic.Int64 }

// Write counts what is written.
func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
