package worker_test

// A host for tests: a core, a disk that can fail, and a clock that the test moves.

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/health"
	"github.com/musterhq/muster/worker/leaseclock"
	"github.com/musterhq/muster/worker/step"
)

const (
	amy   = job.Peer("amy") // schedulers
	bob   = job.Peer("bob")
	store = "store-1"
)

// group is the group of most tests, and proof that amy has founded it. A host adds the proof to her claims.
var proof, group = job.FoundFrom(amy, job.Founding{})

var errDisk = errors.New("no space left on device")

// attempt names the n-th attempt of the job with that number.
func attempt(number uint64, n int) job.Attempt {
	return job.Attempt{Job: job.NewID(group, number), N: n}
}

func epoch(term uint64) contract.Epoch { return contract.Epoch{Generation: 1, Term: term} }

// tb is the part of testing.T that rapid.T has too.
type tb interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

type host struct {
	t    tb
	core *worker.Core
	cfg  worker.Config
	now  leaseclock.Moment

	records map[job.Attempt]contract.Record // on disk
	synced  map[job.Attempt]contract.Record // the part that survives a power cut
	wrote   worker.Writes                   // what the last step wrote
	claims  map[job.Group]contract.Claim
	failing bool
	unsaved bool             // the last write has failed
	refuses string           // the reason why the host's policy refuses all tasks; empty: it refuses none
	mute    bool             // the policy does not answer
	asked   []step.Admission // questions to the policy without an answer
	busy    map[int]bool     // ports that other programs use

	done worker.Effects                      // of the last round
	sent map[job.Peer][]contract.ToScheduler // messages that got has not returned yet
	show func(worker.Writes, worker.Effects) // called for each step, if set
}

func config(gpus int) worker.Config {
	cfg := worker.DefaultConfig()
	cfg.Profile = contract.Profile{
		Peer: "me", Name: "me", Store: store, CPUs: 8, Memory: 64 << 30, Worker: true,
	}
	for i := range gpus {
		cfg.Profile.GPUs = append(cfg.Profile.GPUs, gpu.Device{
			UUID: "GPU-" + string(rune('a'+i)), Index: i, Class: "h100-80gb", Memory: 80e9, Simulated: true,
		})
	}
	cfg.Boot = "boot-1"
	cfg.Seed = 1
	return cfg
}

