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

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/job"
)

type (
	nodesOutput struct{ Body Listing[Node] }
	nodeOutput  struct{ Body Node }
	gpusOutput  struct{ Body Listing[GPU] }
	statsOutput struct{ Body Stats }
	nodeInput   struct {
		ID string `path:"id" maxLength:"128" doc:"The node's id or name."`
	}
	gpusInput struct {
		Free bool `query:"free" doc:"Only GPUs that are wholly free."`
	}
)

// nodeRoutes serves this node, and merges the answers of all others.
type nodeRoutes struct {
	*daemons

	node  NodeSource
	watch Watch
}

// nodes returns this node and, unless the request is from another daemon, all others. A node that does not answer
// appears as it was last known.
func (r *nodeRoutes) nodes(ctx context.Context) ([]Node, []string, error) {
	info, err := r.node.Node(ctx)
	if err != nil {
		return nil, nil, err
	}
	answers, err := fan[Listing[Node]](ctx, r.daemons, "/v1/nodes", nil)
	if err != nil {
		return nil, nil, err
	}
	list := []Node{NodeDocument(info)}
	for i := range answers {
		a := &answers[i]
		if a.err == nil && (len(a.value.Items) != 1 || !a.value.Items[0].isOf(a.member.Peer)) {
			a.err = fmt.Errorf("%w: its answer is not about itself", ErrUnavailable)
			r.metrics.dropped(len(a.value.Items))
		}
		if a.err != nil {
			list = append(list, silentNode(a.member))
			continue
		}
		n := a.value.Items[0]
		n.vouch(a.member.Signed)
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b Node) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID), string(b.ID))
	})
	return list, silent(r.daemons, answers), nil
}

// isOf reports whether a node and its GPUs are those of a daemon.
func (n *Node) isOf(p job.Peer) bool {
	return n.ID == p && !slices.ContainsFunc(n.GPUs, func(g GPU) bool { return g.NodeID != p })
}

// silentNode returns what is known of a node that does not answer: what it has, but not what is free.
func silentNode(m Member) Node {
	p := m.Profile
	p.Peer, p.Name = m.Peer, m.label()
	n := NodeDocument(NodeInfo{Profile: p, State: m.State, Detail: cmp.Or(m.Detail, "it does not answer"), Addrs: m.Addrs})
	if n.State != NodeLost {
		n.State = NodeSuspect
	}
	return n
}

func (r *nodeRoutes) list(ctx context.Context, _ *struct{}) (*nodesOutput, error) {
	list, partial, err := r.nodes(ctx)
	if err != nil {
		return nil, err
	}
	return &nodesOutput{Listing[Node]{Schema: SchemaNodes, Items: list, Partial: partial}}, nil
}

func (r *nodeRoutes) listGPUs(ctx context.Context, in *gpusInput) (*gpusOutput, error) {
	nodes, partial, err := r.nodes(ctx)
	if err != nil {
		return nil, err
	}
	l := Listing[GPU]{Schema: SchemaGPUs, Items: []GPU{}, Partial: partial}
	for _, n := range nodes {
		for _, g := range n.GPUs {
			if !in.Free || (g.Free == 1 && g.Health == gpu.Healthy && n.State == NodeReady) {
				l.Items = append(l.Items, g)
			}
		}
	}
	return &gpusOutput{l}, nil
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
		return &nodeOutput{NodeDocument(info)}, nil
	}
	if requesterOf(ctx).from == fromPeer {
		return nil, &notFoundError{"node", in.ID, "the request reached the daemon of another node"}
	}
	n := silentNode(m)
	if m.State != NodeLost {
		ctx, cancel := context.WithTimeout(ctx, fanTotal)
		defer cancel()
		var fresh Node
		err := r.ask(ctx, m.Peer, "/v1/nodes/"+string(m.Peer), url.Values{}, &fresh)
		if err == nil && !fresh.isOf(m.Peer) {
			err = ErrUnavailable
			r.metrics.dropped(1)
		}
		if err == nil {
			n = fresh
			n.vouch(m.Signed)
		} else if !errors.Is(err, ErrUnavailable) {
			return nil, err
		}
	}
	return &nodeOutput{n}, nil
}

func (r *nodeRoutes) stats(ctx context.Context, _ *struct{}) (*statsOutput, error) {
	info, err := r.node.Node(ctx)
	if err != nil {
		return nil, err
	}
	counts, err := r.watch.Counts(ctx)
	if err != nil {
		return nil, err
	}
	answers, err := fan[Stats](ctx, r.daemons, "/v1/stats", nil)
	if err != nil {
		return nil, err
	}
	sum := nodeStats(NodeDocument(info), counts)
	for i := range answers {
		a := &answers[i]
		if a.err == nil && !a.value.ofOneNode() {
			a.err = fmt.Errorf("%w: its totals are not of itself", ErrUnavailable)
			r.metrics.dropped(1)
		}
		if a.err != nil {
			sum.Nodes[silentNode(a.member).State]++
			continue
		}
		sum.add(a.value)
	}
	sum.Partial = silent(r.daemons, answers)
	return &statsOutput{sum}, nil
}

// ofOneNode reports whether the totals are those of one node.
func (s *Stats) ofOneNode() bool {
	n := 0
	for _, count := range s.Nodes {
		if count < 0 || count > 1 {
			return false
		}
		n += count
	}
	return n == 1
}

func nodeStats(n Node, counts map[job.State]int) Stats {
	s := Stats{
		Schema: SchemaStats, Nodes: map[NodeState]int{n.State: 1}, Jobs: map[job.State]int{}, Models: map[string]Amount{},
		CPUs: Amount{int64(n.CPUs), int64(n.Free.CPUs)}, Memory: Amount{n.Memory, n.Free.Memory},
		GPUs: Amount{int64(len(n.GPUs)), int64(n.Free.GPUs)},
	}
	for state, count := range counts {
		s.Jobs[state] += count
	}
	for _, g := range n.GPUs {
		m := s.Models[g.Class]
		m.Total++
		if g.Free == 1 {
			m.Free++
		}
		s.Models[g.Class] = m
	}
	return s
}

func (s *Stats) add(o Stats) {
	for k, v := range o.Nodes {
		s.Nodes[k] += v
	}
	for k, v := range o.Jobs {
		s.Jobs[k] += v
	}
	for k, v := range o.Models {
		s.Models[k] = s.Models[k].plus(v)
	}
	s.CPUs, s.Memory, s.GPUs = s.CPUs.plus(o.CPUs), s.Memory.plus(o.Memory), s.GPUs.plus(o.GPUs)
}

func (a Amount) plus(b Amount) Amount { return Amount{a.Total + b.Total, a.Free + b.Free} }
