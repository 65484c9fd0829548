package api

// The documents of nodes, GPUs, members, explanations and the daemon itself.

import (
	"maps"
	"math"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

// NodeState is the state of a node.
type NodeState string

// The states of a node.
const (
	NodeReady    NodeState = "ready"
	NodeDraining NodeState = "draining" // running tasks go on, nothing new starts
	NodeSuspect  NodeState = "suspect"  // silent for some seconds
	NodeLost     NodeState = "lost"     // silent for longer
)

// PeerRevoked is the state of a revoked peer. No node has this state.
const PeerRevoked = "revoked"

// Node is the document of a node.
type Node struct {
	Schema string    `json:"schema"`
	ID     job.Peer  `json:"id"`
	Name   string    `json:"name"`
	State  NodeState `json:"state" enum:"ready,draining,suspect,lost"`
	Detail string    `json:"detail,omitempty" doc:"Why it takes no tasks, for people."`
	NodeLabels

	Arch    string   `json:"arch,omitempty" doc:"As Go names it: amd64, arm64."`
	OS      string   `json:"os,omitempty"`
	Addrs   []string `json:"addrs" nullable:"false"`
	Version string   `json:"version"`
	TasksRun

	CPUs   int   `json:"cpus"`
	Memory int64 `json:"memory"`
	NodeData
	Free NodeFree `json:"free"`
	NodeLoad
	Drain  *Drain `json:"drain,omitempty" doc:"Set if a person has taken the node out of service."`
	GPUs   []GPU  `json:"gpus" nullable:"false"`
	Driver string `json:"gpu_driver,omitempty" doc:"Version of the driver of its GPUs."`

	Hearing
}

// NodeData is the part of a node's document that says where it keeps its data.
type NodeData struct {
	Disk  int64  `json:"disk"`
	Store string `json:"store,omitempty" doc:"Id of its data directory. A new data directory has another one."`
}

// NodeLoad is the part of a node's document that says what runs there, and what is in use.
type NodeLoad struct {
	Running *int     `json:"running" doc:"Number of tasks that run there; null: unknown, because the node does not answer."`
	Usage   *NodeNow `json:"usage" doc:"What the whole host uses, also what is not of tasks, beside what tasks have reserved; null: unknown."`
}

// RunningOr returns the number of running tasks, or unknown if it is not known.
func (l *NodeLoad) RunningOr(unknown int) int {
	if l.Running == nil {
		return unknown
	}
	return *l.Running
}

// Hearing is the part of a node's document that says how old the document is.
type Hearing struct {
	Age    *float64   `json:"age,omitempty" doc:"Seconds since this daemon was told of the node."`
	SeenAt *time.Time `json:"seen_at,omitempty" doc:"When this daemon last heard from the node."`
}

// NodeLabels are the labels of a node, as fields of its document.
type NodeLabels struct {
	Labels map[string]string `json:"labels" nullable:"false" doc:"All its labels."`
	Signed map[string]string `json:"signed_labels" nullable:"false" doc:"Those of its labels that an inviter of the cluster has signed. The others the node has given to itself."`
}

// TasksRun is the part of a node's document that says which tasks it runs.
type TasksRun struct {
	Worker   bool     `json:"worker" doc:"Whether it runs tasks."`
	Drivers  []string `json:"drivers" nullable:"false"`
	OnlyUser string   `json:"only_user,omitempty" doc:"It runs only tasks of this user. Empty: those of all users."`
	NoRoot   bool     `json:"no_root,omitempty" doc:"It runs no tasks of root."`
	Fencing  string   `json:"fencing,omitempty" enum:"yes,no,unknown" doc:"Whether it ends tasks with their leases for certain, even if its daemon and its runner are killed or stopped. Absent or unknown: its version does not say."`
	Boot     string   `json:"boot_id,omitempty" doc:"ID of the present boot of the host. Empty: its version does not say."`
}

// NodeFree holds the free resources of a node. GPUs counts only wholly free devices.
type NodeFree struct {
	CPUs   int   `json:"cpus"`
	Memory int64 `json:"memory"`
	GPUs   int   `json:"gpus"`
}

// GPU is the document of a GPU.
type GPU struct {
	Schema      string   `json:"schema"`
	Node        string   `json:"node"`
	NodeID      job.Peer `json:"node_id"`
	UUID        string   `json:"uuid"`
	Index       int      `json:"index"`
	Model       string   `json:"model"`
	Class       string   `json:"class"`
	Compute     string   `json:"compute_capability,omitempty"`
	Memory      int64    `json:"memory"`
	MemoryUsed  int64    `json:"memory_used" doc:"In bytes; -1: unknown."`
	Utilization int      `json:"utilization" doc:"In percent; -1: unknown."`
	GPUReading
	Health    gpu.Health `json:"health"`
	Detail    string     `json:"detail,omitempty" doc:"Why it is not healthy, or in quarantine."`
	Simulated bool       `json:"simulated"`
	Free      float64    `json:"free" doc:"Share of the device that no task has reserved, from 0 to 1."`
	Job       job.ID     `json:"job" doc:"The job that holds the device; empty if none does."`
	Jobs      []job.ID   `json:"jobs" nullable:"false" doc:"All jobs that hold the device or a share of it."`
	Links     []gpu.Link `json:"links,omitempty"`
}

// GPUReading is what the driver of a GPU measures, as fields of its document.
type GPUReading struct {
	Temperature int        `json:"temperature" doc:"In °C; 0: unknown."`
	Power       float64    `json:"power" doc:"In watts; 0: unknown."`
	IdleSince   *time.Time `json:"idle_since,omitempty" doc:"Since when the same task holds it with a utilization below 5 %, if that is 15 minutes or more and each value of that time is known."`
	ReadAt      *time.Time `json:"read_at" doc:"When use, health and measurements were read, by the clock of the node; null: never."`
}

// Peer is the document of a member of the cluster.
type Peer struct {
	Schema     string     `json:"schema"`
	ID         job.Peer   `json:"id"`
	Name       string     `json:"name"`
	State      NodeState  `json:"state" enum:"ready,draining,suspect,lost,revoked"`
	Self       bool       `json:"self"`
	Roles      []string   `json:"roles" nullable:"false"`
	Addrs      []string   `json:"addrs" nullable:"false"`
	LastSeenAt *time.Time `json:"last_seen_at"`
	// Revoked is set for a revoked peer.
	Revoked *PeerRevocation `json:"revoked,omitempty" doc:"Set for a peer that is out of the cluster."`
}

// PeerRevocation says when and why a peer was revoked.
type PeerRevocation struct {
	At          time.Time `json:"at" doc:"By the clock of the daemon that revoked it."`
	By          job.Peer  `json:"by,omitempty" doc:"The daemon that revoked it. Empty: the cluster key."`
	ByName      string    `json:"by_name,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	WithInvited bool      `json:"with_invited,omitempty" doc:"Those that it let in are out, too."`
	Here        bool      `json:"here" doc:"This daemon can take the revocation back."`
}

// Invitation is what a host needs to join.
type Invitation struct {
	Schema    string            `json:"schema"`
	Bootstrap []string          `json:"bootstrap" nullable:"false" doc:"Multiaddrs of the daemon that invites."`
	ID        string            `json:"id" doc:"The name of the invitation in the audit log. It is not secret."`
	Token     string            `json:"token"`
	Cluster   string            `json:"cluster"`
	ExpiresAt time.Time         `json:"expires_at"`
	Uses      int               `json:"uses"`
	Roles     []string          `json:"roles" nullable:"false"`
	Labels    map[string]string `json:"labels,omitempty" doc:"Labels that the hosts get with their credential."`
}

// Joined names the cluster that the daemon has joined.
type Joined struct {
	Schema  string `json:"schema"`
	Cluster string `json:"cluster"`
}

// Explanation says where a request could run, and which requirements exclude which nodes.
type Explanation struct {
	Schema       string            `json:"schema"`
	Job          job.ID            `json:"job,omitempty"`
	State        job.State         `json:"state,omitempty"`
	Task         *int              `json:"task,omitempty" doc:"Number of the task that the reason is about, if it is about one: a task that was asked for, or one that waits while others of its job are active."`
	TaskState    job.State         `json:"task_state,omitempty"`
	Reason       string            `json:"reason"`
	ReasonDetail string            `json:"reason_detail,omitempty"`
	Clauses      []contract.Clause `json:"clauses" nullable:"false"`
	Now          []Candidate       `json:"now" nullable:"false" doc:"Nodes that would take the request now, best first."`
	Later        []Candidate       `json:"later" nullable:"false" doc:"Nodes that could take the request once enough is free."`
	Nearest      *Nearest          `json:"nearest,omitempty" doc:"If no node would take the request now: with how much less of one resource one would."`
	Ahead        int               `json:"ahead" doc:"Waiting tasks of the same owner that are before it now and could use a node that it could use."`
	Estimated    *time.Time        `json:"estimated_start" doc:"When the job's first waiting task should start at the latest; null if that is not known."`
}

// Nearest says how much of one resource a request could ask for so that it fits, if its other amounts stay the same.
// Resources whose reduction alone would not help are left out.
type Nearest struct {
	Ever   bool  `json:"ever" doc:"No node could ever run the request; these amounts are of nodes without tasks."`
	CPUs   int   `json:"cpus,omitempty"`
	Memory int64 `json:"memory,omitempty"`
	GPUs   int   `json:"gpus,omitempty"`
}

// Candidate is a node that meets every clause.
type Candidate struct {
	NodeID job.Peer `json:"node_id"`
	Node   string   `json:"node"`
	Why    string   `json:"why"`
	Free   NodeFree `json:"free"`
}

// Stats holds totals of the cluster.
type Stats struct {
	Schema string               `json:"schema"`
	Nodes  map[NodeState]int    `json:"nodes" nullable:"false"`
	Jobs   map[job.State]int    `json:"jobs" nullable:"false"`
	CPUs   Amount               `json:"cpus"`
	Memory Amount               `json:"memory"`
	GPUs   GPUAmount            `json:"gpus"`
	Models map[string]GPUAmount `json:"models" nullable:"false" doc:"Numbers of GPUs by class."`
	InUse  *GPUsInUse           `json:"gpu_utilization,omitempty" doc:"How much of the GPUs is in use, beside how many are allocated; absent if no driver tells."`
	Waits  *Waits               `json:"waits" doc:"How long jobs wait; null: unknown."`
	Users  []UserLoad           `json:"users" nullable:"false" doc:"What users have now: the 100 that hold most GPUs, then those with the most running and pending tasks. Those whose jobs the requester may not see are left out."`
	// MoreUsers counts the users that Users leaves out.
	MoreUsers int        `json:"more_users,omitempty" doc:"Users that are left out, at least."`
	Queue     *QueueInfo `json:"queue,omitempty" doc:"Only in answers to other daemons: what waits and users are worked out from."`
	Partial   []string   `json:"partial" nullable:"false"`
	Age       float64    `json:"age,omitempty" doc:"Seconds since this daemon was told of the node that it knows for longest; those that do not answer are left out."`
}

// GPUsInUse says how much of GPUs is in use.
type GPUsInUse struct {
	Known int64   `json:"known" doc:"GPUs whose utilization is known."`
	Busy  float64 `json:"busy" doc:"The sum of their utilization, in whole GPUs: 1.5 if one is in use all the time and one half of it."`
}

// Amount is a total and its free part, over the nodes that answer.
type Amount struct {
	Total int64 `json:"total"`
	Free  int64 `json:"free"`
}

// GPUAmount is a number of GPUs, over the nodes that answer.
type GPUAmount struct {
	Total int64    `json:"total"`
	Free  int64    `json:"free" doc:"GPUs of which no task holds a part."`
	Held  *float64 `json:"held" doc:"How much of them jobs hold. A share of a GPU counts as such: 1.5 if one is held and half of another one. null: unknown, because a node of an earlier version does not tell."`
}

// Daemon is the document of the daemon that answers: its identity and its settings.
type Daemon struct {
	Schema    string    `json:"schema"`
	Version   string    `json:"version"`
	ID        job.Peer  `json:"id"`
	Name      string    `json:"name"`
	Cluster   string    `json:"cluster"`
	DataDir   string    `json:"data_dir"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	Addrs     []string  `json:"addrs" nullable:"false"`
	Config    []Setting `json:"config" nullable:"false"`
	Facts     []Fact    `json:"facts,omitempty" doc:"The findings of muster doctor; only with facts=true."`
}

// Setting is one setting and where it comes from.
type Setting struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin" doc:"One of: flag, environment, FILE:LINE, default."`
}

