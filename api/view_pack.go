package api

// Less memory for the view: its documents and events are compressed with a common dictionary, and equal strings are shared.

import (
	"time"

	"github.com/musterhq/muster/api/view"
	"github.com/musterhq/muster/job"
)

// typicalText returns the dictionary: the events of a task, a GPU, a node and a job. They have the words of most rows and
// events of a view.
func typicalText() []byte {
	at, code, peer, id := time.Unix(1_800_000_000, 123456789).UTC(), 0, job.Peer("12D3KooW"), job.NewID(1, 1)
	t := Task{
		Schema: SchemaTask, Job: id, State: job.Running, NodeID: peer, Node: "node", Attempt: 1, Runs: 1, PID: 1, Isolation: "cgroup v2 (cpu, memory, pids, devices)",
		ExitCode: &code, GPUs: []string{"GPU-"}, StartedAt: &at, EndedAt: &at,
	}
	n := Node{Schema: SchemaNode, ID: peer, Name: "node", State: NodeReady, Addrs: []string{"/ip4/10.0.0.1/tcp/4980"}}
	g := GPU{Schema: SchemaGPU, Node: "node", NodeID: peer, UUID: "GPU-", Health: "healthy", Jobs: []job.ID{id}, Job: id, GPUReading: GPUReading{ReadAt: &at}}
	j := Job{
		Schema: SchemaJob, ID: id, User: "user", State: job.Running, ExitCode: &code, Nodes: 1, SubmittedAt: at, StartedAt: &at, EndedAt: &at, Owner: peer, OwnerName: "node", Copies: 3,
		ExitStatus: &code, TaskCount: 1, Counts: map[job.State]int{job.Pending: 1, job.Running: 1, job.Succeeded: 1}, Tasks: []Task{t},
	}
	var text []byte
	for _, c := range []change{
		{viewEvent: viewEvent{kind: EventTask, job: id}, field: "task", doc: textOf(&t)},
		{viewEvent: viewEvent{kind: EventGPU}, field: "gpu", node: peer, doc: textOf(&g)},
		{viewEvent: viewEvent{kind: EventNode}, field: "node", node: peer, doc: textOf(&n)},
		{viewEvent: viewEvent{kind: EventJob, job: id}, field: "job", doc: textOf(&j)},
	} {
		text = append(text, frameOf("-1", at, &c, c.doc)...)
	}
	return text
}

// packs holds the packer of a view's documents and events, and the strings that many of its rows have.
type packs struct {
	*view.Packer

	names map[string]string
}

func newPacks() *packs { return &packs{view.NewPacker(typicalText()), map[string]string{}} }

// Bounds of the strings that are shared. When there are maxNames, all are dropped and collected again.
const (
	maxNames = 4096
	maxName  = 128 // bytes
)

// one returns a string equal to s. If s is short, all equal strings share their memory.
func one[S ~string](t *packs, s S) S {
	if len(s) > maxName {
		return s
	}
	if same, known := t.names[string(s)]; known {
		return S(same)
	}
	if len(t.names) >= maxNames {
		clear(t.names)
	}
	t.names[string(s)] = string(s)
	return s
}

// share makes the strings of a node's GPUs share memory with equal strings.
func (t *packs) share(n *Node) {
	for i := range n.GPUs {
		g := &n.GPUs[i]
		g.Schema, g.Node, g.NodeID, g.Model, g.Class, g.Compute, g.Health = one(t, g.Schema), one(t, g.Node), one(t, g.NodeID), one(t, g.Model), one(t, g.Class), one(t, g.Compute), one(t, g.Health)
	}
}
