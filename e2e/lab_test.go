//go:build e2e

package e2e

// Several hosts on one machine: each has a name and an address of its own, in namespaces, and all are on one bridge.

import (
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"

	"github.com/musterhq/muster/internal/testkit/needtest"
)

// lab is a network of hosts. The bridge has a namespace too, so that the machine's own network is not changed.
type lab struct {
	t    *testing.T
	name string // of the bridge's namespace, and the beginning of the others'
}

// labs counts the labs of this run, because the names of namespaces are global on the machine.
var labs atomic.Int32

// newLab makes a network of n hosts, with the addresses 10.77.0.1 and so on.
func newLab(t *testing.T, n int) *lab {
	t.Helper()
	needtest.Hosts(t)
	l := &lab{t, fmt.Sprintf("muster-%d-%d", os.Getpid(), labs.Add(1))}
	l.ip("netns", "add", l.name)
	t.Cleanup(func() { l.ip("netns", "del", l.name) })
	l.ip("-n", l.name, "link", "add", "name", "lan", "type", "bridge")
	l.ip("-n", l.name, "link", "set", "lan", "up")
	for i := range n {
		host := l.host(i)
		l.ip("netns", "add", host)
		t.Cleanup(func() { l.ip("netns", "del", host) })
		l.ip("-n", host, "link", "add", "name", "eth0", "type", "veth", "peer", "name", l.plug(i), "netns", l.name)
		l.ip("-n", l.name, "link", "set", l.plug(i), "master", "lan", "up")
		l.ip("-n", host, "addr", "add", l.address(i)+"/24", "dev", "eth0")
		l.ip("-n", host, "link", "set", "eth0", "up")
		l.ip("-n", host, "link", "set", "lo", "up")
	}
	return l
}

func (l *lab) host(i int) string    { return fmt.Sprintf("%s-%d", l.name, i) }
func (l *lab) plug(i int) string    { return fmt.Sprintf("plug%d", i) }
func (l *lab) address(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }

func (l *lab) ip(args ...string) {
	l.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %q: %v: %s", args, err, out)
	}
}

// unplug takes a host off the network.
func (l *lab) unplug(i int) {
	l.t.Helper()
	l.ip("-n", l.name, "link", "set", l.plug(i), "down")
}

// plugIn puts a host back on the network.
func (l *lab) plugIn(i int) {
	l.t.Helper()
	l.ip("-n", l.name, "link", "set", l.plug(i), "up")
}

// daemons starts a daemon on each of n hosts.
func (l *lab) daemons(n int, args ...string) []*daemon {
	l.t.Helper()
	return l.prepared(n, func(*daemon) {}, args...)
}

// onSmallDisks starts a daemon on each of n hosts. Each has a small file system of its own for its data.
func (l *lab) onSmallDisks(n int, args ...string) []*daemon {
	l.t.Helper()
	return l.prepared(n, func(d *daemon) { mountSmall(l.t, d.dir+"/data", "200m,nr_inodes=4000") }, args...)
}

// prepared starts a daemon on each of n hosts, each after a preparation.
func (l *lab) prepared(n int, prepare func(*daemon), args ...string) []*daemon {
	l.t.Helper()
	var all []*daemon
	var joins []string
	for i := range n {
		name := fmt.Sprintf("n%d", i+1)
		within := []string{"nsenter", "--net=/run/netns/" + l.host(i), "unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, name}
		d := newDaemonAt(l.t, within, l.address(i), name, args...)
		prepare(d)
		d.start(joins...)
		if all = append(all, d); i == 0 {
			joins = d.invite("--uses", fmt.Sprint(n)).flags()
		}
	}
	for _, d := range all {
		d.untilNodes(n)
	}
	return all
}
