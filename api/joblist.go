package api

// The listing of the jobs of all daemons.

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/api/view"
	"github.com/musterhq/muster/job"
)

// Bounds of a listing of jobs.
const (
	defaultLimit = 200
	maxLimit     = 1000 // a page of about 2 MB
)

type listInput struct {
	ListingInput

	State  []string  `query:"state" maxItems:"32" doc:"States, or their short codes such as PD."`
	User   string    `query:"user" maxLength:"64" doc:"Only jobs of this user."`
	Mine   bool      `query:"mine" doc:"Only jobs of the caller."`
	Name   string    `query:"name" maxLength:"256" doc:"A glob such as train-*."`
	Prefix string    `query:"prefix" maxLength:"64" doc:"A prefix of the id."`
	Since  time.Time `query:"since" doc:"Only jobs that were submitted at this time or later."`
	Last   bool      `query:"last" doc:"Only the newest job of user, or of the caller if user is empty."`
	Limit  int       `query:"limit" minimum:"0" maximum:"1000" doc:"Jobs in a page; 0 means 200."`
	Cursor string    `query:"cursor" maxLength:"128" doc:"The field next of the previous page."`
}

type jobsOutput struct {
	Status   int
	Type     string   `header:"Content-Type" hidden:"true"`
	ETag     string   `header:"ETag" doc:"Stays the same while nothing but the ages changes."`
	Cursor   string   `header:"Muster-Cursor" doc:"The field next, for clients that have not decoded the listing yet."`
	Founding []string `header:"Muster-Founding" doc:"Proves to other daemons that this one has founded a group of its jobs."`
	Body     []byte
}

// jobOrders are the orders by which jobs can be sorted. Without one, the newest jobs come first, and jobs of the same moment
// by their ids.
var jobOrders = orders[jobItem]{
	"id":           func(a, b *jobItem) int { return strings.Compare(string(a.ID), string(b.ID)) },
	"name":         func(a, b *jobItem) int { return strings.Compare(a.Name, b.Name) },
	"user":         func(a, b *jobItem) int { return strings.Compare(a.User, b.User) },
	"state":        func(a, b *jobItem) int { return strings.Compare(string(a.State), string(b.State)) },
	"priority":     func(a, b *jobItem) int { return cmp.Compare(a.Priority, b.Priority) },
	"submitted_at": func(a, b *jobItem) int { return a.Submitted.Compare(b.Submitted) },
	"started_at":   func(a, b *jobItem) int { return cmp.Compare(a.Started, b.Started) },
	"ended_at":     func(a, b *jobItem) int { return cmp.Compare(a.Ended, b.Ended) },
}

// jobItem is a job in a listing.
type jobItem struct {
	*view.Row
	item
	of job.Peer // the member whose row in the view this is; empty: it is from this daemon, or from an answer
}

// submitted returns when the job was submitted, by the clock of this daemon.
func (x *jobItem) submitted() time.Time {
	return x.Submitted.Add(-time.Duration(x.ahead * float64(time.Second)))
}

func itemOf(d *Job) jobItem {
	return jobItem{Row: indexOf(d), item: item{itemText: itemText{text: textOf(d)}}}
}

// jobPage is a page of a listing: what the request selects, and what was found.
type jobPage struct {
	job.Query

	since  time.Time
	order  func(a, b *jobItem) int // nil: the newest first
	skip   int                     // with order: the number of items on the previous pages
	items  []jobItem
	more   bool                      // an owner has more
	from   map[job.Peer]job.Position // by member: the position from which on the view may lack jobs
	age    time.Duration
	silent []string
	packer *view.Packer // of the rows of the view
}

// page returns the page that a request describes. A page that is not sorted by time covers only the jobs that the view
// keeps: those that have not ended, and the latest that have. Of an owner that is asked directly, it covers only the newest
// maxLimit jobs.
func (in *listInput) page(a requester) (*jobPage, error) {
	if err := checkFields[Job](in.Fields); err != nil {
		return nil, err
	}
	p := &jobPage{since: in.Since, from: map[job.Peer]job.Position{}}
	text := in.Cursor
	if in.Sort != "" && in.Sort != "-submitted_at" {
		order, err := jobOrders.of(in.Sort)
		if err != nil {
			return nil, err
		}
		p.order = order
		if at, ok := strings.CutPrefix(text, "@"); ok {
			if p.skip, err = strconv.Atoi(at); err != nil || p.skip < 0 {
				return nil, bad("cursor %s: want the field next of a listing", quote(text))
			}
			text = ""
		}
	}
	q, err := in.query(a)
	if err != nil {
		return nil, err
	}
	q.After, err = parseCursor(text)
	p.Query = q
	return p, err
}

