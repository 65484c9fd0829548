package main

// The messages of the service to the service manager over its socket.

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/daemon"
)

// fakeNode is a node whose health the test sets.
type fakeNode struct {
	health error
	cfg    daemon.Config
	refuse error
}

func (n *fakeNode) Health(context.Context) error            { return n.health }
func (n *fakeNode) Summary(context.Context) (string, error) { return "all is well", nil }
func (n *fakeNode) Reload(cfg daemon.Config) error          { n.cfg = cfg; return n.refuse }

// manager is the service manager's end of the socket.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
}

func newManager(t *testing.T) manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "n")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return manager{t, conn}
}

// next returns the oldest unread message, empty if there is none. A datagram has arrived when its sender goes on.
func (m manager) next() string {
	m.t.Helper()
	raw, err := m.conn.SyscallConn()
	if err != nil {
		m.t.Fatal(err)
	}
	buf, n := make([]byte, 4096), 0
	if controlErr := raw.Control(func(fd uintptr) { n, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT) }); controlErr != nil {
		m.t.Fatal(controlErr)
	}
	if errors.Is(err, unix.EAGAIN) {
		return ""
	}
	if err != nil {
		m.t.Fatal(err)
	}
	return string(buf[:n])
}

func TestWatchdogHearsOfAHealthyDaemonOnly(t *testing.T) {
	m := newManager(t)
	var log bytes.Buffer
	n := &fakeNode{}
	s := service{level: new(slog.LevelVar), log: slog.New(slog.NewTextHandler(&log, nil))}
	s.beat(t.Context())
	if got := m.next(); got != "" {
		t.Errorf("before the start: got %q, want an empty text", got)
	}
	s.takes(t.Context(), n)
	if got := m.next(); got != "READY=1\nSTATUS=all is well" {
		t.Errorf("at the start: got %q, want %q", got, "READY=1\nSTATUS=all is well")
	}
	s.beat(t.Context())
	if got := m.next(); got != "WATCHDOG=1\nSTATUS=all is well" {
		t.Errorf("healthy: got %q, want %q", got, "WATCHDOG=1\nSTATUS=all is well")
	}
	n.health = errors.New("journal: it hangs")
	s.beat(t.Context())
	if got := m.next(); got != "" || !strings.Contains(log.String(), "journal: it hangs") {
		t.Errorf("not healthy: got %q, log %q, want no message and the reason in the log", got, log.String())
	}
	s.node, s.absent = nil, time.Now()
	s.beat(t.Context())
	if got := m.next(); got != "WATCHDOG=1" {
		t.Errorf("while it joins another cluster: got %q, want %q", got, "WATCHDOG=1")
	}
	s.absent = time.Now().Add(-rebuildMost)
	s.beat(t.Context())
	if got := m.next(); got != "" {
		t.Errorf("after too long: got %q, want an empty text", got)
	}
}

func TestReloadAppliesLiveSettings(t *testing.T) {
	m := newManager(t)
	var log bytes.Buffer
	cfg := func(change func(*daemonConfig)) daemonConfig {
		c := daemonConfig{Config: daemon.Config{Name: "amy", Labels: map[string]string{"rack": "r1"}, Bootstrap: []string{"a"}}, LogLevel: "info"}
		change(&c)
		for _, k := range settings() {
			c.Settings = append(c.Settings, api.Setting{Name: k.name, Value: k.get(c)})
		}
		return c
	}
	n := &fakeNode{}
	s := service{level: new(slog.LevelVar), log: slog.New(slog.NewTextHandler(&log, nil)), cfg: cfg(func(*daemonConfig) {})}
	s.reload(t.Context())
	if got := m.next(); got != "" || !strings.Contains(log.String(), "the daemon is starting") {
		t.Errorf("before the start: got %q, %q, want no message and a warning", got, log.String())
	}
	s.node = n
	reload := func(c daemonConfig, err error) string {
		t.Helper()
		log.Reset()
		s.reread = func() (daemonConfig, error) { return c, err }
		s.reload(t.Context())
		if got := m.next(); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") {
			t.Errorf("first message: got %q, want RELOADING=1 with a time", got)
		}
		if got := m.next(); got != "READY=1" {
			t.Errorf("second message: got %q, want %q", got, "READY=1")
		}
		return log.String()
	}
	said := reload(cfg(func(c *daemonConfig) {
		c.Labels, c.Bootstrap, c.LogLevel, c.Name = map[string]string{"rack": "r2"}, nil, "debug", "ben"
	}), nil)
	if n.cfg.Labels["rack"] != "r2" || n.cfg.Bootstrap != nil || s.level.Level() != slog.LevelDebug || n.cfg.Name != "amy" {
		t.Errorf("reloaded %+v at level %s, want the labels and the level, and the old name", n.cfg, s.level.Level())
	}
	if strings.Count(said, "needs a restart") != 1 || !strings.Contains(said, "setting=name") || !strings.Contains(said, `changed="[bootstrap label log-level]"`) {
		t.Errorf("log: got %s, want one line about the restart and the changed settings", said)
	}
	before := s.cfg
	if said := reload(daemonConfig{}, errors.New("c.yaml:3: no such setting")); !strings.Contains(said, "not reloaded") || !strings.Contains(said, "c.yaml:3") {
		t.Errorf("a broken file: got %s, want that it was not reloaded, with the line", said)
	}
	if s.cfg.LogLevel != before.LogLevel || s.level.Level() != slog.LevelDebug || n.cfg.Labels["rack"] != "r2" {
		t.Errorf("a broken file changed the settings: got %+v, want those of before", s.cfg)
	}
	n.refuse = errors.New("token file: gone")
	if said := reload(before, nil); !strings.Contains(said, "token file: gone") {
		t.Errorf("a refusal: got %s, want a text with %q", said, "token file: gone")
	}
}