// Fact is one finding of doctor.
type Fact struct {
	Name   string    `json:"name"`
	State  FactState `json:"state" enum:"ok,warn,fail,skip"`
	Detail string    `json:"detail"`
	Advice string    `json:"advice,omitempty" doc:"What to do about it."`
}

// FactState is the severity of a finding.
type FactState string

// The severities of a finding.
const (
	FactOK   FactState = "ok"
	FactWarn FactState = "warn"
	FactFail FactState = "fail"
	FactSkip FactState = "skip"
)

// Health is the answer of /health and /ready.
type Health struct {
	Schema string `json:"schema"`
	OK     bool   `json:"ok"`
}

// NodeInfo is what a node reports about itself.
type NodeInfo struct {
	Profile     contract.Profile
	Free        contract.Free
	State       NodeState
	Detail      string // why the node takes no tasks, for people
	Drain       *Drain
	Running     int
	Addrs       []string
	Status      []gpu.Status
	Read        time.Time            // when Status was read; zero: never
	Released    bool                 // the GPUs are not monitored, because the node is drained
	Holders     map[string][]job.ID  // by GPU UUID
	Quarantined map[string]string    // by GPU UUID: why it is in quarantine
	Idle        map[string]time.Time // by GPU UUID: since when a task holds it without using it
	Usage       usage.Sample         // the newest sample of the host; its time is zero if there is none
}