func newHost(t tb, cfg worker.Config) *host {
	t.Helper()
	h := &host{
		t: t, cfg: cfg, records: map[job.Attempt]contract.Record{}, claims: map[job.Group]contract.Claim{},
		now: leaseclock.Moment{Boot: leaseclock.BootTime(time.Hour), Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
	h.boot()
	return h
}

// boot restarts the daemon on the same disk. The driver reports these events.
func (h *host) boot(found ...driver.Event) {
	h.t.Helper()
	h.bootWith(worker.Adopted{Found: found})
}

func (h *host) bootWith(adopted worker.Adopted) {
	h.t.Helper()
	core, err := worker.NewCore(h.cfg)
	if err != nil {
		h.t.Fatal(err)
	}
	h.core = core
	h.sent = map[job.Peer][]contract.ToScheduler{}
	var records []contract.Record
	for _, r := range h.records {
		records = append(records, r)
	}
	core.Restore(records, slices.Collect(maps.Values(h.claims)))
	h.round(adopted)
}

// round handles events like a loop: a step, and another step for the answers if the policy was asked or a port is
// searched.
func (h *host) round(events ...worker.Event) worker.Effects {
	h.t.Helper()
	done := h.turn(events...)
	for len(h.done.Admit)+len(h.done.Ports) > 0 {
		asked := h.done.Admit
		var answers []worker.Event
		for _, s := range h.done.Ports {
			found := worker.PortFound{Attempt: s.Attempt}
			if i := slices.IndexFunc(s.Try, func(port int) bool { return !h.busy[port] }); i >= 0 {
				found.Port = s.Try[i]
			}
			answers = append(answers, found)
		}
		if h.mute {
			h.asked, asked = append(h.asked, asked...), nil
			if len(answers) == 0 {
				break
			}
		}
		for _, a := range asked {
			answers = append(answers, worker.Admitted{Attempt: a.Attempt, Refused: h.refuses})
		}
		join(&done, h.turn(answers...))
	}
	h.done = done
	return done
}

// join adds the effects of a later step, as far as tests check them together.
func join(to *worker.Effects, more worker.Effects) {
	to.Log = append(to.Log, more.Log...)
	to.Start = append(to.Start, more.Start...)
	to.Stop = append(to.Stop, more.Stop...)
	to.Signal = append(to.Signal, more.Signal...)
	to.Send = append(to.Send, more.Send...)
	to.Forget = append(to.Forget, more.Forget...)
	to.Want = append(to.Want, more.Want...)
	to.Unwant = append(to.Unwant, more.Unwant...)
	to.Poll = to.Poll || more.Poll
	if to.Extend == nil {
		to.Extend = more.Extend
	} else {
		maps.Copy(to.Extend, more.Extend)
	}
	if more.Keep != nil {
		to.Keep = more.Keep
	}
}

// turn performs one step of the core.
func (h *host) turn(events ...worker.Event) worker.Effects {
	h.t.Helper()
	for _, e := range events {
		if m, ok := e.(worker.Message); ok && m.From == amy {
			prove(m.Msg)
		}
	}
	w := h.core.Step(h.now, events...)
	h.wrote = w
	var err error
	switch {
	case w.Empty():
	case h.failing:
		err, h.unsaved = errDisk, true
	default:
		h.unsaved = false
		for _, r := range w.Put {
			h.records[r.Attempt] = r
		}
		for _, a := range w.Gone {
			delete(h.records, a)
		}
		for _, c := range w.Claims {
			if h.claims[c.Group] = c; c.Epoch == (contract.Epoch{}) {
				delete(h.claims, c.Group)
			}
		}
		if w.Sync {
			h.synced = maps.Clone(h.records)
		} else if len(w.Claims) > 0 {
			h.t.Fatalf("claims %v are not synced, want none", w.Claims)
		}
	}
	h.done = h.core.Saved(h.now, err)
	if h.done.Keep != nil {
		h.keep(*h.done.Keep)
	}
	for _, m := range h.done.Send {
		h.sent[m.To] = append(h.sent[m.To], m.Msg)
	}
	for _, l := range h.done.Log {
		if strings.HasPrefix(l.Msg, "defect") {
			h.t.Fatalf("%s %v", l.Msg, l.Attrs)
		}
	}
	if h.show != nil {
		h.show(w, h.done)
	}
	return h.done
}

// keep saves the quarantine for the next boot.
func (h *host) keep(now health.Quarantine) {
	h.t.Helper()
	text, err := json.Marshal(now)
	if err != nil {
		h.t.Fatal(err)
	}
	h.cfg.Quarantine = health.Quarantine{}
	if err := json.Unmarshal(text, &h.cfg.Quarantine); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) says(from job.Peer, msgs ...contract.ToWorker) worker.Effects {
	var events []worker.Event
	for _, m := range msgs {
		events = append(events, worker.Message{From: from, Msg: m})
	}
	return h.round(events...)
}

// prove adds amy's proof to her claim of the group.
func prove(m contract.ToWorker) {
	if owns, ok := m.(contract.Owns); ok && owns.Groups[0].Group == group {
		owns.Groups[0].Founding = proof
	}
}

// pass lets time pass, with a round whenever a timer of the core is due.
func (h *host) pass(d time.Duration) {
	end := h.now.Boot.Add(d)
	for {
		at, ok := h.core.Wake()
		if !ok || at > end {
			break
		}
		h.jump(max(0, at.Sub(h.now.Boot)))
		h.round()
	}
	h.jump(end.Sub(h.now.Boot))
}

// jump moves the clock without any round, as if the daemon were stopped meanwhile.
func (h *host) jump(d time.Duration) {
	h.now.Boot = h.now.Boot.Add(d)
	h.now.Wall = h.now.Wall.Add(d)
}

// got returns the messages of one type that were sent to a peer since the last call for this type.
func got[T contract.ToScheduler](h *host, p job.Peer) []T {
	var out []T
	h.sent[p] = slices.DeleteFunc(h.sent[p], func(m contract.ToScheduler) bool {
		v, ok := m.(T)
		if ok {
			out = append(out, v)
		}
		return ok
	})
	return out
}

// one is got, and fails the test unless there is exactly one message.
func one[T contract.ToScheduler](h *host, p job.Peer) T {
	h.t.Helper()
	all := got[T](h, p)
	if len(all) != 1 {
		var none T
		h.t.Fatalf("%s was sent %d of %T, want 1; all: %+v", p, len(all), none, h.sent[p])
	}
	return all[0]
}

// meet opens a session with an owner and answers its first renewal.
func (h *host) meet(p job.Peer, term uint64) contract.Session {
	h.t.Helper()
	if p != amy {
		worker.Bind(h.core, group, p)
	}
	h.round(worker.Up{Peer: p})
	h.says(p, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: epoch(term)}}})
	return h.answer(p, term)
}

