package scheduler

// A world for the property tests: hosts that follow the rules, sessions that break, a journal that loses records before
// they are committed, and an owner that restarts.

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/state"
	"github.com/musterhq/muster/scheduler/state/statetest"
	"github.com/musterhq/muster/scheduler/step"
)

const worldLease = job.MinLease

// modelTry is an attempt on a model host.
type modelTry struct {
	need  int
	event contract.Event // the newest event; it is sent again until it is acknowledged
	acked bool
	runs  bool
}

// model is a host that follows the rules. It starts a task only under a live lease of the session that the Start names
// (R5), ends all tasks when the lease ends, keeps tombstones (R6), and answers for a known attempt with its state (R9).
type model struct {
	world    *world
	peer     job.Peer
	store    string
	up       bool
	cpus     int
	session  contract.Session // of the lease, or of the renewal under way
	live     bool             // the lease has been granted
	until    time.Time
	sessions contract.Session
	toWorker []contract.ToWorker
	toOwner  []contract.ToScheduler
	reserved map[uint64]contract.Offer
	queued   []contract.Offer
	tries    map[job.Attempt]*modelTry
	loose
}

// loose is the state of a host that does not fence its tasks.
type loose struct {
	unfenced bool
	boots    int
	dead     bool          // its daemon and its runner are dead, and its processes go on
	strays   []job.Attempt // processes that go on and are unknown to the host; also in world.ghosts
}

// never is a time after all histories.
var never = storyStart.AddDate(1000, 0, 0)

func (m *model) fencing() job.Fencing {
	return job.Fencing{Certain: !m.unfenced, Boot: fmt.Sprint("boot-", m.boots)}
}

// die ends the daemon and the runner of a host that does not fence its tasks. These go on without a lease.
func (m *model) die() {
	m.lapse()
	m.cut()
	m.dead = true
}

// wipe gives a host that does not fence its tasks an empty data directory, while these go on.
func (m *model) wipe() {
	m.die()
	m.store += "'"
	for _, a := range m.attempts() {
		if m.tries[a].runs {
			m.strays, m.world.ghosts[a] = append(m.strays, a), never
		}
	}
	m.tries, m.live, m.session, m.until, m.dead = map[job.Attempt]*modelTry{}, false, 0, time.Time{}, false
}

// reboot ends all processes of a host.
func (m *model) reboot() {
	m.cut()
	m.boots++
	m.revive()
	for _, a := range m.strays {
		delete(m.world.ghosts, a)
	}
	m.strays = nil
}

// revive starts the daemon again. It ends what an earlier life has left.
func (m *model) revive() {
	m.dead, m.live, m.session = false, false, 0
	for _, a := range m.attempts() {
		if m.tries[a].runs {
			m.end(a, job.NodeFail)
		}
	}
}

func (m *model) say(x contract.ToScheduler) {
	if m.up {
		m.toOwner = append(m.toOwner, x)
	}
}

func (m *model) free() int {
	n := m.cpus
	for _, o := range m.reserved {
		n -= o.Need.CPUs
	}
	for _, t := range m.tries {
		if t.runs {
			n -= t.need
		}
	}
	return n
}

func (m *model) sayFree() { m.say(contract.Availability{Free: contract.Free{CPUs: m.free()}}) }

// lapse ends all tasks once the lease is over. It is called before anything else.
func (m *model) lapse() {
	if !m.live || m.dead || m.world.now.Before(m.until) {
		return
	}
	m.live, m.session = false, 0
	for _, a := range m.attempts() {
		if m.tries[a].runs {
			m.end(a, job.NodeFail)
		}
	}
}

func (m *model) attempts() []job.Attempt {
	out := make([]job.Attempt, 0, len(m.tries))
	for a := range m.tries {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b job.Attempt) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Task, b.Task), cmp.Compare(a.N, b.N))
	})
	return out
}

