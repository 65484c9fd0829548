package joint

// What a host is told about the gangs whose members it runs.

import (
	"fmt"
	"strings"

	"github.com/musterhq/muster/worker"
)

// ends returns the addresses of the host and of the owner. A daemon has none towards itself.
func (l *link) ends() (host, owner string) {
	if l.local {
		return "", ""
	}
	if local := l.o.local; local != nil {
		return l.h.address(), local.address()
	}
	return l.h.address(), fmt.Sprintf("10.1.%d.%d", l.o.index/250, l.o.index%250+1)
}

func (h *host) address() string { return fmt.Sprintf("10.0.%d.%d", h.index/250, h.index%250+1) }

// checkGang checks what a member of a gang finds in its environment: it is on the host that its rank stands for, and no
// other gang that meets on this host has its port (P1).
func (w *world) checkGang(p *proc) {
	rank, port, ips := variable(p.task, "NODE_RANK"), variable(p.task, "MASTER_PORT"), strings.Fields(variable(p.task, "MUSTER_NODE_IPS"))
	if port == "" {
		return
	}
	n := 0
	if _, err := fmt.Sscan(rank, &n); err != nil || n >= len(ips) || ips[n] != p.h.address() {
		w.fail("%s runs at %s with rank %q, and the hosts are %v", p.attempt, p.h.address(), rank, ips)
	}
	if n != 0 {
		return
	}
	for _, other := range p.h.procs {
		if !other.over && other.attempt != p.attempt && variable(other.task, "NODE_RANK") == "0" && variable(other.task, "MASTER_PORT") == port {
			w.fail("P1: %s and %s at %s have port %s", p.attempt, other.attempt, p.h.peer, port)
		}
	}
}

// variable returns a variable of a task's environment.
func variable(t worker.Task, name string) string {
	for _, word := range t.Env {
		if v, found := strings.CutPrefix(word, name+"="); found {
			return v
		}
	}
	return ""
}