// Held returns which part of the GPU jobs hold, from 0 to 1. A GPU that no job holds may still not be free: it can be set
// aside.
func (g *GPU) Held() float64 {
	if len(g.Jobs) == 0 && g.Job == "" {
		return 0
	}
	return min(max(0, toShare(1-g.Free)), 1)
}

// toShare rounds a number of GPUs to the smallest share.
func toShare(gpus float64) float64 { return math.Round(gpus*wholeGPU) / wholeGPU }

// NodeDocument returns the document of a node.
func NodeDocument(n NodeInfo) Node {
	p := n.Profile
	d := Node{
		Schema: SchemaNode, ID: p.Peer, Name: p.Name, State: n.State, Detail: n.Detail, NodeLabels: NodeLabels{map[string]string{}, map[string]string{}}, Arch: p.Arch, OS: p.OS, Addrs: append([]string{}, n.Addrs...),
		Version: p.Version, TasksRun: TasksRun{p.Worker, append([]string{}, p.Drivers...), p.OnlyUser, p.NoRoot, p.Fencing.String(), p.Fencing.Boot}, CPUs: p.CPUs, Memory: int64(p.Memory), NodeData: NodeData{int64(p.Disk), p.Store},
		Free: freeDocument(n.Free), NodeLoad: NodeLoad{Running: new(n.Running)}, Drain: n.Drain, GPUs: make([]GPU, 0, len(p.GPUs)),
	}
	maps.Copy(d.Labels, p.Labels)
	d.vouch(p.Signed)
	status := map[string]gpu.Status{}
	for _, s := range n.Status {
		status[s.UUID] = s
	}
	free := map[string]int{}
	for _, f := range n.Free.GPUs {
		free[f.UUID] = f.Milli
	}
	for _, dev := range p.GPUs {
		d.Driver = dev.Driver
		g := gpuDocument(p, dev, status, free[dev.UUID], n.Holders[dev.UUID], n.Quarantined[dev.UUID])
		g.ReadAt, g.IdleSince = at(n.Read), at(n.Idle[dev.UUID])
		if _, known := status[dev.UUID]; known && n.Released {
			g.Detail = aged(g.Detail, time.Since(n.Read))
		}
		d.GPUs = append(d.GPUs, g)
	}
	d.Usage = nodeNow(n.Usage, d.GPUs, n.Released)
	return d
}