func (in *listInput) query(a requester) (job.Query, error) {
	q := job.Query{User: in.User, Name: in.Name, Prefix: in.Prefix, Limit: in.Limit}
	if q.Limit == 0 {
		q.Limit = defaultLimit
	}
	if in.Mine || (in.Last && in.User == "") {
		q.User = a.user
	}
	if in.Last {
		q.Limit = 1
	}
	for _, text := range in.State {
		state, err := job.ParseState(text)
		if err != nil {
			return q, bad("%w", err)
		}
		q.States = append(q.States, state)
	}
	if _, err := path.Match(in.Name, ""); err != nil {
		return q, bad("name %.60q: not a glob: %w", in.Name, err)
	}
	return q, nil
}

// asked returns the query to send to other owners of jobs.
func (p *jobPage) asked() job.Query {
	q := p.Query
	if p.order != nil {
		q.Limit = maxLimit
	}
	return q
}

// forwarded returns the parameters of the request to another owner. The fields that depend on the requester are filled in.
func (p *jobPage) forwarded() url.Values {
	q := p.asked()
	return JobFilter{States: q.States, User: q.User, Name: q.Name, Prefix: q.Prefix, Limit: q.Limit, Cursor: cursorOf(q.After)}.query()
}

// take adds the jobs of a member that the view has.
func (p *jobPage) take(m *viewMember, c contact, told time.Time, a *requester, ahead float64) {
	age := time.Since(told)
	if from := m.shelf.From(p.States); c == contactKnown && from.ID != "" {
		p.from[m.Peer] = from
	}
	old := c == contactSilent
	if old {
		p.silent = append(p.silent, m.label())
	} else {
		p.age = max(p.age, age)
	}
	m.shelf.All(func(r *view.Row) {
		if !r.Match(&p.Query) || !m.sight.may(a, r.User) {
			return
		}
		doc := itemText{packed: r.Packed, packer: p.packer, more: m.sight.all(a, r.User)}
		p.items = append(p.items, jobItem{Row: r, item: item{itemText: doc, age: age, aged: old, ahead: ahead}, of: m.Peer})
	})
}

// lacking returns the members of which the page needs older jobs than the view has, and removes their jobs from the page. A
// page that is not sorted by time needs no more than the view has.
func (p *jobPage) lacking(others []Member) (ask []Member) {
	if len(p.from) == 0 || p.order != nil {
		return nil
	}
	slices.SortFunc(p.items, func(a, b jobItem) int { return a.Position().Compare(b.Position()) })
	limit := p.Limit
	for _, m := range others {
		from, short := p.from[m.Peer]
		if !short || len(p.items) >= limit && p.items[limit-1].Position().Compare(from) < 0 {
			continue
		}
		ask = append(ask, m)
	}
	p.items = slices.DeleteFunc(p.items, func(x jobItem) bool {
		return x.of != "" && slices.ContainsFunc(ask, func(m Member) bool { return m.Peer == x.of })
	})
	return ask
}

// cut sorts the items, keeps those that belong on the page, and returns the cursor of the next page.
func (p *jobPage) cut(last bool) (next string) {
	slices.SortFunc(p.items, func(a, b jobItem) int { return a.Position().Compare(b.Position()) })
	if !p.since.IsZero() {
		p.leaveOutOlder()
	}
	if p.order != nil {
		slices.SortStableFunc(p.items, func(a, b jobItem) int { return p.order(&a, &b) })
		p.items = p.items[min(p.skip, len(p.items)):]
		if len(p.items) > p.Limit {
			p.items = p.items[:p.Limit]
			return "@" + strconv.Itoa(p.skip+p.Limit)
		}
		return ""
	}
	if len(p.items) > p.Limit {
		p.items, p.more = p.items[:p.Limit], true
	}
	if p.more && len(p.items) > 0 && !last {
		return cursor(p.items[len(p.items)-1].Position())
	}
	return ""
}

// leaveOutOlder removes jobs that were submitted before since. Each daemon has sent its newest jobs. So there is no next
// page if no job is left, or if all clocks agree and a job was removed.
func (p *jobPage) leaveOutOlder() {
	n := len(p.items)
	agree := !slices.ContainsFunc(p.items, func(x jobItem) bool { return x.ahead != 0 })
	p.items = slices.DeleteFunc(p.items, func(x jobItem) bool { return x.submitted().Before(p.since) })
	if len(p.items) == 0 || agree && len(p.items) < n {
		p.more = false
	}
}

// peerJobs is the listing of another daemon, with its proofs.
type peerJobs struct {
	Listing[Job]
	proofs []job.Founding
}

func (p *peerJobs) readHeader(h http.Header) { p.proofs = proofsIn(h) }

// theirs returns the jobs in a member's answer that the member owns. It counts the others as dropped.
func (r *jobRoutes) theirs(a *answer[peerJobs]) []Job {
	p, n := proven{r.directory, a.member.Peer, a.value.proofs}, len(a.value.Items)
	items := slices.DeleteFunc(a.value.Items, func(j Job) bool { return !p.tells(&j) })
	r.metrics.dropped(n - len(items))
	return items
}

