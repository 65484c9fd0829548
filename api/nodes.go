package api

// The routes of nodes, GPUs and the cluster's totals.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

type (
	nodesInput struct{ ListingInput }
	nodeOutput struct{ Body Node }
	nodeInput  struct {
		ID string `path:"id" maxLength:"128" doc:"The node's id or name."`
	}
	gpusInput struct {
		ListingInput

		Free bool     `query:"free" doc:"Only GPUs that are wholly free."`
		Node []string `query:"node" maxItems:"256" doc:"Only GPUs of these nodes, by id or name."`
	}
	statsInput struct {
		Fresh   bool   `query:"fresh" doc:"Ask all nodes now. Otherwise the answer has what they have told within the last second."`
		NoCache string `header:"Cache-Control" maxLength:"256" doc:"no-cache means the same as fresh."`
		Match   string `header:"If-None-Match" maxLength:"1024" doc:"The ETag of an earlier answer. If nothing but the age has changed, the answer is 304 without a body."`
	}
)

// nodeRoutes serves this node, and what all other nodes have reported.
type nodeRoutes struct {
	*daemons

	node   NodeSource
	watch  Watch
	viewer *viewer
}

// nodeOrders are the orders by which nodes can be sorted.
var nodeOrders = orders[nodeRow]{
	"name":    func(a, b *nodeRow) int { return strings.Compare(a.Name, b.Name) },
	"id":      func(a, b *nodeRow) int { return strings.Compare(string(a.ID), string(b.ID)) },
	"state":   func(a, b *nodeRow) int { return strings.Compare(string(a.State), string(b.State)) },
	"version": func(a, b *nodeRow) int { return strings.Compare(a.Version, b.Version) },
	"cpus":    func(a, b *nodeRow) int { return cmp.Compare(a.CPUs, b.CPUs) },
	"memory":  func(a, b *nodeRow) int { return cmp.Compare(a.Memory, b.Memory) },
	"disk":    func(a, b *nodeRow) int { return cmp.Compare(a.Disk, b.Disk) },
	"running": func(a, b *nodeRow) int { return cmp.Compare(a.RunningOr(-1), b.RunningOr(-1)) },
	"age":     func(a, b *nodeRow) int { return cmp.Compare(a.age, b.age) },
}

// gpuOrders are the orders by which GPUs can be sorted.
var gpuOrders = orders[GPU]{
	"node":        func(a, b *GPU) int { return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.Index, b.Index)) },
	"uuid":        func(a, b *GPU) int { return strings.Compare(a.UUID, b.UUID) },
	"model":       func(a, b *GPU) int { return strings.Compare(a.Model, b.Model) },
	"class":       func(a, b *GPU) int { return strings.Compare(a.Class, b.Class) },
	"memory":      func(a, b *GPU) int { return cmp.Compare(a.Memory, b.Memory) },
	"memory_used": func(a, b *GPU) int { return cmp.Compare(a.MemoryUsed, b.MemoryUsed) },
	"utilization": func(a, b *GPU) int { return cmp.Compare(a.Utilization, b.Utilization) },
	"temperature": func(a, b *GPU) int { return cmp.Compare(a.Temperature, b.Temperature) },
	"power":       func(a, b *GPU) int { return cmp.Compare(a.Power, b.Power) },
	"health":      func(a, b *GPU) int { return strings.Compare(string(a.Health), string(b.Health)) },
	"free":        func(a, b *GPU) int { return cmp.Compare(a.Free, b.Free) },
	"job":         func(a, b *GPU) int { return strings.Compare(string(a.Job), string(b.Job)) },
}

// nodeRow is a node in a listing. Its document is shared and must not be changed.
type nodeRow struct {
	*Node
	item
	counts map[job.State]int // the jobs of its daemon by state; nil: not known
	queue  *QueueInfo        // what the requester may see of its queue; nil: not known
	silent bool
}

func rowOfNode(n *Node, seen time.Time) nodeRow {
	return nodeRow{Node: n, item: item{itemText: itemText{text: textOf(n)}, aged: true, seen: seen}}
}

// nodes returns this node and, unless the request is from another daemon, all others. A node that does not answer
// appears as it was last known.
func (r *nodeRoutes) nodes(ctx context.Context, fresh bool) (rows []nodeRow, partial []string, err error) {
	info, err := r.node.Node(ctx)
	if err != nil {
		return nil, nil, err
	}
	own := NodeDocument(info)
	rows = []nodeRow{rowOfNode(&own, time.Now())}
	rows, ask, v, err := r.fromView(ctx, rows, fresh)
	if err != nil {
		return nil, nil, err
	}
	answers := askThem[Listing[Node]](ctx, r.daemons, ask, "/v1/nodes", nil)
	for i := range answers {
		a := &answers[i]
		if a.err == nil && (len(a.value.Items) != 1 || !a.value.Items[0].isOf(a.member.Peer)) {
			a.err = fmt.Errorf("%w: its answer is not about itself, or cannot be true", ErrUnavailable)
			r.metrics.dropped(len(a.value.Items))
		}
		if a.err != nil {
			v.unanswered(a.member.Peer)
			rows = append(rows, silentRow(a.member, a.member.LastSeen))
			continue
		}
		n := &a.value.Items[0]
		n.Age, n.SeenAt = nil, nil
		n.vouch(a.member.Signed)
		rows = append(rows, rowOfNode(n, time.Now()))
	}
	for _, x := range rows {
		if x.silent {
			partial = append(partial, x.Name)
		}
	}
	r.metrics.silence(len(partial))
	slices.SortFunc(rows, func(a, b nodeRow) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.ID), string(b.ID)))
	})
	return rows, partial, nil
}