func gpuDocument(p contract.Profile, dev gpu.Device, status map[string]gpu.Status, milli int, holders []job.ID, quarantine string) GPU {
	s, known := status[dev.UUID]
	if !known {
		s = gpu.NotKnown(dev.UUID, "")
	}
	used := int64(s.MemoryUsed)
	if !s.Known() {
		used = -1
	}
	d := GPU{
		Schema: SchemaGPU, Node: p.Name, NodeID: p.Peer, UUID: dev.UUID, Index: dev.Index, Model: dev.Model, Class: dev.Class,
		Compute: dev.Compute, Memory: int64(dev.Memory), MemoryUsed: used, Utilization: s.Utilization,
		GPUReading: GPUReading{Temperature: s.Temperature, Power: float64(s.PowerMilli) / 1000}, Health: s.Health, Detail: s.Detail, Simulated: dev.Simulated,
		Free: float64(milli) / wholeGPU, Jobs: append([]job.ID{}, holders...), Links: dev.Links,
	}
	if quarantine != "" {
		d.Detail = quarantine
		if !known || s.Health != gpu.Unknown {
			d.Health = gpu.Unhealthy
		}
	}
	if len(holders) > 0 {
		d.Job = holders[0]
	}
	return d
}

// aged adds to a detail how old it is, because the GPU has not been monitored since. The age is rounded more the older it
// is, because each change of the text is an event of the node.
func aged(detail string, ago time.Duration) string {
	switch {
	case ago >= time.Hour:
		ago = ago.Truncate(time.Hour)
	case ago >= time.Minute:
		ago = ago.Truncate(time.Minute)
	}
	text := job.Duration(ago.Truncate(time.Second)).String() + " ago: let go while the node is drained"
	if detail != "" {
		text = detail + ", " + text
	}
	return text
}

