package hostinfo

// Ports of this host at which the members of a gang can meet.

import (
	"net"
	"os"
	"strconv"
	"strings"
)

const (
	ephemeral  = "/proc/sys/net/ipv4/ip_local_port_range"
	mostPorts  = 10000
	privileged = 1023
	lastPort   = 1<<16 - 1
)

// Ports returns a range of ports that the kernel does not give to connections by itself: right below that range if there
// is room, otherwise above it.
func Ports() (first, last int) {
	text, _ := os.ReadFile(ephemeral) // without it, the range is that of Linux
	return portsBeside(string(text))
}

// portsBeside returns the ports beside the ephemeral ones, which are given as "32768\t60999". They end below 30000,
// where Kubernetes has its services by default, if the ephemeral ones allow it.
func portsBeside(text string) (first, last int) {
	low, high := 32768, 60999
	if f := strings.Fields(text); len(f) == 2 {
		a, errA := strconv.Atoi(f[0])
		b, errB := strconv.Atoi(f[1])
		if errA == nil && errB == nil && 0 < a && a <= b && b <= lastPort {
			low, high = a, b
		}
	}
	last = min(low-1, 29999)
	first = max(privileged+1, last-mostPorts+1)
	if above := lastPort - high; last-first < 1000 && above > max(0, last-first) {
		return high + 1, min(high+mostPorts, lastPort)
	}
	if last < first { // all ports are ephemeral
		return 20000, 29999
	}
	return first, last
}

// PortFree reports whether no program on this host listens on a TCP port. It binds the port for a moment.
func PortFree(port int) bool {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
	if err != nil {
		return false
	}
	return l.Close() == nil
}
