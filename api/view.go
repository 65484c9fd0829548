package api

// The view of the cluster: a cache of what each member reported last. See docs/adr, ADR 140.

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/musterhq/muster/api/view"
	"github.com/musterhq/muster/job"
)

const (
	memberLook  = time.Second        // between two reads of the list of members
	askAgain    = time.Minute        // before the next try after a member has refused its feed, as earlier versions do
	freshFor    = 2 * time.Second    // listings ask a member directly if its feed has been silent for longer
	maxFeeds    = 1024               // members that are followed; listings ask the others directly
	mostRow     = maxFeedJob + 4<<10 // bytes of a job's document; escaping can make it six times as long as it was in the feed
	viewBytes   = 128 << 20          // of the rows of jobs, of all members together
	longestWait = 5 * time.Second    // longest pause between two tries to follow a member
)

// clusterView is the view of the cluster. It follows the feed of each member, and turns changes into events.
type clusterView struct {
	*daemons

	self      job.Peer
	directory Directory
	source    *feedSource
	hello     feedHello
	ring      *view.Ring[viewEvent]
	packer    *packs
	epoch     string // part of the ids of its events; each view has another one
	begun     time.Time
	bytes     *slots
	own       atomic.Bool   // follow this daemon's own feed, too: streams of events need it, listings do not
	ready     chan struct{} // closed when this daemon's own feed has sent all jobs: from then on their changes are events
	late      atomic.Bool   // a stream of events began before ready was closed
	look      chan struct{} // holds an element if the list of members must be read now

	mu      sync.Mutex
	members map[job.Peer]*viewMember // guarded by mu, like everything in it
}

// viewMember is the state of one member in the view.
type viewMember struct {
	Member

	stop   context.CancelFunc // ends its feed; nil: it is not followed
	told   time.Time          // when the last line of its feed came
	sight  *seen
	node   *Node
	packed []byte // the document of node, if a request has needed it
	shelf  *view.Shelf
	counts map[job.State]int
	queue  *QueueInfo      // nil: not received
	sync   map[job.ID]bool // the jobs received since its feed began; nil once the feed has sent all jobs
	synced bool            // a feed of it has sent all jobs at least once
	broken bool            // its feed has broken
	silent time.Time       // since when it is silent; zero: it is not silent
}

// document returns the document of the node. It is encoded only on request, because it changes far more often than that.
func (m *viewMember) document(p *view.Packer) itemText {
	if m.packed == nil {
		m.packed = p.Pack(textOf(m.node), nil)
	}
	return itemText{packed: m.packed, packer: p}
}

func newView(d *daemons, directory Directory, source *feedSource, hello feedHello) *clusterView {
	return &clusterView{
		daemons: d, self: d.self, directory: directory, source: source, hello: hello, begun: time.Now(), epoch: rand.Text()[:8],
		ring: view.NewRing[viewEvent](maxEvents, maxEventBytes), packer: newPacks(), look: make(chan struct{}, 1), ready: make(chan struct{}), bytes: newSlots("bytes of rows", viewBytes, 0), members: map[job.Peer]*viewMember{},
	}
}

// followOwn makes the view follow this daemon's own feed too, so that there are events of this daemon.
func (w *clusterView) followOwn() {
	if w.own.CompareAndSwap(false, true) {
		w.look <- struct{}{}
	}
}

// run keeps the view up to date until ctx ends.
func (w *clusterView) run(ctx context.Context) {
	var feeds sync.WaitGroup
	defer feeds.Wait()
	look := time.NewTicker(memberLook)
	defer look.Stop()
	for {
		w.lookAtMembers(ctx, &feeds)
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		case <-w.look:
		}
	}
}

