package main

// The verb dev: a throw-away cluster of real daemons on loopback, and the end of the runners that they leave behind.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/shirou/gopsutil/v4/process"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/daemon"
)

const (
	maxDevNodes  = 64               // each is a process of about 60 MB
	devStart     = 30 * time.Second // for one daemon
	devStopGrace = 10 * time.Second
)

func (v hostVerbs) devCommand() *cli.Command {
	return &cli.Command{
		Name: "dev", Usage: "run a throw-away cluster on this machine; Ctrl-C ends it and all its tasks",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "nodes", Value: 3, Usage: "`N` daemons"},
			&cli.IntFlag{Name: "cpus", Usage: "`N` CPUs of each daemon; 0: all of this machine's", DefaultText: "0"},
			&cli.StringFlag{Name: "gpus", Value: "sim:2xH100-80GB", Usage: "`GPUS` of each daemon: none, auto or simulated"},
			&cli.BoolFlag{Name: "cgroups-off", Usage: "as for muster daemon", DisableDefaultText: true},
			&cli.StringFlag{Name: "docker-host", Usage: "`URL` of the Docker engine for containers, or none; as for muster daemon"},
			&cli.StringSliceFlag{Name: "docker-mount", Usage: "`DIR` that containers may mount; as for muster daemon"},
		},
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			if n := c.Int("nodes"); n < 1 || n > maxDevNodes {
				return usagef("--nodes %d: want 1 to %d", n, maxDevNodes)
			}
			if n := c.Int("cpus"); n < 0 {
				return usagef("--cpus %d: want a number of CPUs; 0 for all", n)
			}
			args, err := devArgs(c)
			if err != nil {
				return err
			}
			return v.dev(c.Context, c.Int("nodes"), args)
		},
	}
}

// devArgs returns the flags of each daemon. What a daemon would refuse is refused before the first one starts.
func devArgs(c *cli.Context) ([]string, error) {
	args := []string{"--cpus", strconv.Itoa(c.Int("cpus")), "--gpus", c.String("gpus")}
	if c.Bool("cgroups-off") {
		args = append(args, "--cgroups-off")
	}
	cfg := defaultConfig()
	if c.IsSet("docker-host") {
		cfg.DockerHost = c.String("docker-host")
		args = append(args, "--docker-host="+cfg.DockerHost)
	}
	cfg.DockerMounts = c.StringSlice("docker-mount")
	for _, dir := range cfg.DockerMounts {
		args = append(args, "--docker-mount="+dir)
	}
	if err := cfg.CheckDocker(); err != nil {
		return nil, usagef("dev: %w", err)
	}
	return args, nil
}

// devCluster holds the daemons of one `muster dev`.
type devCluster struct {
	streams
	dir     string
	program string
	token   string // of the invitation; empty: there is none yet
	started []*devDaemon
	waits   sync.WaitGroup
}

// devDaemon is a daemon of the cluster. It reports readiness as to systemd, and writes its log itself.
type devDaemon struct {
	cmd    *exec.Cmd
	notify *net.UnixConn
	ready  chan struct{} // closed when the daemon is ready
	ended  chan struct{} // closed when the daemon has ended
}

// dev runs daemons with these flags until ctx ends.
func (v hostVerbs) dev(ctx context.Context, nodes int, args []string) (err error) {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("own program: %w", err)
	}
	dir, err := os.MkdirTemp("", "muster-dev-")
	if err != nil {
		return err
	}
	d := &devCluster{streams: v.streams, dir: dir, program: program}
	defer func() { err = errors.Join(err, d.end()) }()
	var join []string
	for i := range nodes {
		name := fmt.Sprintf("dev%d", i+1)
		if err := d.start(ctx, name, slices.Concat(args, join)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if i == 0 && nodes > 1 {
			if join, err = d.invitation(ctx, name, nodes-1); err != nil {
				return err
			}
		}
		fmt.Fprintf(v.err, "%s is ready: %s\n", name, d.socket(name))
	}
	fmt.Fprintf(v.out, "export MUSTER_SOCKET=%s\n", d.socket("dev1"))
	fmt.Fprintln(v.err, "the cluster runs until Ctrl-C; use the line above in another terminal, then `muster nodes`")
	<-ctx.Done()
	return nil
}

func (d *devCluster) socket(name string) string { return filepath.Join(d.dir, name+".sock") }

