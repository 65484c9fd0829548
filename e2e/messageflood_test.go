//go:build e2e

package e2e

// Members that flood a daemon with messages that they may send. No other member is slowed down, cut off, or loses a
// task.

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/testkit/rogue"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

const (
	mailFor    = 25 * time.Second
	mailGrowth = 150 << 20 // of the daemon's memory, at most
	mailLog    = 64 << 10  // growth of its log at level info, at most: the first lines of some causes, which are not repeated
)

// mailFlood is what a member sends as fast as its peer reads it.
type mailFlood struct {
	name  string
	roles string // of the member
	full  bool   // only at full size
	// frames returns the n-th messages of a flood by this peer. of is a job of another daemon.
	frames func(p job.Peer, of string, n uint64) []proto.Message
}

// mailFloods: a guest floods the scheduler amy, and a scheduler floods the host ben.
var mailFloods = []mailFlood{
	{"hello", "worker", false, func(p job.Peer, _ string, n uint64) []proto.Message {
		return []proto.Message{manyGPUs(p, int(n))}
	}},
	{"availability", "worker", false, func(_ job.Peer, _ string, n uint64) []proto.Message {
		return []proto.Message{&wirepb.Availability{Seq: n, Free: manyFree(int(n))}}
	}},
	{"ping and renewal", "worker", true, func(job.Peer, string, uint64) []proto.Message {
		return []proto.Message{&wirepb.Ping{Number: 1}, &wirepb.Renew{Group: 7, Session: 1}}
	}},
	{"small", "worker", true, func(_ job.Peer, of string, n uint64) []proto.Message {
		return []proto.Message{
			&wirepb.Availability{Seq: n, Free: &wirepb.Free{Cpus: int64(n % 8), Memory: 1 << 30}},
			&wirepb.Decline{Offer: n, Word: "resources", Free: &wirepb.Free{}, Attempt: &wirepb.AttemptRef{Job: of, N: 99}},
		}
	}},
	{"offers and queries", "scheduler", false, offersAndQueries},
}

// offersAndQueries are commands for a group that the peer has founded: offers that wait, and queries about attempts
// that the host never had.
func offersAndQueries(p job.Peer, _ string, n uint64) []proto.Message {
	_, group := foundedBy(p)
	epoch := &wirepb.EpochRef{Generation: 1, Term: 1}
	a := &wirepb.AttemptRef{Job: string(job.NewID(group, n)), N: 1}
	return []proto.Message{
		&wirepb.Offer{
			Id: n, Attempt: a, Group: uint64(group), Epoch: epoch, Priority: 100, User: "root", WaitNs: int64(30 * time.Second),
			Need: &wirepb.Resources{Cpus: 4 + int64(n%8), Memory: 1 << 30},
		},
		&wirepb.Query{Attempt: &wirepb.AttemptRef{Job: string(job.NewID(group, 1<<32+n)), N: 1}, Group: uint64(group), Epoch: epoch},
	}
}

// greeting is the first message of the member in a session: what it has, or which group it owns.
func (f mailFlood) greeting(p job.Peer) proto.Message {
	if f.roles == "worker" {
		return manyGPUs(p, 0)
	}
	founding, group := foundedBy(p)
	return &wirepb.Owns{Groups: []*wirepb.GroupEpoch{{Group: uint64(group), Epoch: &wirepb.EpochRef{Generation: 1, Term: 1}, Founding: founding[:]}}}
}

// founded has the groups that the members of floods have founded.
var founded sync.Map

// foundedBy returns a group that a member has founded, the same each time.
func foundedBy(p job.Peer) (job.Founding, job.Group) {
	if f, ok := founded.Load(p); ok {
		f := f.(job.Founding)
		return f, f.Group(p)
	}
	f, g := job.FoundFrom(p, job.Founding{1})
	founded.Store(p, f)
	return f, g
}

func manyFree(n int) *wirepb.Free {
	f := &wirepb.Free{Cpus: 64, Memory: 1 << 40}
	for i := range contract.MaxGPUs {
		f.Gpus = append(f.Gpus, &wirepb.FreeGPU{Uuid: deviceName(contract.MaxGPUs - 1 - i), Memory: 80 << 30, Milli: int64(1000 * ((i + n) % 2))})
	}
	return f
}

func manyGPUs(p job.Peer, n int) *wirepb.WorkerHello {
	h := &wirepb.WorkerHello{Free: manyFree(n), Profile: &wirepb.Profile{
		Peer: string(p), Name: "mallory", Version: "1", Store: "store", Arch: "amd64", Os: "linux", Cpus: 64, Memory: 1 << 40, Disk: 1 << 40,
		Drivers: []string{"exec"}, Worker: true, Labels: map[string]string{"n": strconv.Itoa(n)},
	}}
	for i := range contract.MaxGPUs {
		h.Profile.Gpus = append(h.Profile.Gpus, &wirepb.Device{
			Uuid: deviceName(i), Index: int64(i), Model: "NVIDIA H100 80GB HBM3", Class: fmt.Sprintf("h100-80gb-%d", i%7), Memory: 80 << 30, Compute: "9.0",
		})
	}
	return h
}

func deviceName(i int) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i) }