const wholeGPU = 1000 // thousandths of a device

func freeDocument(f contract.Free) NodeFree {
	d := NodeFree{CPUs: f.CPUs, Memory: int64(f.Memory)}
	for _, g := range f.GPUs {
		if g.Milli == wholeGPU {
			d.GPUs++
		}
	}
	return d
}

// ExplanationDocument returns the document of an explanation.
func ExplanationDocument(e contract.Explanation) Explanation {
	d := Explanation{
		Schema: SchemaExplanation, Job: e.Job, State: e.State, Reason: e.Reason.Word, ReasonDetail: e.Reason.Detail,
		Clauses: append([]contract.Clause{}, e.Clauses...), Now: candidates(e.Now), Later: candidates(e.Later), Ahead: e.Ahead, Estimated: at(e.Starts),
	}
	if n := e.Nearest; n != (contract.Nearest{}) {
		d.Nearest = &Nearest{Ever: n.Ever, CPUs: n.CPUs, Memory: int64(n.Memory), GPUs: n.GPUs}
	}
	return d
}

func candidates(list []contract.Candidate) []Candidate {
	docs := make([]Candidate, 0, len(list))
	for _, c := range list {
		docs = append(docs, Candidate{NodeID: c.Node, Node: c.Name, Why: c.Why, Free: freeDocument(c.Free)})
	}
	return docs
}

// vouch sets the signed labels of the node. The caller takes them from the node's credential, because the document comes
// from the node itself and proves nothing.
func (n *Node) vouch(signed map[string]string) {
	n.Signed = map[string]string{}
	maps.Copy(n.Signed, signed)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	maps.Copy(n.Labels, signed)
}