func (m *model) end(a job.Attempt, s job.State) {
	t := m.tries[a]
	t.runs = false
	t.event = contract.Event{
		Attempt: a, Group: 7, N: t.event.N + 1, State: s,
		Exit: &job.Exit{State: s, Started: true, Began: m.world.now.Add(-time.Minute), Ended: m.world.now},
	}
	t.acked = false
	m.say(t.event)
	m.fill()
	m.sayFree()
}

// fill commits to queued offers while there is capacity.
func (m *model) fill() {
	rest := m.queued
	m.queued = nil
	for _, o := range rest {
		if m.free() >= o.Need.CPUs {
			m.hold(o)
		} else {
			m.queued = append(m.queued, o)
		}
	}
}

func (m *model) hold(o contract.Offer) {
	m.reserved[o.ID] = o
	session := m.session
	if !m.live {
		session = 0
	}
	m.say(contract.Commit{Offer: o.ID, Attempt: o.Attempt, Group: 7, Session: session})
}

func (m *model) ask() {
	if !m.live { // R5: a new session with each request while no lease is live
		m.sessions++
		m.session = m.sessions
	}
	r := contract.Renew{Group: 7, Store: m.store, Clock: m.world.now.UnixNano(), Session: m.session}
	for _, a := range m.attempts() {
		if m.tries[a].runs {
			r.Live = append(r.Live, a)
		}
	}
	m.say(r)
}

func (m *model) connect() {
	if m.dead {
		m.revive()
	}
	m.up = true
	w := m.world
	w.step(step.SessionUp{Peer: m.peer})
	m.say(contract.Hello{
		Profile: contract.Profile{Name: string(m.peer), Store: m.store, CPUs: m.cpus, Drivers: []string{"exec"}, Worker: true, Fencing: m.fencing()},
		Free:    contract.Free{CPUs: m.free()},
	})
	for _, a := range m.attempts() {
		if t := m.tries[a]; !t.acked {
			m.say(t.event)
		}
	}
}

func (m *model) cut() {
	if m.up {
		m.up, m.toWorker, m.toOwner, m.queued = false, nil, nil, nil
		m.reserved = map[uint64]contract.Offer{}
		m.world.step(step.SessionDown{Peer: m.peer})
	}
}

// hear handles one message of the owner.
func (m *model) hear(x contract.ToWorker) {
	m.lapse()
	switch x := x.(type) {
	case contract.Owns:
		m.ask()
	case contract.Offer:
		_, held := m.reserved[x.ID]
		switch {
		case held, slices.ContainsFunc(m.queued, func(o contract.Offer) bool { return o.ID == x.ID }): // renewed
		case m.free() >= x.Need.CPUs:
			m.hold(x)
		case x.Wait > directWait:
			m.queued = append(m.queued, x)
		default:
			m.say(contract.Decline{Offer: x.ID, Attempt: x.Attempt, Reason: job.Reason{Word: job.ReasonResources}, Free: contract.Free{CPUs: m.free()}})
		}
	case contract.Release:
		delete(m.reserved, x.Offer)
		m.queued = slices.DeleteFunc(m.queued, func(o contract.Offer) bool { return o.ID == x.Offer })
		m.fill()
		m.sayFree()
	case contract.Start:
		m.start(x)
	case contract.Query:
		m.answer(x.Attempt) // for any store: the owner decides whether the answer counts
	case contract.Cancel:
		if t := m.tries[x.Attempt]; t != nil && t.runs {
			m.end(x.Attempt, job.Cancelled)
		}
	case contract.Ack:
		if t := m.tries[x.Attempt]; t != nil && x.N >= t.event.N {
			t.acked = true
		}
	case contract.Renewed:
		m.renewed(x)
	case contract.Signal:
	}
}

func (m *model) start(x contract.Start) {
	o, held := m.reserved[x.Offer]
	delete(m.reserved, x.Offer)
	if m.tries[x.Attempt] == nil && held && m.live && x.Session == m.session {
		t := &modelTry{need: o.Need.CPUs, runs: true, event: contract.Event{Attempt: x.Attempt, Group: 7, N: 1, State: job.Running, PID: 1}}
		m.tries[x.Attempt] = t
		m.say(t.event)
		m.world.started(m, x.Attempt)
		return
	}
	m.answer(x.Attempt)
}

