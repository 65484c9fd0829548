package rogue

// A hostile host that is given tasks, and what it answers about them.

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/peerhttp"
	"github.com/musterhq/muster/p2p/wirepb"
)

// known is a libp2p host that serves members only.
type known struct {
	host.Host
	members *p2p.Host
}

func (k known) SetStreamHandler(id protocol.ID, serve network.StreamHandler) {
	_ = k.members.Handle(id, serve)
}

// Serve answers the HTTP requests of other daemons until the test ends.
func (p *Peer) Serve(h http.Handler) {
	p.t.Helper()
	l, err := peerhttp.Listen(peerhttp.DefaultConfig(), known{p.Host.Libp2p(), p.Host}, slog.New(slog.DiscardHandler))
	if err != nil {
		p.t.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: patience}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	p.t.Cleanup(func() {
		server.Close() //nolint:errcheck // the test is over
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			p.t.Error(err)
		}
	})
}

// Profile is that of a host with some CPUs and without GPUs.
func (p *Peer) Profile(name string, cpus int) *wirepb.Profile {
	return &wirepb.Profile{
		Peer: string(p.ID()), Name: name, Version: "rogue", Store: "rogue", Cpus: int64(cpus), Memory: 64 << 30, Disk: 64 << 30,
		Drivers: []string{"exec"}, Worker: true, Arch: "amd64", Os: "linux",
	}
}

// Work takes the tasks that are offered in a session, and says at once of each that it has run and succeeded. It sends the
// IDs of the jobs of those that were started, and returns when the session ends.
func (s *Session) Work(profile *wirepb.Profile, started chan<- string) error {
	free := &wirepb.Free{Cpus: profile.GetCpus(), Memory: profile.GetMemory()}
	if err := s.Send(&wirepb.WorkerHello{Profile: profile, Free: free}, &wirepb.Availability{Seq: 1, Free: free}); err != nil {
		return err
	}
	for {
		f, err := s.Next(patience)
		if err != nil {
			return err
		}
		switch {
		case f.GetOffer() != nil:
			o := f.GetOffer()
			err = s.Send(&wirepb.Commit{Offer: o.GetId(), Attempt: o.GetAttempt(), Group: o.GetGroup(), Session: 1})
		case f.GetStart() != nil:
			m := f.GetStart()
			began := time.Now().UnixNano()
			err = s.Send(
				&wirepb.Event{Attempt: m.GetAttempt(), Group: m.GetGroup(), N: 1, State: string(job.Running), Pid: 4711, BeganNs: began},
				&wirepb.Event{Attempt: m.GetAttempt(), Group: m.GetGroup(), N: 2, State: string(job.Succeeded), Exit: &wirepb.Exit{
					State: string(job.Succeeded), Started: true, BeganNs: began, EndedNs: began + 1,
				}},
			)
			started <- m.GetAttempt().GetJob()
		}
		if err != nil {
			return err
		}
	}
}
