package api

// The route that declares a node dead. Every daemon that owns jobs then gives up its tasks on that node. First the daemon
// asks every owner whether the node answers the owner. If the node answers nobody, all owners give up their tasks. If it
// answers with a new data directory, they give up only the tasks that were started with an earlier one, because the node
// does not know these.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// Death is the result of declaring a node dead.
type Death struct {
	Schema     string     `json:"schema"`
	ID         job.Peer   `json:"id"`
	Name       string     `json:"name"`
	DryRun     bool       `json:"dry_run"`
	Tasks      int        `json:"tasks" doc:"Number of tasks that were given up. In a dry run: that would be given up."`
	Daemons    int        `json:"daemons" doc:"Number of daemons that own these tasks."`
	LastSeenAt *time.Time `json:"last_seen_at" doc:"When the daemon that was asked last saw the node; null: never."`
	Detail     string     `json:"detail,omitempty" doc:"What is known about the end of the node, for people."`
	Partial    []string   `json:"partial" nullable:"false" doc:"Names of daemons that did not answer. Their jobs may have tasks on the node: declare it dead again when they are back."`
}

// DeclareDeadRequest states that a node runs nothing any more.
type DeclareDeadRequest struct {
	DryRun bool   `json:"dry_run,omitempty" doc:"Change nothing. Report whether the node may be declared dead, and how many tasks would be given up."`
	Store  string `json:"store,omitempty" maxLength:"128" doc:"Id of the data directory with which the node answers. Only tasks that were started with an earlier one are given up. Only between daemons."`
}

type (
	deathInput struct {
		ID   string              `path:"id" maxLength:"128" doc:"The node's id, a unique part of it, or its name."`
		Body *DeclareDeadRequest `required:"false"`
	}
	deathOutput struct{ Body Death }
)

// Timeouts and bounds. Together the timeouts are shorter than a client waits.
const (
	// for the answer of the node itself, or of one owner: a dial across a relay takes some seconds.
	deathCheck    = 3 * time.Second
	deathCheckAll = 8 * time.Second       // for all owners: silent ones take deathCheck each, fanWidth at a time
	deathAct      = 33 * time.Second      // for the change itself: an owner stops trying to commit it after 30 s
	maxGiven      = 1 << 20               // tasks in an owner's answer: more than a host runs; keeps sums in range
	roleOwner     = "scheduler"           // the role of members that own jobs
	peerIDBegin   = "12D3KooW"            // the beginning of every ID that muster makes
	peerIDLength  = len(peerIDBegin) + 44 // the length of such an ID
)

// errAnswers says that a node is not dead, because it answers the named daemon.
func errAnswers(node, whom string) error {
	return fmt.Errorf("node %s: %w: it answers %s, so it is not dead; drain it instead", node, ErrConflict, whom)
}

// deathRoutes declares nodes dead.
type deathRoutes struct {
	*daemons

	deaths Deaths
	log    *slog.Logger
}

func (d *deathRoutes) declare(ctx context.Context, in *deathInput) (*deathOutput, error) {
	if err := operator(ctx, "declare node "+quote(in.ID)+" dead"); err != nil {
		return nil, err
	}
	var body DeclareDeadRequest
	if in.Body != nil {
		body = *in.Body
	}
	dryRun := body.DryRun
	if dryRun {
		requesterOf(ctx).note.never()
	}
	if requesterOf(ctx).from == fromPeer { // another daemon gives the whole ID; this daemon need not know the node
		m := Member{Peer: job.Peer(in.ID)}
		tasks, err := d.deadHere(ctx, m.Peer, body)
		if err != nil {
			return nil, err
		}
		return &deathOutput{deathOf(m, dryRun, []answer[int]{{value: tasks}})}, nil
	}
	if body.Store != "" {
		return nil, fmt.Errorf("%w: the store of a node is asked of the node itself", ErrBad)
	}
	m, err := d.perhapsDead(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	requesterOf(ctx).note.about(string(m.Peer))
	requesterOf(ctx).note.with("name", m.Name)
	owners, err := d.owners(ctx, m.Peer)
	if err != nil {
		return nil, err
	}
	checked, store, err := d.checkDead(ctx, m, owners)
	if err != nil || dryRun {
		return &deathOutput{deathOf(m, true, checked)}, err
	}
	d.log.WarnContext(ctx, "node declared dead", "node", m.label(), "peer", string(m.Peer), "user", requesterOf(ctx).user)
	acted, err := d.actDead(ctx, m, store, checked)
	if err != nil {
		return nil, err
	}
	return &deathOutput{deathOf(m, false, acted)}, nil
}

// perhapsDead finds the node that a user names. A node that this daemon has forgotten or never met must be given by
// its whole ID.
func (d *deathRoutes) perhapsDead(ctx context.Context, text string) (Member, error) {
	m, err := d.find(ctx, text)
	switch {
	case errors.Is(err, ErrNotFound) && len(text) == peerIDLength && strings.HasPrefix(text, peerIDBegin):
		return Member{Peer: job.Peer(text), State: NodeLost}, nil
	case errors.Is(err, ErrNotFound):
		return m, &notFoundError{"node", text, "`muster nodes` lists them; for a node that was revoked or forgotten give its whole id, node_id in `muster show --json`"}
	case err == nil && m.Self:
		return m, errAnswers(m.label(), "you")
	}
	return m, err
}

// owners returns the members that may have tasks on the node, this daemon included. Those that are likely to answer
// come first.
func (d *deathRoutes) owners(ctx context.Context, node job.Peer) ([]Member, error) {
	members, err := d.peers.Members(ctx)
	if err != nil {
		return nil, err
	}
	var owners []Member
	for _, m := range members {
		m.Self = m.Self || m.Peer == d.self
		if m.Peer != node && (m.Self || slices.Contains(m.Roles, roleOwner)) {
			owners = append(owners, m)
		}
	}
	slices.SortStableFunc(owners, func(a, b Member) int { return silence(a) - silence(b) })
	return owners, nil
}

func silence(m Member) int {
	return slices.Index([]NodeState{NodeReady, NodeDraining, NodeSuspect, NodeLost}, m.State)
}

// checkDead asks the node and all owners whether the node answers, and returns what each owner would give up. store is
// empty for a silent node. For a node that answers, store is the id of its data directory, and the answers count only the
// tasks that were started with an earlier one.
func (d *deathRoutes) checkDead(ctx context.Context, m Member, owners []Member) (all []answer[int], store string, err error) {
	ctx, cancel := context.WithTimeout(ctx, deathCheckAll)
	defer cancel()
	alive := make(chan bool, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, deathCheck)
		defer cancel()
		var n Node
		err := d.ask(ctx, m.Peer, "/v1/nodes/"+string(m.Peer), url.Values{}, &n)
		_, refused := errors.AsType[*Problem](err)
		store = n.Store
		alive <- err == nil || refused
	}()
	answers := d.askOwners(ctx, m.Peer, owners, DeclareDeadRequest{DryRun: true}, deathCheck)
	if !<-alive {
		return answers, "", refusal(m, answers)
	}
	if store != "" {
		answers = d.askOwners(ctx, m.Peer, owners, DeclareDeadRequest{DryRun: true, Store: store}, deathCheck)
	}
	if store == "" || deathOf(m, true, answers).Tasks == 0 {
		return nil, "", errAnswers(m.label(), d.nameOf(d.self))
	}
	return answers, store, refusal(m, answers)
}