// pour sends messages without a pause until ctx ends. If its session is cut it opens the next one.
func (f mailFlood) pour(ctx context.Context, r *rogue.Peer, to job.Peer, of string, sent, sessions *atomic.Int64) {
	var encoded [][]byte // some kinds of batches, encoded beforehand so that sending costs nothing
	n := uint64(0)
	for range 4 {
		var b bytes.Buffer
		for range 16 {
			n++
			for _, m := range f.frames(r.ID(), of, n) {
				_, _ = protodelim.MarshalTo(&b, rogue.Frame(m))
			}
		}
		encoded = append(encoded, b.Bytes())
	}
	for ctx.Err() == nil {
		s, err := r.TrySession(to, true)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.NewTimer(100 * time.Millisecond).C:
			}
			continue
		}
		sessions.Add(1)
		if s.Send(f.greeting(r.ID())) != nil {
			continue
		}
		over := make(chan struct{})
		go func() {
			for { // it reads, and answers pings
				if _, err := s.Next(mailFor); err != nil {
					close(over)
					return
				}
			}
		}()
		for i := 0; ctx.Err() == nil; i++ {
			k, err := s.Write(encoded[i%len(encoded)])
			sent.Add(int64(k))
			if err != nil {
				break
			}
			select {
			case <-over:
				err = context.Canceled
			default:
			}
			if err != nil {
				break
			}
		}
		s.Reset()
		<-over
	}
}

func TestFloodOfMessagesHarmsNobodyElse(t *testing.T) {
	for _, f := range mailFloods {
		t.Run(f.name, func(t *testing.T) {
			if f.full {
				atFullSize(t)
			}
			f.try(t)
		})
	}
}

func (f mailFlood) try(t *testing.T) {
	amy := newDaemon(t, "amy", "--gpus", "none", "--cpus", "4", "--log-level", "info").start()
	ben := newDaemon(t, "ben", "--gpus", "none", "--cpus", "4", "--log-level", "info").start(amy.invite().flags()...)
	amy.untilNodes(2)
	inv := amy.invite("--roles", f.roles)
	mallory := rogue.Join(t, "mallory", inv.Bootstrap, inv.Token)
	victim := map[string]*daemon{"worker": amy, "scheduler": ben}[f.roles]
	at := victim.id()
	listen := victim.args[slices.Index(victim.args, "--listen")+1]
	if err := mallory.Host.ConnectAddr(t.Context(), listen+"/p2p/"+string(at)); err != nil {
		t.Fatal(err)
	}

	g := newGate(t)
	file := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "lease: 30s\ncommand: [sh, -c, 'read line < %s']\n", g.path), 0o600); err != nil {
		t.Fatal(err)
	}
	long := amy.ok("submit", "-w", "ben", "-F", file)
	was := amy.untilState(long, "RUNNING")
	amy.untilState(amy.ok("submit", "-w", "amy", "--", "true"), "SUCCEEDED")
	logged, before := victim.logged(), victim.resident()

	ctx, cancel := context.WithTimeout(t.Context(), mailFor)
	defer cancel()
	var sent, sessions atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.pour(ctx, mallory, at, long, &sent, &sessions)
	}()
	var submits []time.Duration
	most := before
	for ctx.Err() == nil {
		begin := time.Now()
		r := amy.muster("submit", "-w", "amy", "--", "true")
		submits = append(submits, time.Since(begin))
		if r.code != 0 {
			t.Errorf("submit: got %s, want exit code 0", r.stderr)
		}
		for range 10 {
			most = max(most, victim.resident())
			<-time.NewTimer(20 * time.Millisecond).C
		}
	}
	<-done
	most = max(most, victim.resident())
	text := 0
	victim.mu.Lock()
	lines := victim.lines[logged:]
	victim.mu.Unlock()
	for _, l := range lines {
		text += len(l) + 1
		if containsAll(l, []string{"session"}) && !containsAll(l, []string{string(mallory.ID())}) {
			t.Errorf("a session with an honest member was cut: %s", l)
		}
	}
	slices.Sort(submits)
	t.Logf("%d KB sent in %d sessions; memory %d MB before, %d MB at most; log %d lines, %d bytes; %d submits: median %s, longest %s",
		sent.Load()>>10, sessions.Load(), before>>20, most>>20, len(lines), text, len(submits), submits[len(submits)/2].Round(time.Millisecond), submits[len(submits)-1].Round(time.Millisecond))
	if sent.Load() == 0 {
		t.Error("nothing was sent")
	}
	if most-before > mailGrowth {
		t.Errorf("memory grew by %d MB, want at most %d", (most-before)>>20, mailGrowth>>20)
	}
	if text > mailLog {
		t.Errorf("the log grew by %d bytes, want at most %d: %q", text, mailLog, lines[:min(len(lines), 20)])
	}
	// The flood lasts longer than a lease may last without a renewal, so the task would be lost if renewals waited for
	// the flood.
	if j := amy.show(long); j.State != job.Running || j.Tasks[0].Attempt != was.Tasks[0].Attempt {
		t.Errorf("the task on the honest host is %s, attempt %d, want RUNNING in the same attempt", j.State, j.Tasks[0].Attempt)
	}
	g.open()
	amy.untilState(long, "SUCCEEDED")
}
