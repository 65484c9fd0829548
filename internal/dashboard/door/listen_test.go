package door

// Tests on real sockets, for behaviour of the kernel.

import (
	"net"
	"strings"
	"testing"
)

// Only loopback reaches the door. No other program can have its port at the other address.
func TestDoorListensOnLoopbackOnly(t *testing.T) {
	lists, err := listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lists {
		defer l.Close()
		ip := l.Addr().(*net.TCPAddr).IP
		if !ip.IsLoopback() || portOf(l) != portOf(lists[0]) {
			t.Errorf("it listens on %s, want loopback and one port", l.Addr())
		}
		if other, err := net.Listen("tcp", l.Addr().String()); err == nil {
			other.Close()
			t.Errorf("another listener got %s, want an error", l.Addr())
		}
	}
	if _, err := listen(t.Context(), portOf(lists[0])); err == nil || !strings.Contains(err.Error(), "another program has that port; choose another --port") {
		t.Errorf("a port in use: got %v, want an error with the option", err)
	}
	if len(lists) == 1 {
		t.Skip("this host has no IPv6")
	}
	lists[0].Close()
	if _, err := listen(t.Context(), portOf(lists[1])); err == nil || !strings.Contains(err.Error(), "[::1]") {
		t.Errorf("a port in use at [::1]: got %v, want an error with the address", err)
	}
}