// answer answers the newest Renew and keeps all attempts.
func (h *host) answer(p job.Peer, term uint64) contract.Session {
	h.t.Helper()
	all := got[contract.Renew](h, p)
	if len(all) == 0 {
		h.t.Fatalf("%s was not asked for a renewal", p)
	}
	r := all[len(all)-1]
	h.says(p, answerTo(r, term, true))
	return r.Session
}

func answerTo(r contract.Renew, term uint64, keep bool) contract.Renewed {
	m := contract.Renewed{Group: r.Group, Epoch: epoch(term), Clock: r.Clock, Session: r.Session}
	for _, a := range r.Live {
		m.Verdicts = append(m.Verdicts, contract.Verdict{Attempt: a, Keep: keep})
	}
	return m
}

func spec(need job.Resources) job.Spec {
	s := job.DefaultSpec()
	s.Command = []string{"true"}
	s.Resources = need
	return s
}

// file returns the job file of a spec that can be encoded.
func file(s job.Spec) *job.File {
	f, err := s.TaskFile()
	if err != nil {
		panic(err)
	}
	return f
}

// edited returns the file after a change.
func edited(f *job.File, change func(*job.Spec)) *job.File {
	s := f.Spec()
	change(&s)
	return file(s)
}

func offer(id uint64, a job.Attempt, need job.Resources) contract.Offer {
	return contract.Offer{ID: id, Attempt: a, Group: group, Epoch: epoch(1), Need: need, Priority: 50, User: "ada"}
}

func start(id uint64, a job.Attempt, s contract.Session, need job.Resources) contract.Start {
	return contract.Start{Offer: id, Attempt: a, Group: group, Epoch: epoch(1), Session: s, User: "ada", File: file(spec(need))}
}

// run brings an attempt to RUNNING.
func (h *host) run(p job.Peer, id uint64, a job.Attempt, s contract.Session, need job.Resources) driver.Task {
	h.t.Helper()
	h.says(p, offer(id, a, need))
	one[contract.Commit](h, p)
	e := h.says(p, start(id, a, s, need))
	if len(e.Start) != 1 {
		h.t.Fatalf("started %d tasks, want 1; sent %+v", len(e.Start), h.sent[p])
	}
	h.round(driver.Event{Attempt: a, Kind: driver.Started, PID: 42})
	return e.Start[0]
}

func (h *host) states(p job.Peer) []job.State {
	var out []job.State
	for _, e := range got[contract.Event](h, p) {
		out = append(out, e.State)
	}
	return out
}

func (h *host) wantStates(p job.Peer, want ...job.State) {
	h.t.Helper()
	if s := h.states(p); !slices.Equal(s, want) {
		h.t.Fatalf("%s was told %v, want %v", p, s, want)
	}
}

var cpu = job.Resources{CPUs: 1}

func gpus(n int) job.Resources { return job.Resources{CPUs: 1, GPUs: n} }

func exited(a job.Attempt, code int) driver.Event {
	state := job.Succeeded
	if code != 0 {
		state = job.Failed
	}
	return driver.Event{Attempt: a, Kind: driver.Exited, Exit: job.Exit{State: state, Code: code}}
}
