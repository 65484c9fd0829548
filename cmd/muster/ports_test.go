package main

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

func TestPortInUseIsAnError(t *testing.T) {
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	at := fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", tcp.Addr().(*net.TCPAddr).Port)
	quic := fmt.Sprintf("/ip4/127.0.0.1/udp/%d/quic-v1", udp.LocalAddr().(*net.UDPAddr).Port)
	for _, taken := range []string{at, quic, strings.Replace(at, "127.0.0.1", "0.0.0.0", 1)} {
		if err := freePorts(t.Context(), []string{"/ip4/127.0.0.1/tcp/0", taken}); err == nil || !strings.Contains(err.Error(), taken) {
			t.Errorf("%s: got %v, want an error with the address", taken, err)
		}
		r := program(t.Context(), "", "daemon", "--config", "/dev/null", "--data-dir", t.TempDir(), "--listen", taken, "--gpus", "none")
		if r.code != exitFailed || !strings.HasPrefix(r.err, "muster: daemon: listen on "+taken+": another program has this port") {
			t.Errorf("a second daemon on %s: exit %d, %q, want 1: another program has this port", taken, r.code, r.err)
		}
	}
	tcp.Close()
	udp.Close()
	if err := freePorts(t.Context(), []string{at, quic, "/ip4/127.0.0.1/udp/0/quic-v1", "/ip6/::1/tcp/0", "/memory/1"}); err != nil {
		t.Errorf("free ports: got %v, want no error", err)
	}
}