// answer reports the state of an attempt. An unknown attempt becomes a tombstone.
func (m *model) answer(a job.Attempt) {
	t := m.tries[a]
	if t == nil {
		t = &modelTry{event: contract.Event{Attempt: a, Group: 7, N: 1, Refused: "never started"}}
		m.tries[a] = t
	}
	m.say(t.event)
}

func (m *model) renewed(x contract.Renewed) {
	if x.Session != m.session {
		return
	}
	if until := time.Unix(0, x.Clock).Add(worldLease); until.After(m.world.now) {
		m.live = true
		if until.After(m.until) {
			m.until = until
		}
	}
	for _, v := range x.Verdicts {
		if t := m.tries[v.Attempt]; t != nil && t.runs && !v.Keep {
			m.end(v.Attempt, job.Cancelled)
		}
	}
}

// world is an owner, its journal and its hosts.
type world struct {
	t        *rapid.T
	now      time.Time
	cfg      step.Config
	core     *Core
	log      []job.Committed
	pending  []job.Record
	read     step.Token
	term     uint64
	models   []*model
	ids      []job.ID
	tokens   step.Token
	open     map[step.Token]bool // requests that are not answered in this life of the owner
	kept     map[job.ID]bool
	ghosts   map[job.Attempt]time.Time // attempts that run until then, unknown to their host
	liars    bool                      // messages of hosts are random
	ran      map[job.Attempt]bool
	follower *state.Table
	rows     statetest.Disk
	unsaved  []job.Row            // rows that are not on disk yet
	gone     []job.ID             // jobs whose rows are still on disk
	stalled  bool                 // the disk accepts nothing
	applied  uint64               // the entry up to which the rows on disk are complete
	far      map[job.ID]job.State // jobs of another owner
	followed map[job.ID]bool      // those that the owner follows
	files    []step.FileWanted    // job files that the owner reads
}

// farJobs are the jobs of another owner.
var farJobs = []job.ID{job.NewID(8, 1), job.NewID(8, 2)}

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, now: storyStart, cfg: step.DefaultConfig(), open: map[step.Token]bool{}, kept: map[job.ID]bool{}, ran: map[job.Attempt]bool{},
		ghosts: map[job.Attempt]time.Time{}, rows: statetest.Disk{}, follower: state.NewTable(7), followed: map[job.ID]bool{},
		far: map[job.ID]job.State{farJobs[0]: job.Pending, farJobs[1]: job.Running},
	}
	w.cfg.Self, w.cfg.Group, w.cfg.Seed, w.cfg.KeepWhole = "w0", 7, 1, 1
	for i, p := range []job.Peer{"w0", "w1", "w2"} {
		w.models = append(w.models, &model{
			world: w, peer: p, store: string(p), cpus: i + 1, reserved: map[uint64]contract.Offer{}, tries: map[job.Attempt]*modelTry{},
		})
	}
	w.core = NewCore(w.cfg, Saved{}, w.now)
	w.elect()
	return w
}

func (w *world) elect() {
	w.term++
	w.commit(job.Committed{Lead: true})
}

// depose ends the ownership. The first n of the proposed records are committed later.
func (w *world) depose(n int) {
	pending := w.pending
	w.pending = nil
	w.step(step.Deposed{Epoch: job.Epoch{Generation: 1, Term: w.term}})
	if len(w.open) > 0 {
		w.t.Fatalf("%d requests of a deposed owner have no answer, want none", len(w.open))
	}
	if w.read != 0 {
		w.readDone(errors.New("no leader"))
	}
	w.step(step.NotProposed{Records: pending, Err: errors.New("uncertain")})
	if n > 0 {
		w.commit(job.Committed{Records: pending[:n:n]})
	}
}

func (w *world) step(events ...step.Event) {
	w.do(w.core.Step(w.now, append(events, step.RowsKept{Applied: w.applied})...))
	for n := 0; w.core.plan.again; n++ {
		if n > 100 {
			w.t.Fatalf("the core wants steps without end")
		}
		w.do(w.core.Step(w.now))
	}
}

