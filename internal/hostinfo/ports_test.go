package hostinfo

import (
	"net"
	"testing"
)

func TestPortsAreOutsideTheEphemeralRange(t *testing.T) {
	for text, want := range map[string][2]int{
		"32768\t60999\n": {20000, 29999},
		"":               {20000, 29999},
		"9\t1":           {20000, 29999},
		"20000 60999":    {10000, 19999},
		"10000 65000":    {1024, 9999},
		"1024 65000":     {65001, 65535},
		"1024 40000":     {40001, 50000},
		"1 65535":        {20000, 29999},
		"2000 65535":     {1024, 1999},
	} {
		if first, last := portsBeside(text); first != want[0] || last != want[1] {
			t.Errorf("%q: got %d to %d, want %v", text, first, last, want)
		}
	}
	if first, last := Ports(); first < 1 || last < first || last > lastPort {
		t.Errorf("on this host: got %d to %d, want a range of ports", first, last)
	}
}

func TestPortInUseIsNotFree(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", ":0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		if PortFree(port) {
			t.Errorf("port %d is in use at %s and counts as free", port, at)
		}
		if err := l.Close(); err != nil || !PortFree(port) {
			t.Errorf("port %d is not free again: %v", port, err)
		}
	}
}
