//go:build e2e

package e2e

// Strangers who send bytes into a daemon without a hello, and what that costs it.

import (
	"context"
	"fmt"
	"io"
	"net"
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
	manet "github.com/multiformats/go-multiaddr/net"
)

const (
	floodStreams = 256
	floodBytes   = 256 << 10 // on each stream
	floodTime    = 8 * time.Second
	mostGrowth   = 50 << 20
	mostJoin     = 3 * time.Second
	halfOpen     = 4000
)

// floods is the number of connections that send. QUIC bounds what a stranger can have in memory by the windows of its
// connections, 768 KiB each before anything is read, so it takes more of them.
var floods = []struct {
	transport string
	conns     int
}{{"tcp", 40}, {"quic", 160}}

var poured = make([]byte, floodBytes)

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

// pour connects repeatedly, and writes without a hello on as many streams as it gets.
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
		conn, err := c.Network().DialPeer(ctx, to.ID)
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
			data := poured
			if i == 0 {
				data = []byte{19} // the length of a name that never arrives: the daemon waits for it, and reads no other stream
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

// TestFloodBeforeHelloCostsLittle sends for some seconds. The daemon's memory hardly grows, and an honest host joins in
// that time.
func TestFloodBeforeHelloCostsLittle(t *testing.T) {
	for _, flood := range floods {
		t.Run(flood.transport, func(t *testing.T) {
			amy := newDaemon(t, "amy", "--gpus", "none").start()
			ben := newDaemon(t, "ben", "--gpus", "none").start()
			inv := amy.invite().over(flood.transport)
			to, err := peer.AddrInfoFromString(inv.Bootstrap[0])
			if err != nil {
				t.Fatal(err)
			}
			before := amy.resident()
			ctx, cancel := context.WithTimeout(t.Context(), floodTime)
			defer cancel()
			var dialled, sent atomic.Int64
			var wg sync.WaitGroup
			for range flood.conns {
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
				ben.ok(append(append([]string{"join"}, inv.Bootstrap...), "--insecure-token", "--token", inv.Token)...)
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
				t.Errorf("memory grew by %d MB, want at most %d", (most-before)>>20, mostGrowth>>20)
			}
			if join > mostJoin {
				t.Errorf("an honest host joined after %s, want at most %v", join, mostJoin)
			}
			amy.untilNodes(2)
		})
	}
}

// TestHalfOpenConnectionsKeepNobodyOut has strangers hold 4,000 TCP connections that send nothing, and open them again
// when the daemon closes them. An honest host joins in that time, and takes part.
func TestHalfOpenConnectionsKeepNobodyOut(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none").start()
	ben := newDaemon(t, "ben", "--gpus", "none").start()
	inv := amy.invite().over("tcp")
	to, err := peer.AddrInfoFromString(inv.Bootstrap[0])
	if err != nil {
		t.Fatal(err)
	}
	_, at, err := manet.DialArgs(to.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	before := amy.resident()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var begun atomic.Int64
	var wg sync.WaitGroup
	for range halfOpen {
		wg.Go(func() { sayNothing(ctx, at, &begun) })
	}
	for end := time.Now().Add(patience); begun.Load() < halfOpen && time.Now().Before(end); {
		<-time.NewTimer(10 * time.Millisecond).C
	}
	from, begin := ben.logged(), time.Now()
	ben.ok(append(append([]string{"join"}, inv.Bootstrap...), "--insecure-token", "--token", inv.Token)...)
	join := time.Since(begin)
	ben.waitLog(from, "ready") // it starts again as a member
	ben.untilNodes(2)
	seen, most := time.Since(begin), amy.resident()
	stop()
	wg.Wait()
	t.Logf("%d begun; memory %d MB before, %d MB then; joined in %s, connected after %s",
		begun.Load(), before>>20, most>>20, join.Round(time.Millisecond), seen.Round(time.Millisecond))
	if seen > mostJoin {
		t.Errorf("an honest host joined in %s, and was connected after %s, want at most %s", join, seen, mostJoin)
	}
	if most-before > mostGrowth {
		t.Errorf("memory grew by %d MB, want at most %d", (most-before)>>20, mostGrowth>>20)
	}
}

// sayNothing holds a connection without sending anything, and opens the next one a while after the daemon has closed
// it.
func sayNothing(ctx context.Context, at string, begun *atomic.Int64) {
	dialer := net.Dialer{Timeout: time.Second}
	for ctx.Err() == nil {
		c, err := dialer.DialContext(ctx, "tcp", at)
		if err == nil {
			begun.Add(1)
			end := context.AfterFunc(ctx, func() { c.Close() })
			_, _ = io.Copy(io.Discard, c)
			end()
			c.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.NewTimer(4 * time.Second).C:
		}
	}
}
