package rogue

// A hostile worker: it takes every task, runs nothing, and answers requests for files as it likes.

import (
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/peerhttp"
	"github.com/musterhq/muster/p2p/wirepb"
)

// Serve answers the HTTP requests of other daemons until the test ends.
func (p *Peer) Serve(h http.Handler) {
	p.t.Helper()
	l, err := peerhttp.Listen(peerhttp.DefaultConfig(), p.Host.Libp2p(), slog.New(slog.DiscardHandler))
	if err != nil {
		p.t.Fatal(err)
	}
	server := http.Server{Handler: h, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(l) }() // it returns when the server is closed
	p.t.Cleanup(func() { _ = server.Close() })
}

// Work offers a host of four CPUs to another daemon. It takes each task that it is offered, and says that the task has run
// and succeeded. It goes on until the session ends.
func (p *Peer) Work(to job.Peer, name string) {
	p.t.Helper()
	s := p.Session(to)
	const memory = 8 << 30
	hello := &wirepb.WorkerHello{
		Profile: &wirepb.Profile{
			Peer: string(p.ID()), Name: name, Version: "0", Store: name, Cpus: 4, Memory: memory, Disk: memory,
			Drivers: []string{"exec"}, Worker: true, Arch: "amd64", Os: "linux",
		},
		Free: &wirepb.Free{Cpus: 4, Memory: memory},
	}
	if err := s.Send(hello); err != nil {
		p.t.Fatal(err)
	}
	go work(s)
}

func work(s *Session) {
	for {
		f, err := s.Next(time.Hour)
		if err != nil {
			return
		}
		var answer []proto.Message
		switch {
		case f.GetOffer() != nil:
			o := f.GetOffer()
			answer = append(answer, &wirepb.Commit{Offer: o.GetId(), Attempt: o.GetAttempt(), Group: o.GetGroup(), Session: 1})
		case f.GetStart() != nil:
			of := f.GetStart()
			event := func(n uint64, state string, exit *wirepb.Exit) proto.Message {
				return &wirepb.Event{Attempt: of.GetAttempt(), Group: of.GetGroup(), N: n, State: state, Pid: 1, Exit: exit}
			}
			now := time.Now().UnixNano()
			answer = append(answer, event(1, "STARTING", nil), event(2, "RUNNING", nil),
				event(3, "SUCCEEDED", &wirepb.Exit{State: "SUCCEEDED", Started: true, BeganNs: now, EndedNs: now}))
		}
		if s.Send(answer...) != nil {
			return
		}
	}
}