// start runs one daemon with further flags and waits until it is ready.
func (d *devCluster) start(ctx context.Context, name string, more []string) error {
	args := append([]string{
		"daemon", "--config", os.DevNull, "--name", name, "--data-dir", filepath.Join(d.dir, name), "--socket", d.socket(name), "--allow-root",
		"--listen", "/ip4/127.0.0.1/tcp/0", "--listen", "/ip4/127.0.0.1/udp/0/quic-v1",
	}, more...)
	cmd := exec.Command(d.program, args...) //nolint:noctx // end stops it
	// those variables are meant for other daemons
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MUSTER_") })
	if d.token != "" {
		cmd.Env = append(cmd.Env, tokenVariable+"="+d.token)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	at := filepath.Join(d.dir, name+".log")
	p, err := d.launch(cmd, at, filepath.Join(d.dir, name+".notify"))
	if err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	late := time.NewTimer(devStart)
	defer late.Stop()
	select {
	case <-p.ready:
		return nil
	case <-p.ended:
		log, _ := os.ReadFile(at)
		return fmt.Errorf("%s did not start: %s", name, tail(bytes.TrimSpace(log), 1))
	case <-late.C:
		return fmt.Errorf("%s is not ready after %s; its log is %s", name, devStart, at)
	case <-ctx.Done():
		return nil
	}
}

// launch starts a daemon that writes its log to a file and reports its state to a socket.
func (d *devCluster) launch(cmd *exec.Cmd, log, socket string) (*devDaemon, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close() // the daemon has its own descriptor
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	cmd.Stderr, cmd.Env = file, append(cmd.Env, "NOTIFY_SOCKET="+socket)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, notify.Close())
	}
	p := &devDaemon{cmd: cmd, notify: notify, ready: make(chan struct{}), ended: make(chan struct{})}
	d.started = append(d.started, p)
	d.waits.Go(p.listen)
	d.waits.Go(func() {
		_ = cmd.Wait()
		close(p.ended)
	})
	return p, nil
}

// listen receives the daemon's reports until its end.
func (p *devDaemon) listen() {
	said, b := false, make([]byte, 4<<10)
	for {
		n, err := p.notify.Read(b)
		if err != nil {
			return
		}
		if !said && bytes.Contains(b[:n], []byte(systemd.SdNotifyReady)) {
			said = true
			close(p.ready)
		}
	}
}

// invitation returns the flags with which the other daemons join the first.
func (d *devCluster) invitation(ctx context.Context, name string, hosts int) ([]string, error) {
	client, err := api.NewClient(api.ClientConfig{Socket: d.socket(name)})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	inv, err := client.Invite(ctx, api.InviteRequest{Uses: hosts})
	if err != nil {
		return nil, err
	}
	var flags []string
	for _, b := range inv.Bootstrap {
		flags = append(flags, "--bootstrap", b)
	}
	d.token = inv.Token
	return flags, nil
}

// end stops the daemons, then their runners with all tasks, and removes all files.
func (d *devCluster) end() error {
	for _, p := range d.started {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range d.started {
		kill := time.AfterFunc(devStopGrace, func() { _ = p.cmd.Process.Kill() })
		<-p.ended
		kill.Stop()
		_ = p.notify.Close()
	}
	d.waits.Wait()
	endRunners(d.dir)
	return os.RemoveAll(d.dir)
}

// endRunners sends SIGTERM to each runner whose command line names the directory. A runner then ends its tasks before
// it exits.
func endRunners(dir string) {
	all, err := process.Processes()
	if err != nil {
		return
	}
	for _, p := range all {
		line, err := p.CmdlineSlice()
		if err != nil || !isRunner(line) || !strings.Contains(strings.Join(line, " "), dir) {
			continue
		}
		if err := p.SendSignal(syscall.SIGTERM); err == nil {
			waitGone(p)
		}
	}
}

// isRunner recognizes a runner by its command line: the separate program, or the hidden verb.
func isRunner(line []string) bool {
	return len(line) > 1 && (line[1] == "runner" || line[1] == "container-runner" || strings.HasPrefix(filepath.Base(line[0]), daemon.RunnerPrefix))
}

// waitGone waits for a runner that was told to stop, at most for the time that tasks have between SIGTERM and
// SIGKILL.
func waitGone(p *process.Process) {
	fd, err := unix.PidfdOpen(int(p.Pid), 0)
	if err != nil {
		return
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written
	// A signal ends a poll early.
	for end := time.Now().Add(devStopGrace); ; {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, max(0, int(time.Until(end).Milliseconds()))); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