// fromView adds the nodes of which the view has the state, and returns the members that must be asked.
func (r *nodeRoutes) fromView(ctx context.Context, rows []nodeRow, fresh bool) (all []nodeRow, ask []Member, v *clusterView, err error) {
	others, err := r.others(ctx)
	if err != nil || fresh || requesterOf(ctx).from == fromPeer {
		return rows, others, nil, err
	}
	v = r.viewer.look(ctx)
	a := requesterOf(ctx)
	ask = v.see(others, func(m *viewMember, c contact, told time.Time) {
		if c == contactSilent {
			rows = append(rows, silentRow(m.Member, told))
			return
		}
		x := nodeRow{Node: m.node, item: item{itemText: m.document(v.packer.Packer), aged: true, age: time.Since(told), seen: told}, counts: m.counts}
		if q := m.queue; q != nil {
			x.queue = q.seenBy(func(user string) bool { return m.sight.may(&a, user) })
		}
		rows = append(rows, x)
	})
	return rows, ask, v, nil
}

// silentRow is the row of a node that does not answer.
func silentRow(m Member, seen time.Time) nodeRow {
	n := silentNode(m)
	x := rowOfNode(&n, seen)
	x.silent, x.aged, x.age = true, !seen.IsZero(), time.Since(seen) // zero: this daemon has never met it
	return x
}

// oldest returns the greatest age of the nodes that answer.
func oldest(rows []nodeRow) (age time.Duration) {
	for _, x := range rows {
		if !x.silent {
			age = max(age, x.age)
		}
	}
	return age
}

// isOf reports whether a node and its GPUs are those of the daemon p, and have possible values.
func (n *Node) isOf(p job.Peer) bool {
	return n.ID == p && n.plausible() && !slices.ContainsFunc(n.GPUs, func(g GPU) bool { return g.NodeID != p })
}

// seen returns the node with its age and the time when it was last heard. It sets neither if this daemon never met the node.
func (n Node) seen(age time.Duration, seen time.Time) Node {
	n.Age, n.SeenAt = nil, at(seen)
	if !seen.IsZero() {
		seconds := age.Seconds()
		n.Age = &seconds
	}
	return n
}

// silentNode returns the document of a node that does not answer: what the node has, but not what is free.
func silentNode(m Member) Node {
	p := m.Profile
	p.Peer, p.Name = m.Peer, m.label()
	n := NodeDocument(NodeInfo{Profile: p, State: m.State, Detail: cmp.Or(m.Detail, "it does not answer"), Addrs: m.Addrs})
	if n.Running = nil; n.State != NodeLost {
		n.State = NodeSuspect
	}
	return n
}

func (r *nodeRoutes) list(ctx context.Context, in *nodesInput) (*listingOutput, error) {
	if err := checkFields[Node](in.Fields); err != nil {
		return nil, err
	}
	order, err := nodeOrders.of(cmp.Or(in.Sort, "name"))
	if err != nil {
		return nil, err
	}
	rows, partial, err := r.nodes(ctx, in.fresh())
	if err != nil {
		return nil, err
	}
	if in.Sort != "" {
		slices.SortStableFunc(rows, func(a, b nodeRow) int { return order(&a, &b) })
	}
	l := listing{schema: SchemaNodes, partial: partial, age: oldest(rows)}
	for _, x := range rows {
		l.items = append(l.items, x.item)
	}
	return l.answer(&in.ListingInput), nil
}

func (r *nodeRoutes) listGPUs(ctx context.Context, in *gpusInput) (*listingOutput, error) {
	if err := checkFields[GPU](in.Fields); err != nil {
		return nil, err
	}
	order, err := gpuOrders.of(cmp.Or(in.Sort, "node"))
	if err != nil {
		return nil, err
	}
	rows, partial, err := r.nodes(ctx, in.fresh())
	if err != nil {
		return nil, err
	}
	l := listing{schema: SchemaGPUs, partial: partial, age: oldest(rows)}
	var gpus []*GPU
	for _, n := range rows {
		if len(in.Node) > 0 && !slices.ContainsFunc(in.Node, Member{Peer: n.ID, Name: n.Name}.goesBy) {
			continue
		}
		for i := range n.GPUs {
			g := &n.GPUs[i]
			if !in.Free || (g.Free == 1 && g.Health == gpu.Healthy && n.State == NodeReady) {
				gpus = append(gpus, g)
			}
		}
	}
	if in.Sort != "" {
		slices.SortStableFunc(gpus, order)
	}
	for _, g := range gpus {
		l.items = append(l.items, item{itemText: itemText{text: textOf(g)}})
	}
	return l.answer(&in.ListingInput), nil
}

func (r *nodeRoutes) get(ctx context.Context, in *nodeInput) (*nodeOutput, error) {
	m, err := r.find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if m.Self {
		info, err := r.node.Node(ctx)
		if err != nil {
			return nil, err
		}
		return &nodeOutput{NodeDocument(info).seen(0, time.Now())}, nil
	}
	if requesterOf(ctx).from == fromPeer {
		return nil, &notFoundError{"node", in.ID, "the request reached the daemon of another node"}
	}
	n := silentNode(m).seen(time.Since(m.LastSeen), m.LastSeen)
	if m.State != NodeLost {
		ctx, cancel := context.WithTimeout(ctx, fanWait)
		defer cancel()
		var fresh Node
		err := r.ask(ctx, m.Peer, "/v1/nodes/"+string(m.Peer), url.Values{}, &fresh)
		if err == nil && !fresh.isOf(m.Peer) {
			err = ErrUnavailable
			r.metrics.dropped(1)
		}
		if err == nil {
			n = fresh.seen(0, time.Now())
			n.vouch(m.Signed)
		} else if !errors.Is(err, ErrUnavailable) {
			return nil, err
		}
	}
	return &nodeOutput{n}, nil
}