// actDead makes the owners give up their tasks on the node. Owners that did not answer the check stay marked as
// silent.
func (d *deathRoutes) actDead(ctx context.Context, m Member, store string, checked []answer[int]) ([]answer[int], error) {
	ctx, cancel := context.WithTimeout(ctx, deathAct)
	defer cancel()
	var silent []answer[int]
	var owners []Member
	for _, a := range checked {
		if a.err != nil {
			silent = append(silent, a)
			continue
		}
		owners = append(owners, a.member)
	}
	acted := d.askOwners(ctx, m.Peer, owners, DeclareDeadRequest{Store: store}, deathAct)
	for _, a := range acted {
		if a.err != nil {
			d.log.WarnContext(ctx, "an owner could not give up its tasks on a node declared dead", "owner", a.member.label(), "node", m.label(), "error", a.err)
		}
	}
	if err := refusal(m, acted); err != nil {
		return nil, fmt.Errorf("%w; it began to answer meanwhile, after %d tasks had been given up", err, deathOf(m, false, acted).Tasks)
	}
	if len(acted) == 1 && acted[0].member.Self && acted[0].err != nil {
		return nil, acted[0].err // no other answer would say more
	}
	return append(acted, silent...), nil
}

// askOwners sends the request to each owner; this daemon does its own part directly.
func (d *deathRoutes) askOwners(ctx context.Context, node job.Peer, owners []Member, body DeclareDeadRequest, wait time.Duration) []answer[int] {
	return askAll(ctx, owners, wait, func(ctx context.Context, o Member) (int, error) {
		if o.Self {
			return d.deadHere(ctx, node, body)
		}
		var death Death
		err := d.exchange(ctx, http.MethodPost, o.Peer, "/v1/nodes/"+string(node)+"/declare-dead", nil, body, &death)
		if err == nil && (death.Tasks < 0 || death.Tasks > maxGiven) {
			err = fmt.Errorf("%w: %d tasks in its answer", ErrUnavailable, death.Tasks)
		}
		return death.Tasks, err
	})
}

// deadHere counts or gives up the tasks of this daemon's own jobs on the node, unless the node answers.
func (d *deathRoutes) deadHere(ctx context.Context, node job.Peer, body DeclareDeadRequest) (tasks int, err error) {
	if body.Store == "" {
		if err := d.silentHere(ctx, node); err != nil {
			return 0, err
		}
	}
	if body.DryRun {
		return d.deaths.MayBeDead(ctx, node, body.Store)
	}
	return d.deaths.DeclareDead(ctx, node, body.Store, requesterOf(ctx).user)
}

// silentHere returns an error if the node answers this daemon.
func (d *deathRoutes) silentHere(ctx context.Context, node job.Peer) error {
	members, err := d.peers.Members(ctx)
	if err != nil {
		return err
	}
	here := d.self.Short()
	for _, m := range members {
		switch {
		case m.Self || m.Peer == d.self:
			here = m.label()
			m.State = NodeReady
		case m.Peer != node:
			continue
		}
		if m.Peer == node && (m.State == NodeReady || m.State == NodeDraining) {
			return errAnswers(m.label(), here)
		}
	}
	return nil
}

// refusal returns an error that names the first owner that the node answers; nil if there is none. It does not pass on the
// owner's text.
func refusal(m Member, answers []answer[int]) error {
	for _, a := range answers {
		if errors.Is(a.err, ErrConflict) {
			return errAnswers(m.label(), a.member.label())
		}
	}
	return nil
}

// deathOf sums up the answers of the owners.
func deathOf(m Member, dryRun bool, answers []answer[int]) Death {
	d := Death{
		Schema: SchemaDeath, ID: m.Peer, Name: m.label(), DryRun: dryRun, LastSeenAt: at(m.LastSeen), Detail: m.Detail, Partial: []string{},
	}
	for _, a := range answers {
		switch {
		case a.err != nil:
			d.Partial = append(d.Partial, a.member.label())
		case a.value > 0:
			d.Tasks += a.value
			d.Daemons++
		}
	}
	slices.Sort(d.Partial)
	return d
}