func (w *world) do(fx step.Effects) {
	for _, n := range fx.Notices {
		if n.Kind == step.IllegalMove || n.Kind == step.RowsDamaged {
			w.t.Fatalf("%v of %s: %s", n.Kind, n.Attempt, n.Detail)
		}
	}
	if !w.core.turn.Lead {
		w.checkIdle(fx)
	}
	w.pending = append(w.pending, fx.Propose...)
	for _, o := range fx.Send {
		if s, ok := o.Msg.(contract.Start); ok {
			w.checkStart(o.To, s)
		}
		for _, m := range w.models {
			if m.peer == o.To && m.up {
				m.toWorker = append(m.toWorker, o.Msg)
			}
		}
	}
	for _, id := range fx.Unfollow {
		delete(w.followed, id)
	}
	for _, x := range fx.Follow {
		w.followed[x.Job] = true
	}
	if fx.Read != 0 {
		w.read = fx.Read
	}
	w.files = append(w.files, fx.Files...)
	for _, r := range fx.Reply {
		if !w.open[r.Token] {
			w.t.Fatalf("request %d was answered twice, the second time with %v", r.Token, r.Err)
		}
		delete(w.open, r.Token)
		if r.Err == nil && r.Archived == nil && r.Job.ID != "" {
			w.kept[r.Job.ID] = true
		}
	}
	w.save(fx)
}

// save saves rows. The next step gets RowsKept.
func (w *world) save(fx step.Effects) {
	w.unsaved = append(w.unsaved, fx.Rows...)
	for _, id := range fx.Gone {
		delete(w.kept, id)
	}
	w.gone = append(w.gone, fx.Gone...)
	if w.stalled {
		return
	}
	w.rows.Save(w.unsaved, w.gone)
	w.unsaved, w.gone, w.applied = nil, nil, w.core.Applied()
}

// whole returns a listed job. An archived job must have its row.
func (w *world) whole(x step.Listed) job.Job {
	if x.Job != nil {
		return *x.Job
	}
	j, there := w.rows.Job(x.ID)
	if !there || !j.State().Ended() {
		w.t.Fatalf("%s is archived, but its row is %+v (%v)", x.ID, j, there)
	}
	return j
}

// purge commits a Purge of a job.
func (w *world) purge(id job.ID) {
	w.commit(job.Committed{Records: []job.Record{job.PurgeRecord{Job: id}}})
}

func (w *world) commit(m job.Committed) {
	m.Index, m.Epoch = uint64(len(w.log)+1), job.Epoch{Generation: 1, Term: w.term}
	w.log = append(w.log, m)
	for _, r := range m.Records {
		if r, ok := r.(job.SubmitRecord); ok {
			w.ids = append(w.ids, r.Job)
		}
	}
	w.apply(m)
	w.follow(m)
}

// apply gives an entry to the core, with the rows that it needs before it.
func (w *world) apply(m job.Committed) {
	events, err := AddRows(w.core, []step.Event{step.Committed{Committed: m}}, func(id job.ID) ([]job.Row, error) { return w.rows.Rows(id, "", ""), nil })
	if err != nil {
		w.t.Fatal(err)
	}
	w.step(events...)
}

// checkIdle checks that a core which is not the owner only withdraws offers.
func (w *world) checkIdle(fx step.Effects) {
	if len(fx.Propose) > 0 || fx.Read != 0 || len(fx.Find) > 0 || len(fx.Wants) > 0 || len(fx.Follow) > 0 || len(w.followed) > len(fx.Unfollow) {
		w.t.Fatalf("it does not lead and wants %+v", fx)
	}
	for _, o := range fx.Send {
		if _, ok := o.Msg.(contract.Release); !ok {
			w.t.Fatalf("not the owner, but sends %+v", o.Msg)
		}
	}
}

