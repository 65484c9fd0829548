package supervisor

// The runners: which there are, and the connection to each.

import (
	"bufio"
	"log/slog"
	"net"
	"time"

	"github.com/musterhq/muster/worker/runner/guard"
	"github.com/musterhq/muster/worker/runner/protocol"
)

const (
	// maxQueue bounds the requests that a runner has not read. A runner that falls further behind is disconnected,
	// and gets everything again when it reconnects.
	maxQueue = 8192
	// respawnFirst and respawnMost bound the pause before another runner is started after one that died before it was
	// reached.
	respawnFirst = 100 * time.Millisecond
	respawnMost  = 5 * time.Second
)

// role is what a runner runs: processes or containers. Containers have a runner of their own, which is a larger
// program, because it contains the Docker client.
type role bool

const (
	processes  role = false
	containers role = true
)

// link is one runner as this daemon knows it.
type link struct {
	role    role
	conn    net.Conn // nil: not connected
	queue   chan []byte
	settled bool // Adopt need not wait for it: it was reached, or is new
	// welcomed says that it was reached once. Then version is known.
	welcomed  bool
	version   string
	isolation string       // how its tasks are isolated, for people
	cgroup    string       // parent of its tasks' control groups; empty: they have none
	table     *guard.Table // of the leases of its tasks; nil: it has none
	own       bool         // this daemon started it; it may have another version if the binary was upgraded
}

func (k *link) cut() {
	if k.conn != nil {
		close(k.queue)
		k.conn = nil
	}
}

// runners are the runners of this host as this daemon knows them, dead ones left out.
type runners struct {
	version  string                                   // of this daemon
	launch   func(n int, r role, pause time.Duration) // starts a runner in the background
	run      func(func())                             // runs a function in the background
	log      *slog.Logger
	links    map[int]*link
	spawning map[role]int // generation that is being started; 0: none
	newest   int          // highest generation that ever existed
	failures map[role]int // consecutive runners that died before they could be reached
}

func newRunners(version string, log *slog.Logger) *runners {
	return &runners{version: version, log: log, links: map[int]*link{}, spawning: map[role]int{}, failures: map[role]int{}}
}

// settled reports whether Adopt need not wait for a runner any more.
func (rs *runners) settled() bool {
	for _, k := range rs.links {
		if !k.settled {
			return false
		}
	}
	return true
}

// spawn starts a runner of this version, after a pause if earlier ones died before they were reached.
func (rs *runners) spawn(r role) {
	rs.newest++
	n := rs.newest
	rs.spawning[r] = n
	rs.links[n] = &link{role: r, settled: true, own: true}
	pause := time.Duration(0)
	if failures := rs.failures[r]; failures > 0 {
		pause = min(respawnFirst<<min(failures-1, 10), respawnMost)
	}
	rs.launch(n, r, pause)
}

// current returns the runner for new tasks, or 0: the newest one that has this daemon's version or was started by it.
func (rs *runners) current(r role) int {
	best := 0
	for n, k := range rs.links {
		if k.welcomed && k.role == r && (k.own || k.version == rs.version) {
			best = max(best, n)
		}
	}
	return best
}

// welcomed records that a runner is connected.
func (rs *runners) welcomed(n int, conn net.Conn, info protocol.Info) *link {
	k := rs.links[n]
	k.cut()
	k.conn, k.queue = conn, make(chan []byte, maxQueue)
	if k.table == nil && info.Leases != 0 {
		var err error
		if k.table, err = guard.Open(info); err != nil {
			rs.log.Warn("table of leases not opened: a runner that stands still reads no renewal", "error", err)
		}
	}
	k.settled, k.welcomed, k.version, k.isolation, k.cgroup = true, true, info.Version, info.Isolation, info.Cgroup
	queue := k.queue
	rs.run(func() { write(conn, queue) })
	if k.role = role(info.Containers); rs.spawning[k.role] == n {
		rs.spawning[k.role], rs.failures[k.role] = 0, 0
	}
	return k
}

// drainOthers asks the runners of a role, except the current one, to end when their last task has ended.
func (rs *runners) drainOthers(cur int, r role) {
	for m, other := range rs.links {
		if cur != 0 && m != cur && other.role == r {
			rs.request(other, protocol.Request{Drain: true})
		}
	}
}

// disconnected records that a connection broke.
func (rs *runners) disconnected(n int, conn net.Conn) {
	if k := rs.links[n]; k != nil && k.conn == conn {
		k.cut()
	}
}

// gone forgets a runner that is dead.
func (rs *runners) gone(n int) {
	if k := rs.links[n]; k != nil {
		k.cut()
		if k.table != nil {
			k.table.Close()
		}
	}
	delete(rs.links, n)
	for _, r := range []role{processes, containers} {
		if rs.spawning[r] == n {
			rs.spawning[r] = 0
			rs.failures[r]++
		}
	}
}

// request sends a request if the runner is connected. Requests that still matter are sent again after its next
// Welcome.
func (rs *runners) request(k *link, m protocol.Request) {
	if k == nil || k.conn == nil {
		return
	}
	frame, err := protocol.Frame(m)
	if err != nil {
		rs.log.Error("request not sent to runner", "error", err)
		return
	}
	rs.send(k, frame)
}

func (rs *runners) send(k *link, frame []byte) {
	select {
	case k.queue <- frame:
	default:
		rs.log.Warn("runner does not read, connection cut")
		k.cut()
	}
}

// write sends queued requests until the queue is closed, several in one system call if they are waiting.
func write(conn net.Conn, queue <-chan []byte) {
	defer conn.Close() // the reader sees the broken connection
	w := bufio.NewWriter(conn)
	for frame := range queue {
		_, err := w.Write(frame)
		if err == nil && len(queue) == 0 {
			err = w.Flush()
		}
		if err != nil {
			_ = conn.Close()  // the reader sees that and has the queue closed
			for range queue { // until then
			}
			return
		}
	}
}
