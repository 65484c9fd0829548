//go:build e2e

package e2e

// Attacks of a guest: a member that may only run tasks.

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/testkit/rogue"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

var guestsAttacks = []attack{
	{name: "a guest says hello with 1,024 GPUs", try: (*field).hellos},
	{name: "a guest tells of 1,024 free GPUs", try: (*field).availability},
	{name: "a guest fills the queue of the scheduler", try: (*field).fullQueue},
	{name: "a guest tells that others' tasks have ended", try: (*field).events},
	{name: "a guest renews leases of tasks that it never had", try: (*field).renewals},
	{name: "a guest sends pings", try: (*field).pings},
	{name: "a guest opens and closes sessions", try: (*field).sessions},
	{name: "a guest announces work", try: (*field).gossip},
	{name: "a guest fills the DHT", try: (*field).records},
	{name: "a guest floods HTTP", try: (*field).requests},
	{name: "a guest says nothing when it is asked", users: true, try: (*field).silentGuest},
	{name: "a guest answers cp and --download with more than was asked for", users: true, try: (*field).archives},
}

// together are floods of several members and of strangers at once.
var together = []attack{{name: "all floods at once", users: true, long: true, try: func(f *field) {
	var wg sync.WaitGroup
	for _, flood := range []func(*field){
		(*field).hellos, (*field).fullQueue, (*field).events, (*field).requests, (*field).gossip,
		(*field).offers, (*field).queries, (*field).guesses, (*field).silence,
	} {
		own := *f
		wg.Go(func() { flood(&own) })
	}
	wg.Wait()
}}}

var joined atomic.Int64

// joins lets a hostile member with a role into the cluster, and revokes it when the attack is over.
func (f *field) joins(role string) *rogue.Peer {
	f.t.Helper()
	inv := f.root.invite("--roles", role)
	var p *rogue.Peer
	f.t.Cleanup(func() { // after it has left
		if p == nil {
			return
		}
		if r := f.as(f.root, nil, "", "peers", "--revoke", string(p.ID())); r.code != 0 {
			f.t.Errorf("revoke: exit %d, want 0: %s", r.code, r.stderr)
		}
	})
	p = rogue.Join(f.t, fmt.Sprintf("%s%d", role, joined.Add(1)), inv.Bootstrap, inv.Token)
	return p
}