// checkStart compares a Start with the journal (R1 and R7).
func (w *world) checkStart(to job.Peer, s contract.Start) {
	j := replay(w.log)[s.Attempt.Job]
	if j == nil {
		w.t.Fatalf("Start of %s, whose job is not in the journal", s.Attempt)
	}
	w.checkFile(s)
	d := j.Tasks[s.Attempt.Task]
	if !d.Assigned || d.Attempt != s.Attempt.N || d.Node != to {
		w.t.Fatalf("Start of %s at %s, but the journal has attempt %d at %s, assigned: %v", s.Attempt, to, d.Attempt, d.Node, d.Assigned)
	}
	if e := w.core.entries.byID[s.Attempt.Job]; e.job.Waits.Of(s.Attempt.Task) != state.WaitNone {
		w.t.Fatalf("Start of %s, which still waits for %v", s.Attempt, e.job.Waits.List())
	}
	for _, r := range w.pending {
		if r, ok := r.(job.UnassignRecord); ok && r.Attempt == s.Attempt {
			w.t.Fatalf("Start of %s after its Unassign was proposed", s.Attempt)
		}
	}
}

// checkFile compares the job file of a Start with the submission.
func (w *world) checkFile(s contract.Start) {
	for _, m := range w.log {
		for _, r := range m.Records {
			if r, ok := r.(job.SubmitRecord); ok && r.Job == s.Attempt.Job {
				want, err := r.Spec.TaskFile()
				if err != nil || s.File == nil || s.File.Digest() != want.Digest() {
					w.t.Fatalf("Start of %s with another job file than the submitted one (%v)", s.Attempt, err)
				}
				if lines := r.Spec.EachLine; len(lines) > 0 && s.Element.Entry != lines[s.Attempt.Task] {
					w.t.Fatalf("Start of %s with the wrong line %.40q", s.Attempt, s.Element.Entry)
				}
			}
		}
	}
}

// load loads all rows of a disk.
func (s *Saved) load(t interface{ Fatal(...any) }, d statetest.Disk) {
	for _, r := range d.All() {
		if err := s.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.End(); err != nil {
		t.Fatal(err)
	}
}

// follow applies the records to the table of a follower too, and compares it with the table of the owner.
func (w *world) follow(m job.Committed) {
	for i, r := range m.Records {
		w.follower.Apply(r, seqOf(m.Index, i), m.Epoch)
	}
	for _, j := range w.core.entries.table.Jobs() {
		f := w.follower.Job(j.ID)
		if f == nil {
			w.t.Fatalf("entry %d: the follower has no %s", m.Index, j.ID)
		}
		if mine, theirs := text(w.t, j.View(0, j.Len())), text(w.t, f.View(0, f.Len())); mine != theirs {
			w.t.Fatalf("entry %d: %s is\n%s\nbut for the follower it is\n%s", m.Index, j.ID, mine, theirs)
		}
	}
	if w.follower.Len() != w.core.entries.table.Len() {
		w.t.Fatalf("entry %d: the follower has %d jobs, want %d as the owner", m.Index, w.follower.Len(), w.core.entries.table.Len())
	}
}

// replay returns the jobs that follow from the journal alone.
func replay(log []job.Committed) map[job.ID]*job.Job {
	table := state.NewTable(7)
	for _, m := range log {
		for i, r := range m.Records {
			table.Apply(r, seqOf(m.Index, i), m.Epoch)
		}
	}
	out := map[job.ID]*job.Job{}
	for _, j := range table.Jobs() {
		out[j.ID] = new(j.View(0, j.Len()))
	}
	return out
}

// started checks at the start of a process that no other attempt of its task can be running, and that this attempt
// never ran before.
func (w *world) started(by *model, a job.Attempt) {
	if w.ran[a] {
		w.t.Fatalf("%s was started twice", a)
	}
	w.ran[a] = true
	if w.liars {
		return
	}
	for b, until := range w.ghosts {
		if b.Job == a.Job && b.Task == a.Task && w.now.Before(until) {
			w.t.Fatalf("%s starts at %s while %s may run until %s", a, by.peer, b, until.Sub(w.now))
		}
	}
	for _, m := range w.models {
		m.lapse()
		for b, t := range m.tries {
			if t.runs && b.Job == a.Job && b.Task == a.Task && b != a {
				w.t.Fatalf("%s starts at %s while %s runs at %s", a, by.peer, b, m.peer)
			}
		}
	}
}

// pass lets time pass and performs each step that is due.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for {
		next := w.core.Wake()
		if next.IsZero() || next.After(end) {
			break
		}
		if next.After(w.now) {
			w.now = next
		}
		w.step()
	}
	w.now = end
	for _, m := range w.models {
		m.lapse()
	}
	w.step()
}

