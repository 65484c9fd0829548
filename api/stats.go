package api

// The route of the cluster's totals.

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/musterhq/muster/job"
)

func (r *nodeRoutes) stats(ctx context.Context, in *statsInput) (*listingOutput, error) {
	own, queue, err := r.ownStats(ctx)
	if err != nil {
		return nil, err
	}
	params := ListingInput{Fresh: in.Fresh, NoCache: in.NoCache, Match: in.Match}
	if requesterOf(ctx).from == fromPeer {
		own.Queue = queue
		return params.unlessSame(maphash.Bytes(etagSeed, textOf(&own)), func() []byte { return append(textOf(&own), '\n') }), nil
	}
	rows, ask, v, err := r.fromView(ctx, nil, params.fresh())
	if err != nil {
		return nil, err
	}
	answers := askThem[Stats](ctx, r.daemons, ask, "/v1/stats", nil)
	sum, queues := own, queueSum{}
	queues.add("", queue, 0)
	for _, x := range rows {
		if x.silent {
			sum.Nodes[x.State]++
			sum.Partial = append(sum.Partial, x.Name)
			continue
		}
		sum.add(nodeStats(x.Node, x.counts))
		queues.add(x.Name, x.queue, r.ahead(x.ID))
	}
	for i := range answers {
		a := &answers[i]
		if a.err == nil && !a.value.ofOneNode() {
			a.err = fmt.Errorf("%w: its totals are not of itself, or cannot be true", ErrUnavailable)
			r.metrics.dropped(1)
		}
		if a.err != nil {
			v.unanswered(a.member.Peer)
			sum.Nodes[silentNode(a.member).State]++
			continue
		}
		sum.add(a.value)
		queues.add(a.member.label(), a.value.Queue, r.ahead(a.member.Peer))
	}
	queues.into(&sum)
	sum.Partial = append(sum.Partial, silent(r.daemons, answers)...)
	slices.Sort(sum.Partial)
	hash := maphash.Bytes(etagSeed, textOf(&sum))
	sum.Age = oldest(rows).Seconds()
	return params.unlessSame(hash, func() []byte { return append(textOf(&sum), '\n') }), nil
}

// ownStats returns the totals of this daemon, and what the requester may see of its queue.
func (r *nodeRoutes) ownStats(ctx context.Context) (own Stats, queue *QueueInfo, err error) {
	info, err := r.node.Node(ctx)
	if err != nil {
		return own, nil, err
	}
	counts, err := r.watch.Counts(ctx)
	if err != nil {
		return own, nil, err
	}
	q, err := r.watch.Queue(ctx)
	if err != nil {
		return own, nil, err
	}
	n, a := NodeDocument(info), requesterOf(ctx)
	q = q.forDaemons()
	return nodeStats(&n, counts), q.seenBy(func(user string) bool { return a.may(partRow, &job.Job{User: user}) }), nil
}

func nodeStats(n *Node, counts map[job.State]int) Stats {
	s := Stats{
		Schema: SchemaStats, Nodes: map[NodeState]int{n.State: 1}, Jobs: map[job.State]int{}, Models: map[string]GPUAmount{},
		CPUs: Amount{int64(n.CPUs), int64(n.Free.CPUs)}, Memory: Amount{n.Memory, n.Free.Memory},
		GPUs: GPUAmount{0, int64(n.Free.GPUs), new(float64)}, Users: []UserLoad{}, Partial: []string{},
	}
	for state, count := range counts {
		s.Jobs[state] += count
	}
	for i := range n.GPUs {
		g := &n.GPUs[i]
		held := g.Held()
		one := GPUAmount{Total: 1, Held: &held}
		s.GPUs = s.GPUs.plus(one)
		if g.Free == 1 {
			one.Free = 1
		}
		m, there := s.Models[g.Class]
		if !there {
			m.Held = new(float64)
		}
		s.Models[g.Class] = m.plus(one)
		if u := g.Utilization; u >= 0 && g.ReadAt != nil {
			s.inUse(&GPUsInUse{Known: 1, Busy: float64(min(u, 100)) / 100})
		}
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
		if m, there := s.Models[k]; there {
			v = m.plus(v)
		}
		s.Models[k] = v
	}
	s.inUse(o.InUse)
	s.CPUs, s.Memory, s.GPUs = s.CPUs.plus(o.CPUs), s.Memory.plus(o.Memory), s.GPUs.plus(o.GPUs)
}

// inUse adds the utilization of GPUs for which it is known. Impossible figures of another daemon are ignored.
func (s *Stats) inUse(u *GPUsInUse) {
	if u == nil || u.Known < 1 || u.Busy < 0 || u.Busy > float64(u.Known) {
		return
	}
	if s.InUse == nil {
		s.InUse = &GPUsInUse{}
	}
	s.InUse.Known += u.Known
	s.InUse.Busy += u.Busy
}

func (a Amount) plus(b Amount) Amount { return Amount{a.Total + b.Total, a.Free + b.Free} }

// plus adds amounts. If Held is unknown in one of them, it is unknown in the sum.
func (a GPUAmount) plus(b GPUAmount) GPUAmount {
	sum := GPUAmount{Total: a.Total + b.Total, Free: a.Free + b.Free}
	if a.Held != nil && b.Held != nil {
		held := toShare(*a.Held + *b.Held)
		sum.Held = &held
	}
	return sum
}