func (r *jobRoutes) list(ctx context.Context, in *listInput) (*jobsOutput, error) {
	a := requesterOf(ctx)
	p, err := in.page(a)
	if err != nil {
		return nil, err
	}
	own, err := r.own(ctx, p)
	if err != nil {
		return nil, err
	}
	p.items = make([]jobItem, 0, len(own))
	name := r.nameOf(r.self)
	for i := range own {
		doc := a.shown(&own[i], briefDocument(&own[i], r.directory.Copies(own[i].ID.Group())))
		doc.OwnerName = name
		p.items = append(p.items, itemOf(&doc))
	}
	if err := r.ask(ctx, p, in.fresh()); err != nil {
		return nil, err
	}
	l := listing{schema: SchemaJobs, partial: p.silent, next: p.cut(in.Last), age: p.age}
	for _, x := range p.items {
		l.items = append(l.items, x.item)
	}
	out := l.answer(&in.ListingInput)
	return &jobsOutput{out.Status, out.Type, out.ETag, l.next, showProofs(r.directory), out.Body}, nil
}

// own returns the jobs of this daemon for a page. If the page is not sorted by time, it returns as many jobs as the view
// keeps of each other daemon.
func (r *jobRoutes) own(ctx context.Context, p *jobPage) (own []job.Job, err error) {
	if p.order == nil {
		own, err = r.listed(ctx, p.Query)
		p.more = len(own) >= p.Limit
		return own, err
	}
	open, ended := openAndEnded(p.States)
	for _, k := range []struct {
		states []job.State
		most   int
	}{{open, view.MaxOpen}, {ended, view.MaxEnded}} {
		q := p.Query
		q.States, q.Limit = k.states, min(maxLimit, k.most)
		for left := k.most; left > 0 && len(q.States) > 0; left -= q.Limit {
			page, err := r.listed(ctx, q)
			if err != nil {
				return nil, err
			}
			own = append(own, page...)
			if len(page) < q.Limit {
				break
			}
			q.After = page[len(page)-1].Position()
		}
	}
	return own, nil
}

// openAndEnded splits states into those of jobs that have not ended, and the others. No states means all.
func openAndEnded(states []job.State) (open, ended []job.State) {
	if len(states) == 0 {
		states = job.States()
	}
	for _, s := range states {
		if s.Ended() {
			ended = append(ended, s)
		} else {
			open = append(open, s)
		}
	}
	return open, ended
}

// ownsNoJobs reports whether a member certainly owns no jobs: its roles are known and do not allow any. So a silent guest
// does not make listings incomplete.
func ownsNoJobs(m Member) bool { return len(m.Roles) > 0 && !slices.Contains(m.Roles, roleOwner) }

// ask adds the jobs of all other members that may own some. It takes them from the view, and asks the members of which the
// view does not have all jobs.
func (r *jobRoutes) ask(ctx context.Context, p *jobPage, fresh bool) error {
	others, err := r.others(ctx)
	if err != nil {
		return err
	}
	others = slices.DeleteFunc(others, ownsNoJobs)
	var v *clusterView
	a := requesterOf(ctx)
	if !fresh && a.from != fromPeer {
		v = r.viewer.look(ctx)
	}
	if v != nil {
		p.packer = v.packer.Packer
	}
	ask := v.see(others, func(m *viewMember, c contact, told time.Time) { p.take(m, c, told, &a, r.ahead(m.Peer)) })
	ask = append(ask, p.lacking(others)...)
	answers := askThem[peerJobs](ctx, r.daemons, ask, "/v1/jobs", p.forwarded())
	for i := range answers {
		a := &answers[i]
		if a.err != nil {
			if errors.Is(a.err, ErrUnavailable) {
				v.unanswered(a.member.Peer)
			}
			continue
		}
		for _, j := range r.theirs(a) {
			j.Age, j.OwnerName, j.ClockAhead = 0, a.member.label(), 0
			x := itemOf(&j)
			x.ahead = r.ahead(a.member.Peer)
			p.items = append(p.items, x)
		}
		p.more = p.more || a.value.Next != ""
	}
	p.silent = append(p.silent, silent(r.daemons, answers)...)
	return nil
}

// listed returns the jobs of this daemon that the query selects and the requester may see.
func (r *jobRoutes) listed(ctx context.Context, q job.Query) ([]job.Job, error) {
	if a := requesterOf(ctx); a.ownOnly && !a.operator {
		if a.user == "" || (q.User != "" && q.User != a.user) {
			return nil, nil
		}
		q.User = a.user
	}
	return r.jobs.List(ctx, q)
}

// cursor encodes a position as text.
func cursor(p job.Position) string {
	return strconv.FormatInt(p.Submitted.UnixNano(), 10) + "." + string(p.ID)
}

func parseCursor(text string) (job.Position, error) {
	if text == "" {
		return job.Position{}, nil
	}
	at, id, _ := strings.Cut(text, ".")
	ns, err1 := strconv.ParseInt(at, 10, 64)
	whole, err2 := job.ParseID(id)
	if err := errors.Join(err1, err2); err != nil {
		return job.Position{}, bad("cursor %s: want the field next of a listing", quote(text))
	}
	return job.Position{Submitted: time.Unix(0, ns), ID: whole}, nil
}