// restart starts a new life of the owner, from the rows on disk and the entries after them, or from the journal alone.
func (w *world) restart(rows bool) {
	for _, m := range w.models {
		m.cut()
	}
	w.pending, w.read, w.open, w.unsaved, w.gone = nil, 0, map[step.Token]bool{}, nil, nil
	w.followed, w.files = map[job.ID]bool{}, nil
	w.cfg.Seed++
	saved := Saved{}
	if rows {
		saved.Applied = w.applied
		saved.load(w.t, w.rows)
	} else {
		w.rows, w.applied = statetest.Disk{}, 0
	}
	w.core = NewCore(w.cfg, saved, w.now)
	for _, m := range w.log {
		m.Lead = false
		w.apply(m)
	}
	w.elect()
}

// live lets some time pass in which nothing fails at the living hosts.
func (w *world) live() {
	for _, m := range w.models {
		if m.lapse(); !m.up && !m.dead {
			m.connect()
		}
		m.ask()
	}
	w.flush()
	w.pass(worldLease / 5)
}

// settle lets nothing fail until nothing happens any more.
func (w *world) settle() {
	for _, m := range w.models {
		if m.unfenced {
			m.reboot()
		}
	}
	if !w.core.turn.Lead {
		w.elect()
	}
	for range 400 {
		for _, m := range w.models {
			if !m.up {
				m.connect()
			}
			m.lapse()
		}
		w.flush()
		for _, m := range w.models {
			for _, a := range m.attempts() {
				if m.tries[a].runs {
					m.end(a, job.Succeeded)
				}
			}
			m.ask()
		}
		w.flush()
		for id := range w.followed {
			w.tell(id)
		}
		w.flush()
		w.pass(worldLease / 5)
	}
}

// tell reports the state of a job of another owner.
func (w *world) tell(id job.ID) {
	s := w.far[id]
	w.step(step.ParentSeen{Progress: job.Progress{Job: id, State: s, Started: s == job.Running || s.Ended()}})
}

// flush delivers messages and commits records until there are no more.
func (w *world) flush() {
	for busy := true; busy; {
		busy = false
		for _, m := range w.models {
			for len(m.toOwner) > 0 {
				busy = true
				w.deliver(m)
			}
			for len(m.toWorker) > 0 {
				busy = true
				x := m.toWorker[0]
				m.toWorker = m.toWorker[1:]
				m.hear(x)
			}
		}
		if len(w.pending) > 0 {
			busy = true
			records := w.pending
			w.pending = nil
			w.commit(job.Committed{Records: records})
		}
		if w.read != 0 {
			busy = true
			w.readDone(nil)
		}
		if len(w.files) > 0 {
			busy = true
			w.readFile(nil)
		}
	}
}

// readFile completes the oldest read of a job file.
func (w *world) readFile(err error) {
	f := w.files[0]
	w.files = w.files[1:]
	r := ReadFile(f, func(id job.ID) ([]byte, error) { return w.rows.File(id), err })
	if errors.Is(r.Err, state.ErrDamaged) && w.rows[f.Job] != nil { // a purged job has none
		w.t.Fatalf("the file of %s is neither in memory nor on disk", f.Job)
	}
	w.step(r)
}

func (w *world) deliver(m *model) {
	x := m.toOwner[0]
	m.toOwner = m.toOwner[1:]
	w.step(step.FromWorker{Peer: m.peer, Msg: x})
}

func (w *world) readDone(err error) {
	tok := w.read
	w.read = 0
	w.step(step.ReadDone{Token: tok, Epoch: job.Epoch{Generation: 1, Term: w.term}, Err: err})
}
