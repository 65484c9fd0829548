//go:build e2e

package e2e

// Strangers who pour bytes into a daemon without a hello, and what that costs it.

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

const (
	floodConns   = 40
	floodStreams = 256
	floodBytes   = 256 << 10 // on each stream
	floodTime    = 8 * time.Second
	mostGrowth   = 50 << 20
	mostJoin     = 3 * time.Second
)

// resident returns the resident memory of a daemon, in bytes.
func (d *daemon) resident() int {
	d.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				d.t.Fatal(err)
			}
			return kib << 10
		}
	}
	d.t.Fatal("no VmRSS")
	return 0
}

// pour connects again and again, and writes on as many streams as it gets, without a hello.
func pour(ctx context.Context, to peer.AddrInfo, dialled, sent *atomic.Int64) error {
	c, err := libp2p.New(libp2p.NoListenAddrs, libp2p.DisableMetrics(), libp2p.DisableRelay(), libp2p.ResourceManager(&network.NullResourceManager{}))
	if err != nil {
		return err
	}
	defer c.Close()
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for ; ctx.Err() == nil; <-pause.C {
		c.Peerstore().AddAddrs(to.ID, to.Addrs, time.Hour)
		conn, err := c.Network().DialPeer(network.WithForceDirectDial(ctx, "flood"), to.ID)
		if err != nil {
			continue
		}
		dialled.Add(1)
		var wg sync.WaitGroup
		for i := range floodStreams {
			s, err := conn.NewStream(ctx)
			if err != nil {
				break
			}
			data := make([]byte, floodBytes)
			if i == 0 {
				data = []byte{19} // the length of a name that never comes: the daemon waits for it, and reads no other stream
			}
			wg.Go(func() {
				_ = s.SetWriteDeadline(time.Now().Add(6 * time.Second))
				n, _ := s.Write(data)
				sent.Add(int64(n))
			})
		}
		wg.Wait()
		for wait := time.NewTimer(6 * time.Second); !conn.IsClosed() && ctx.Err() == nil; {
			select {
			case <-wait.C:
				conn.Close()
			case <-pause.C:
			}
		}
		conn.Close()
	}
	return nil
}

// TestFloodBeforeHello pours for some seconds. The daemon's memory hardly grows, and an honest host joins meanwhile.
func TestFloodBeforeHello(t *testing.T) {
	for _, transport := range []string{"tcp", "quic"} {
		t.Run(transport, func(t *testing.T) {
			amy := newDaemon(t, "amy", "--gpus", "none").start()
			ben := newDaemon(t, "ben", "--gpus", "none").start()
			inv := amy.invite().over(transport)
			to, err := peer.AddrInfoFromString(inv.Bootstrap[0])
			if err != nil {
				t.Fatal(err)
			}
			before := amy.resident()
			ctx, cancel := context.WithTimeout(t.Context(), floodTime)
			defer cancel()
			var dialled, sent atomic.Int64
			var wg sync.WaitGroup
			for range floodConns {
				wg.Go(func() {
					if err := pour(ctx, *to, &dialled, &sent); err != nil {
						t.Error(err)
					}
				})
			}
			var join time.Duration
			wg.Go(func() {
				<-time.NewTimer(floodTime / 4).C
				begin := time.Now()
				ben.ok(append(append([]string{"join"}, inv.Bootstrap...), "--token", inv.Token)...)
				join = time.Since(begin)
			})
			most := before
			for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				most = max(most, amy.resident())
			}
			wg.Wait()
			t.Logf("%d connections, %d MB sent; memory %d MB before, %d MB at most; joined in %s",
				dialled.Load(), sent.Load()>>20, before>>20, most>>20, join.Round(time.Millisecond))
			if most-before > mostGrowth {
				t.Errorf("memory grew by %d MB", (most-before)>>20)
			}
			if join > mostJoin {
				t.Errorf("an honest host joined in %s", join)
			}
			amy.untilNodes(2)
		})
	}
}
