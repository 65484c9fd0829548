package daemon

// Doctor: problems of this host that could keep muster from working, and what to do about them.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/gpu/nvml"
	"github.com/musterhq/muster/internal/hostinfo"
	"github.com/musterhq/muster/p2p"
)

const (
	wantFiles   = 65536           // descriptors: two for each of several thousand connections, and the tasks' output
	wantDisk    = 1 << 30         // free bytes for the journal and the output of tasks
	dialWait    = 3 * time.Second // bounds the dial of a bootstrap address
	maxClockPPM = 10_000          // leases need clock rates that are correct within 1 %
)

// doctor examines the host and its GPUs, which must have been listed.
func doctor(ctx context.Context, cfg Config, gpus *devices) []api.Fact {
	facts := []api.Fact{gpuFact(cfg, gpus), isolationFact(cfg), fencingFact(cfg), tmpFact(cfg), scratchFact(cfg), serviceFact(), dockerFact(ctx, cfg), httpFact(cfg)}
	facts = append(facts, portFacts(ctx, cfg)...)
	facts = append(facts, bootstrapFacts(ctx, cfg)...)
	return append(facts, fileFact(), diskFact(ctx, cfg), clockFact())
}

// DoctorAlone examines a host without a daemon. It lists the GPUs itself.
func DoctorAlone(ctx context.Context, cfg Config) ([]api.Fact, error) {
	d, err := newDevices(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer d.driver.Close() //nolint:errcheck // the process ends soon
	d.list(ctx, doctorWait)
	return doctor(ctx, cfg, d), nil
}

func gpuFact(cfg Config, gpus *devices) api.Fact {
	devices, err := gpus.listed()
	missing := gpus.missing()
	f := api.Fact{Name: "gpus", State: api.FactOK}
	switch {
	case cfg.GPUs == "none":
		f.State, f.Detail = api.FactSkip, "disabled (gpus: none)"
	case err != nil:
		f.State, f.Detail = api.FactFail, fmt.Sprintf("the driver does not work: %v", err)
		f.Advice = nvml.AdviceBroken
	case missing != nil:
		f.State, f.Detail, f.Advice = api.FactFail, missing.Error(), "change the setting, or bring the GPU back"
	case len(devices) == 0:
		f.State, f.Detail = api.FactWarn, "no GPU found"
		f.Advice = nvml.AdviceMissing
	case devices[0].Simulated:
		f.State, f.Detail = api.FactWarn, fmt.Sprintf("%d simulated GPUs: tasks get no hardware", len(devices))
	default:
		f.Detail = fmt.Sprintf("%d × %s, driver %s", len(devices), devices[0].Model, devices[0].Driver)
		if gpus.gone.Load() {
			f.Detail += "; let go while this host is drained"
		}
	}
	return f
}

// portFacts tries to listen on the addresses of the daemon. An address that a running daemon uses is fine.
func portFacts(ctx context.Context, cfg Config) []api.Fact {
	var facts []api.Fact
	listen := cfg.Listen
	if len(listen) == 0 {
		listen = []string{fmt.Sprintf("/ip4/0.0.0.0/tcp/%d", p2p.DefaultPort), fmt.Sprintf("/ip4/0.0.0.0/udp/%d/quic-v1", p2p.DefaultPort)}
	}
	for _, text := range listen {
		f := api.Fact{Name: "port", State: api.FactOK, Detail: text + " is free"}
		if strings.Contains(text+"/", "/0/") {
			continue // port 0 means any free port
		}
		err := tryListen(ctx, text)
		switch {
		case err == nil:
		case errors.Is(err, unix.EADDRINUSE):
			f.State, f.Detail = api.FactOK, text+" is in use"
			if !answersOn(ctx, cfg.Socket) {
				f.State, f.Advice = api.FactFail, "another program uses it: stop that program, or choose another port with --listen"
			} else {
				f.Detail += " by the running daemon"
			}
		case errors.Is(err, unix.EADDRNOTAVAIL), errors.Is(err, unix.EAFNOSUPPORT):
			f.State, f.Detail = api.FactSkip, text+": no such address on this host"
		default:
			f.State, f.Detail, f.Advice = api.FactFail, fmt.Sprintf("%s: %v", text, err), "choose another address with --listen"
		}
		facts = append(facts, f)
	}
	return facts
}

func tryListen(ctx context.Context, text string) error {
	addr, err := ma.NewMultiaddr(text)
	if err != nil {
		return err
	}
	addr, _ = ma.SplitFunc(addr, func(c ma.Component) bool { return c.Protocol().Code == ma.P_QUIC_V1 })
	network, host, err := manet.DialArgs(addr)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	if strings.HasPrefix(network, "udp") {
		c, err := lc.ListenPacket(ctx, network, host)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	l, err := lc.Listen(ctx, network, host)
	if err == nil {
		l.Close()
	}
	return err
}

func answersOn(ctx context.Context, socket string) bool {
	d := net.Dialer{Timeout: dialWait}
	c, err := d.DialContext(ctx, "unix", socket)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// bootstrapFacts opens a TCP connection to each bootstrap address. It skips QUIC addresses, which do not answer a plain
// UDP packet.
func bootstrapFacts(ctx context.Context, cfg Config) []api.Fact {
	var facts []api.Fact
	for _, text := range cfg.Bootstrap {
		f := api.Fact{Name: "bootstrap", State: api.FactOK, Detail: text + " answers"}
		addr, err := ma.NewMultiaddr(text)
		if err == nil {
			addr, _ = ma.SplitFunc(addr, func(c ma.Component) bool { return c.Protocol().Code == ma.P_P2P })
			if _, quic := addr.ValueForProtocol(ma.P_QUIC_V1); quic == nil {
				f.State, f.Detail = api.FactSkip, text+": only the daemon can check a QUIC address"
				facts = append(facts, f)
				continue
			}
			d := manet.Dialer{Dialer: net.Dialer{Timeout: dialWait}}
			var c manet.Conn
			if c, err = d.DialContext(ctx, addr); err == nil {
				_ = c.Close()
			}
		}
		if err != nil {
			f.State, f.Detail = api.FactFail, fmt.Sprintf("%s: %v", text, err)
			f.Advice = "start the daemon there, open the port in the firewall, or use another address that `muster invite` prints"
		}
		facts = append(facts, f)
	}
	return facts
}

func fileFact() api.Fact {
	f := api.Fact{Name: "open files", State: api.FactOK}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		f.State, f.Detail = api.FactWarn, err.Error()
		return f
	}
	f.Detail = fmt.Sprintf("at most %d", lim.Max)
	if lim.Max < wantFiles {
		f.State, f.Advice = api.FactWarn, fmt.Sprintf("raise the limit to %d (LimitNOFILE= of the service)", wantFiles)
	}
	return f
}

func diskFact(ctx context.Context, cfg Config) api.Fact {
	f := api.Fact{Name: "disk", State: api.FactOK}
	dir := cfg.DataDir
	for dir != "/" && dir != "." {
		if _, err := os.Stat(dir); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	free, err := hostinfo.DiskFree(ctx, dir)
	if err != nil {
		f.State, f.Detail = api.FactFail, err.Error()
		return f
	}
	f.Detail = fmt.Sprintf("%s free for %s", free, cfg.DataDir)
	if free < wantDisk {
		f.State, f.Advice = api.FactWarn, "free some space, or move --data-dir to a larger disk"
	}
	return f
}

// clockFact reads by how much the kernel corrects the rate of the clock. The rates of all hosts must agree within 1 %,
// because leases depend on that.
func clockFact() api.Fact {
	f := api.Fact{Name: "clock", State: api.FactOK}
	var tx unix.Timex
	state, err := unix.Adjtimex(&tx)
	if err != nil {
		f.State, f.Detail = api.FactSkip, err.Error()
		return f
	}
	ppm := float64(tx.Freq) / 65536
	f.Detail = fmt.Sprintf("rate corrected by %.1f ppm", ppm)
	if state == unix.TIME_ERROR {
		f.Detail += ", not synchronised"
		f.Advice = "run chrony or systemd-timesyncd; times in listings come from this clock"
	}
	if ppm > maxClockPPM || ppm < -maxClockPPM {
		f.State, f.Advice = api.FactFail, "this clock is too fast or too slow for leases: use another clock source"
	}
	return f
}