// lookAtMembers starts to follow new members, and stops following members that are lost or no longer listed.
func (w *clusterView) lookAtMembers(ctx context.Context, feeds *sync.WaitGroup) {
	list, err := w.peers.Members(ctx)
	if err != nil {
		return // tried again soon
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	first, there := len(w.members) == 0, map[job.Peer]bool{}
	for i, now := range list {
		now.Self = now.Self || now.Peer == w.self
		there[now.Peer] = true
		m := w.members[now.Peer]
		if m == nil {
			m = &viewMember{shelf: view.NewShelf(), sight: &seen{}}
			m.Signed = now.Signed
			w.members[now.Peer] = m
		}
		w.meet(m, now, !first)
		lost := now.State == NodeLost && !now.Self
		if m.stop != nil && lost {
			m.stop()
			m.stop = nil
		}
		if m.stop == nil && !lost && i < maxFeeds && (!now.Self || w.own.Load()) {
			one, cancel := context.WithCancel(ctx)
			m.stop = cancel
			feeds.Go(func() { w.follow(one, now.Peer, now.Self) })
		}
	}
	for p, m := range w.members {
		if !there[p] {
			w.leave(m)
		}
	}
}

// meet stores the present entry of a member in the list of members. With tell it adds an event if the entry has changed.
func (w *clusterView) meet(m *viewMember, now Member, tell bool) {
	changed := m.State != now.State || m.Name != now.Name || !slices.Equal(m.Roles, now.Roles)
	vouched := maps.Equal(m.Signed, now.Signed)
	m.Member = now
	if changed && tell {
		w.memberEvent(&now)
	}
	if !vouched && m.node != nil {
		n := *m.node // a copy: listings may still use the old one
		n.Labels = maps.Clone(n.Labels)
		n.vouch(now.Signed)
		m.node, m.packed = &n, nil
	}
}

// leave drops a peer that is no longer a member.
func (w *clusterView) leave(m *viewMember) {
	if m.stop != nil {
		m.stop()
	}
	m.State = NodeLost
	w.memberEvent(&m.Member)
	w.bytes.give(account{party: party{daemon: m.Peer}}, m.shelf.Size())
	delete(w.members, m.Peer)
}

// follow keeps the state of one member up to date, until ctx ends.
func (w *clusterView) follow(ctx context.Context, p job.Peer, self bool) {
	pace := newFeedPace()
	for n := 1; ctx.Err() == nil; n++ {
		err := w.followOnce(ctx, p, self, pace, func() { n = 0 })
		_, refused := errors.AsType[*Problem](err)
		switch {
		case ctx.Err() != nil:
		case refused: // it answers, but has no feed for us
			w.with(p, func(m *viewMember) { m.silent, m.synced = time.Time{}, false })
			sleep(ctx, askAgain)
			n = 0
		default:
			w.with(p, func(m *viewMember) { w.broke(m, err) })
			sleep(ctx, min(longestWait, firstPause<<min(n, 6)))
		}
	}
	w.with(p, func(m *viewMember) { m.broken = true })
}

func (w *clusterView) followOnce(ctx context.Context, p job.Peer, self bool, pace *rate.Limiter, told func()) error {
	w.with(p, func(m *viewMember) { m.sync = map[job.ID]bool{} })
	each := func(l *feedLine) error {
		told()
		w.with(p, func(m *viewMember) { w.apply(m, l) })
		return ctx.Err()
	}
	if !self {
		return w.feedOf(ctx, w.directory, p, pace, each)
	}
	lines, leave := w.source.read(ctx)
	defer leave()
	if err := each(&feedLine{Hello: &w.hello}); err != nil {
		return err
	}
	return followLog(ctx, lines, func(batch []view.Line, anew bool) error {
		if anew {
			batch = slices.Insert(batch, 0, view.Line{Text: encodeLine(feedLine{Anew: true})})
		}
		if len(batch) == 0 {
			return each(&feedLine{})
		}
		for _, x := range batch {
			l, err := parseFeedLine(x.Text)
			if err == nil {
				err = each(&l)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// with calls f with a member, if the view has it.
func (w *clusterView) with(p job.Peer, f func(m *viewMember)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.members[p]; m != nil {
		f(m)
	}
}

// broke notes that a feed has ended.
func (w *clusterView) broke(m *viewMember, err error) {
	if !m.broken {
		w.contactEvent(EventSilent, m.Peer, err.Error())
	}
	if m.broken = true; m.silent.IsZero() {
		m.silent = time.Now()
	}
}

// apply updates the view with a line of a member's feed.
func (w *clusterView) apply(m *viewMember, l *feedLine) {
	m.told, m.broken = time.Now(), false
	switch {
	case l.Hello != nil:
		m.sight = &seen{own: l.Hello.Own, operators: l.Hello.Operators}
	case l.Node != nil:
		l.Node.vouch(m.Signed)
		w.packer.share(l.Node)
		if m.node != nil || m.sync == nil {
			w.nodeEvents(m, m.node, l.Node)
		}
		m.node, m.packed = l.Node, nil
	case l.Measured != nil && m.node != nil:
		if now, ok := l.Measured.on(m.node); ok {
			m.node, m.packed = now, nil
		}
	case l.Job != nil:
		w.applyJob(m, l.Job)
	case l.Gone != "":
		w.applyGone(m, l.Gone, l.Older)
	case l.Totals != nil:
		m.counts = l.Totals.Jobs
		open, _ := parseCursor(l.Totals.Open)
		ended, _ := parseCursor(l.Totals.Ended)
		m.shelf.Miss(job.Pending, open)
		m.shelf.Miss(job.Succeeded, ended)
	case l.Queue != nil:
		m.queue = l.Queue
	case l.Anew:
		m.sync = map[job.ID]bool{}
	case l.Synced:
		w.applySynced(m)
	}
	if m.sync == nil {
		m.silent = time.Time{}
	}
}

func (w *clusterView) applyGone(m *viewMember, id job.ID, older bool) {
	r := m.shelf.Remove(id)
	if r == nil {
		return
	}
	w.bytes.give(account{party: party{daemon: m.Peer}}, r.Size())
	if older {
		m.shelf.Miss(r.State, r.Position())
	} else {
		w.goneEvent(m, r)
	}
}

func (w *clusterView) applySynced(m *viewMember) {
	if m.sync == nil {
		return
	}
	for _, r := range m.shelf.Retain(m.sync) {
		w.bytes.give(account{party: party{daemon: m.Peer}}, r.Size())
		if from := m.shelf.From([]job.State{r.State}); from.ID == "" || r.Position().Compare(from) < 0 { // else it is just too old for the feed
			w.goneEvent(m, r)
		}
	}
	m.sync = nil
	if !m.synced || !m.silent.IsZero() {
		w.contactEvent(EventOpen, m.Peer, "")
	}
	if m.Peer == w.self && !m.synced {
		w.ownReady()
	}
	m.synced = true
}

// ownReady lets streams of events begin.
func (w *clusterView) ownReady() {
	select {
	case <-w.ready:
		return
	default:
		close(w.ready)
	}
	if w.late.Load() {
		w.tell(&change{viewEvent: viewEvent{kind: EventOpen, nodes: []job.Peer{w.self}}, node: w.self})
	}
}

// applyJob stores the present state of a job.
func (w *clusterView) applyJob(m *viewMember, j *Job) {
	j.OwnerName = m.label() // not the name that the daemon gives itself
	r, docs := rowOf(j, w.packer)
	by := account{party: party{daemon: m.Peer}}
	old := m.shelf.Get(r.ID)
	before := m.shelf.Size()
	more := r.Size() - old.Size()
	if len(docs.text) > mostRow || more > 0 && !w.bytes.take(by, more) {
		m.shelf.Refuse(r)
		w.bytes.give(by, before-m.shelf.Size())
		return
	}
	m.shelf.Put(r)
	w.bytes.give(by, before+max(more, 0)-m.shelf.Size())
	if m.sync != nil {
		m.sync[r.ID] = true
	}
	news := m.sync == nil || old != nil
	if m.sync != nil && m.synced { // the job is new since the feed broke or began again, unless it is too old to be kept
		news = news || m.shelf.Get(r.ID) != nil
	}
	if news {
		w.jobEvents(m, old, r, docs)
	}
}

// jobDocs is a job with its documents as JSON: text for everybody who may see it, and more for its user and operators. If
// more is nil, text is for all of them.
type jobDocs struct {
	*Job

	text, more []byte
}

// rowOf returns the row and the documents of a job that a member has sent.
func rowOf(j *Job, p *packs) (*view.Row, *jobDocs) {
	r := indexOf(j)
	r.User, r.Name, r.State = one(p, r.User), one(p, r.Name), one(p, r.State)
	d := &jobDocs{Job: j}
	secret := false
	for i := range j.Tasks {
		t := &j.Tasks[i]
		t.StderrTail = "" // listings and events leave it out
		secret = secret || t.PID != 0
	}
	if secret {
		d.more = textOf(j)
		plain := *j
		plain.Tasks = slices.Clone(j.Tasks)
		for i := range plain.Tasks {
			plain.Tasks[i].PID = 0
		}
		j = &plain
	}
	d.text = textOf(j)
	r.Packed = p.Pack(d.text, d.more)
	return r, d
}

// indexOf returns a row that has only the fields by which a job is found and sorted.
func indexOf(j *Job) *view.Row {
	r := &view.Row{ID: j.ID, User: j.User, Name: j.Name, State: j.State, Priority: j.Priority, Submitted: j.SubmittedAt}
	if j.StartedAt != nil {
		r.Started = j.StartedAt.UnixNano()
	}
	if j.EndedAt != nil {
		r.Ended = j.EndedAt.UnixNano()
	}
	return r
}