// encoded returns messages as the bytes of a session, so that sending them costs the attacker little.
func encoded(messages ...proto.Message) []byte {
	var b bytes.Buffer
	for _, m := range messages {
		if _, err := protodelim.MarshalTo(&b, rogue.Frame(m)); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// send makes a member send the same messages as fast as they are read, in a session that it opens again if it is cut.
func (f *field) send(p *rogue.Peer, messages ...proto.Message) {
	f.t.Helper()
	data := encoded(messages...)
	for len(data) < 64<<10 { // several in each write
		data = append(data, data...)
	}
	sent, opened := 0, 0
	s, err := p.Session(f.peers[f.root]), error(nil)
	f.begins()
	f.flood(1, func(int) {
		if opened > 0 {
			if s, err = p.TrySession(f.peers[f.root], true); err != nil {
				f.pause(50 * time.Millisecond)
				return
			}
		}
		opened++
		go func() { // answers pings
			for {
				if _, err := s.Next(patience); err != nil {
					return
				}
			}
		}()
		over := make(chan struct{})
		go func() {
			select {
			case <-f.ctx.Done():
				s.Reset()
			case <-over:
			}
		}()
		defer close(over)
		defer s.Reset()
		for f.ctx.Err() == nil {
			n, err := s.Write(data)
			sent += n
			if err != nil {
				return
			}
		}
	})
	f.t.Logf("%d MB were taken in %d sessions", sent>>20, opened)
}

// wide is the profile of a host with as many GPUs as one may have, and their free capacity.
func wide(p *rogue.Peer) (*wirepb.Profile, *wirepb.Free) {
	profile := &wirepb.Profile{
		Peer: string(p.ID()), Name: "guest", Version: "0", Store: "guest", Cpus: 1024, Memory: 1 << 40, Disk: 1 << 40,
		Drivers: []string{"exec"}, Worker: true, Arch: "amd64", Os: "linux",
	}
	free := &wirepb.Free{Cpus: 1024, Memory: 1 << 40}
	for i := range int64(1024) {
		uuid := strconv.FormatInt(i, 36) // short, so that few bytes take much memory
		profile.Gpus = append(profile.Gpus, &wirepb.Device{Uuid: uuid, Index: i, Class: uuid, Memory: 1})
		free.Gpus = append(free.Gpus, &wirepb.FreeGPU{Uuid: uuid, Milli: 1000})
	}
	return profile, free
}

func (f *field) hellos() {
	p := f.joins("worker")
	profile, free := wide(p)
	f.send(p, &wirepb.WorkerHello{Profile: profile, Free: &wirepb.Free{}}, &wirepb.WorkerHello{Profile: profile, Free: free})
}

func (f *field) availability() {
	p := f.joins("worker")
	profile, free := wide(p)
	f.send(p, &wirepb.WorkerHello{Profile: profile, Free: free},
		&wirepb.Availability{Seq: 1, Free: free}, &wirepb.Availability{Seq: 2, Free: &wirepb.Free{Cpus: 1}, Draining: true})
}

// fullQueue sends messages of a few bytes while the daemon handles large ones.
func (f *field) fullQueue() {
	p := f.joins("worker")
	profile, free := wide(p)
	all := []proto.Message{&wirepb.WorkerHello{Profile: profile, Free: free}}
	for seq := range uint64(500) {
		all = append(all, &wirepb.Availability{Seq: seq + 1, Free: &wirepb.Free{Cpus: int64(seq)}, Draining: seq%2 == 0})
	}
	f.send(p, all...)
}

// attempts returns what every member can know of the honest tasks.
func (f *field) attempts() (of []*wirepb.AttemptRef) {
	for _, h := range f.honest {
		of = append(of, &wirepb.AttemptRef{Job: h.id, N: 1})
	}
	return of
}

func (f *field) events() {
	var all []proto.Message
	for _, a := range f.attempts() {
		for n := range uint64(16) {
			all = append(all, &wirepb.Event{
				Attempt: a, Group: uint64(job.ID(a.GetJob()).Group()), N: n + 1, State: string(job.Failed),
				Exit: &wirepb.Exit{State: string(job.Failed), Code: 1, Started: true, Reason: "made up", Tail: bytes.Repeat([]byte("x"), 2048)},
			})
		}
	}
	f.send(f.joins("worker"), all...)
}

func (f *field) renewals() {
	var all []proto.Message
	for _, a := range f.attempts() {
		group := job.ID(a.GetJob()).Group()
		m := &wirepb.Renew{Group: uint64(group), Store: "rogue", Clock: 1, Session: 1, Live: []*wirepb.AttemptRef{a}}
		for n := range uint64(4000) {
			m.Live = append(m.Live, &wirepb.AttemptRef{Job: string(job.NewID(group, n)), N: 1})
		}
		all = append(all, m)
	}
	f.send(f.joins("worker"), all...)
}

func (f *field) pings() { f.send(f.joins("worker"), &wirepb.Ping{Number: 1}) }

func (f *field) sessions() {
	p := f.joins("worker")
	f.begins()
	profile, free := wide(p)
	hello := encoded(&wirepb.WorkerHello{Profile: profile, Free: free})
	f.flood(1, func(int) {
		s, err := p.TrySession(f.peers[f.root], true)
		if err != nil {
			return
		}
		_, _ = s.Write(hello)
		s.Reset()
	})
}

func (f *field) gossip() {
	p := f.joins("worker")
	f.begins()
	var seq uint64
	classes := make([]string, 64)
	for i := range classes {
		classes[i] = fmt.Sprintf("label/x=%d", i)
	}
	f.flood(1, func(int) {
		seq++
		p.Announce(seq, 1<<20, classes...)
	})
}

func (f *field) records() {
	p := f.joins("worker")
	f.begins()
	n := 0
	f.flood(1, func(int) {
		var classes []string
		for range 512 {
			n++
			classes = append(classes, fmt.Sprintf("label/x=%d", n))
		}
		p.Advertise(classes...)
		f.pause(100 * time.Millisecond)
	})
}

func (f *field) requests() {
	p := f.joins("worker")
	f.begins()
	paths := []string{"/v1/jobs?limit=1000", "/v1/nodes", "/v1/stats", "/v1/jobs/" + f.honest[1].id, "/v1/events"}
	var n atomic.Int64
	f.flood(64, func(int) {
		i := n.Add(1)
		if i%2 == 0 {
			_, _ = p.HTTP(http.MethodPost, f.peers[f.root], "/v1/jobs", rogue.Operator("root"), `{"command":["true"]}`)
			return
		}
		path := paths[i/2%int64(len(paths)-1)]
		_, _ = p.HTTP(http.MethodGet, f.peers[f.root], path, rogue.Operator("root"), "")
	})
}

// silentGuest takes part and answers no request. Others list and cancel their jobs as if it did not exist.
func (f *field) silentGuest() {
	p := f.joins("worker")
	p.Serve(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	s := p.Session(f.peers[f.root])
	defer s.Reset()
	profile, free := wide(p)
	if err := s.Send(&wirepb.WorkerHello{Profile: profile, Free: free}); err != nil {
		f.t.Fatal(err)
	}
	f.as(f.root, f.mallory, "", "submit", "--hold", "--", "true")
	for _, args := range [][]string{{"jobs"}, {"cancel", "all"}} {
		if r := f.as(f.root, f.mallory, "", args...); r.code != 0 || strings.Contains(r.stderr, "answer") {
			f.t.Errorf("%q with a silent guest: exit %d: got %s, want 0 without a warning", args, r.code, r.stderr)
		}
	}
}

// archives makes a guest answer requests for out.txt with an archive that has more.
func (f *field) archives() {
	p := f.joins("worker")
	p.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Muster-Attempt", "1")
		w.Header().Set("Muster-Offset", "0")
		w.Header().Set("Trailer", "Muster-End")
		defer w.Header().Set("Muster-End", "0")
		if !strings.HasSuffix(r.URL.Path, "/files") { // the output is empty
			return
		}
		w.Header().Set("Content-Type", "application/x-tar")
		out := tar.NewWriter(w)
		for _, h := range []tar.Header{
			{Name: "out.txt", Mode: 0o6777},
			{Name: ".bashrc", Mode: 0o644},
			{Name: ".ssh/authorized_keys", Mode: 0o600},
			{Name: "bin/ls", Mode: 0o755},
			{Name: "link", Typeflag: tar.TypeSymlink, Linkname: ".bashrc"},
		} {
			if h.Typeflag == 0 {
				h.Typeflag, h.Size = tar.TypeReg, 7
			}
			if out.WriteHeader(&h) == nil && h.Size > 0 {
				_, _ = out.Write([]byte("hostile"))
			}
		}
		_ = out.Close()
	}))
	p.Work(f.peers[f.root], "guest")
	dir := openDir(f.t)
	if err := os.Chown(dir, int(f.victim.Uid), int(f.victim.Gid)); err != nil {
		f.t.Fatal(err)
	}
	write(f.t, filepath.Join(dir, "download", ".bashrc"), "mine")
	write(f.t, filepath.Join(dir, "cp", ".bashrc"), "mine")
	for _, sub := range []string{"download", "cp", "download/.bashrc", "cp/.bashrc"} {
		if err := os.Chown(filepath.Join(dir, sub), int(f.victim.Uid), int(f.victim.Gid)); err != nil {
			f.t.Fatal(err)
		}
	}
	r := f.as(f.root, f.victim, filepath.Join(dir, "download"), "run", "-w", string(p.ID()), "--download", "out.txt", "--", "true")
	f.t.Logf("run --download: exit %d: %s", r.code, r.stderr)
	r = f.as(f.root, f.victim, "", "submit", "-W", "-w", string(p.ID()), "--", "true")
	id := strings.TrimSpace(r.stdout)
	if r.code != 0 || id == "" {
		f.t.Fatalf("the guest has run no task: exit %d: got %s, want exit 0 and id other than an empty text", r.code, r.stderr)
	}
	r = f.as(f.root, f.victim, "", "cp", id+":out.txt", filepath.Join(dir, "cp"))
	f.t.Logf("cp: exit %d: %s", r.code, r.stderr)
	for _, sub := range []string{"download", "cp"} {
		_ = filepath.WalkDir(filepath.Join(dir, sub), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			text, _ := os.ReadFile(path)
			switch {
			case e.Name() == ".bashrc" && string(text) == "mine", e.Name() == "out.txt" && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid) == 0:
			default:
				f.t.Errorf("%s wrote %s (%s): got %q, want out.txt only", sub, strings.TrimPrefix(path, dir), info.Mode(), text)
			}
			return nil
		})
	}
}
