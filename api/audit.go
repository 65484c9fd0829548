package api

// The route of the audit log: the entries of this daemon, merged with those of the others.

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/job"
)

// SchemaAuditEntry and SchemaAudit name the documents of the audit log.
const (
	SchemaAuditEntry = "muster.audit_entry/v1"
	SchemaAudit      = "muster.audit/v1"
)

const (
	// auditWait bounds the wait for one member, which may have to search 64 MiB.
	auditWait = 3 * time.Second
	// auditLimit is the number of entries if the request has no limit.
	auditLimit = 100
)

// AuditEntry is what somebody did, as one daemon saw it.
type AuditEntry struct {
	Schema string   `json:"schema"`
	Node   string   `json:"node" doc:"The node whose daemon wrote the entry."`
	NodeID job.Peer `json:"node_id"`
	audit.Entry
}

// AuditFilter selects entries; the zero value selects the newest.
type AuditFilter struct {
	Since  time.Time
	User   string
	Mine   bool // only what the caller did
	Action string
	Node   string // ID, unique part of it, or name; empty: all daemons
	Limit  int    // 0: the daemon's default
}

func (f AuditFilter) query() url.Values {
	q := url.Values{}
	for k, v := range map[string]string{"user": f.User, "action": f.Action, "node": f.Node} {
		if v != "" {
			q.Set(k, v)
		}
	}
	if !f.Since.IsZero() {
		q.Set("since", f.Since.UTC().Format(time.RFC3339))
	}
	if f.Mine {
		q.Set("mine", "true")
	}
	if f.Limit > 0 {
		q.Set("limit", strconv.Itoa(f.Limit))
	}
	return q
}

type auditInput struct {
	Since  time.Time `query:"since" doc:"Only entries from this time on."`
	User   string    `query:"user" maxLength:"64" doc:"Only what this user did. Who is no operator sees only what they did themselves."`
	Mine   bool      `query:"mine" doc:"Only what the caller did."`
	Action string    `query:"action" maxLength:"32" doc:"Only this action, such as submit, exec or revoke."`
	Node   string    `query:"node" maxLength:"128" doc:"Only the log of this node's daemon: its id, a unique part of it, or its name. Without it: of all daemons."`
	Limit  int       `query:"limit" minimum:"0" maximum:"1000" doc:"Most entries in the answer; 0 means 100."`
}

type auditOutput struct{ Body Listing[AuditEntry] }

// auditRoutes serves the audit logs.
type auditRoutes struct {
	*daemons

	log Audit
}

func (r *auditRoutes) list(ctx context.Context, in *auditInput) (*auditOutput, error) {
	f := AuditFilter{Since: in.Since, User: in.User, Action: in.Action, Limit: cmp.Or(in.Limit, auditLimit)}
	if f.Action != "" && !audit.Action(f.Action).Known() {
		return nil, bad("action %s: there is none of that name; want one of %s", quote(f.Action), strings.Join(actionWords(), ", "))
	}
	a := requesterOf(ctx)
	if in.Mine {
		if f.User != "" {
			return nil, bad("mine: not with user")
		}
		f.User = a.user
	}
	if !a.operator {
		if err := ownEntries(a, f.User); err != nil {
			return nil, err
		}
		f.User = a.user
	}
	ask, err := r.asked(ctx, in.Node)
	if err != nil {
		return nil, err
	}
	m := &merge{limit: f.Limit}
	var others []Member
	for _, member := range ask {
		if !member.Self {
			others = append(others, member)
			continue
		}
		found, err := r.log.Find(ctx, audit.Query{Since: f.Since, User: f.User, Action: audit.Action(f.Action), Limit: f.Limit})
		if err != nil {
			return nil, err
		}
		own := make([]AuditEntry, len(found))
		for i := range found {
			own[i].Entry = found[i]
		}
		m.add(member, own)
	}
	answers := r.askForEntries(ctx, others, f, m)
	return &auditOutput{Listing[AuditEntry]{Schema: SchemaAudit, Items: m.entries(), Partial: silent(r.daemons, answers)}}, nil
}

// actionWords returns the words of all actions, in their order.
func actionWords() []string {
	var words []string
	for _, a := range audit.Actions() {
		words = append(words, string(a))
	}
	return words
}

// ownEntries returns an error if a user who is not an operator asks for the entries of another user.
func ownEntries(a requester, user string) error {
	if a.user == "" || (user != "" && user != a.user) {
		return fmt.Errorf("show what %s did: %w: you are %s, and only operators see what others did", quote(user), ErrDenied, quote(a.user))
	}
	return nil
}

// asked returns the daemons whose logs the request is about. For a request of another daemon it is only this daemon.
func (r *auditRoutes) asked(ctx context.Context, node string) ([]Member, error) {
	if requesterOf(ctx).from == fromPeer {
		return []Member{{Peer: r.self, Self: true}}, nil
	}
	if node != "" {
		m, err := r.find(ctx, node)
		return []Member{m}, err
	}
	members, err := r.peers.Members(ctx)
	if err != nil {
		return nil, err
	}
	members = slices.Clone(members)
	for i := range members {
		members[i].Self = members[i].Self || members[i].Peer == r.self
	}
	return members, nil
}

// askForEntries asks other daemons, and adds what they answer.
func (r *auditRoutes) askForEntries(ctx context.Context, others []Member, f AuditFilter, m *merge) []answer[struct{}] {
	ctx, cancel := context.WithTimeout(ctx, fanTotal)
	defer cancel()
	return askAll(ctx, others, auditWait, func(ctx context.Context, o Member) (none struct{}, err error) {
		if o.State == NodeLost {
			return none, ErrUnavailable
		}
		var l Listing[AuditEntry]
		if err := r.ask(ctx, o.Peer, "/v1/audit", f.query(), &l); err != nil {
			return none, err
		}
		n := len(l.Items)
		l.Items = slices.DeleteFunc(l.Items, func(e AuditEntry) bool { return !e.Valid() })
		r.metrics.dropped(n - len(l.Items))
		m.add(o, l.Items)
		return none, nil
	})
}

// merge keeps the newest entries of several logs.
type merge struct {
	limit int

	mu  sync.Mutex
	all []AuditEntry // guarded by mu; sorted
}

// add adds the entries of the log of one member. It overwrites the fields that say whose log it is, because another daemon
// could claim anything.
func (m *merge) add(of Member, more []AuditEntry) {
	for i := range more {
		more[i].Schema, more[i].Node, more[i].NodeID = SchemaAuditEntry, of.label(), of.Peer
		more[i].Time = more[i].Time.UTC()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, more...)
	slices.SortStableFunc(m.all, func(a, b AuditEntry) int {
		return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.NodeID, b.NodeID))
	})
	m.all = slices.Clone(m.all[:min(len(m.all), m.limit)])
}

func (m *merge) entries() []AuditEntry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]AuditEntry{}, m.all...)
}

// Audit lists entries of the audit logs, the newest first.
func (c *Client) Audit(ctx context.Context, f AuditFilter) (l Listing[AuditEntry], err error) {
	err = c.call(ctx, http.MethodGet, "/v1/audit", f.query(), nil, &l)
	return l, err
}
