package session

// Encoding of the messages of package contract into frames.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// toWire encodes a message of package contract as a frame. It refuses what the receiver would refuse, so that a bug of
// this daemon returns an error from the call instead of ending the session. It cleans and shortens sentences for
// people, and leaves out links if there are too many.
func toWire(msg any) (*wirepb.Frame, error) {
	if h, ok := msg.(contract.Hello); ok {
		h.Profile.GPUs, h.Profile.Limits = fewLinks(h.Profile.GPUs), tellable(h.Profile.Limits)
		msg = h
	}
	if err := check(msg); err != nil {
		return nil, fmt.Errorf("%w: %T: %w", ErrInvalid, msg, err)
	}
	var f *wirepb.Frame
	switch m := msg.(type) {
	case contract.Start:
		f = startFrame(m)
	case contract.ToWorker:
		f = toWorkerFrame(m)
	case contract.ToScheduler:
		f = toSchedulerFrame(m)
	}
	if f == nil {
		return nil, fmt.Errorf("%w: %T is not a session message", ErrInvalid, msg)
	}
	return f, nil
}

func toWorkerFrame(msg contract.ToWorker) *wirepb.Frame {
	switch m := msg.(type) {
	case contract.Offer:
		return &wirepb.Frame{Body: &wirepb.Frame_Offer{Offer: &wirepb.Offer{
			Id: m.ID, Attempt: attemptRef(m.Attempt), Group: uint64(m.Group), Epoch: epochRef(m.Epoch), Need: resources(m.Need), Device: m.Device,
			Priority: int64(m.Priority), User: m.User, Token: m.Token, WaitNs: int64(m.Wait), AgeNs: int64(m.Age), Preempt: m.Preempt, Project: m.Project,
			Gang: int64(m.Gang), HoldNs: int64(m.Hold), Firm: m.Firm, Order: m.Order, LimitNs: int64(m.Limit), Spare: m.Spare,
			Elsewhere: m.Elsewhere, Private: m.Private,
			Level: int64(m.Level), WorkNs: int64(m.Work.Time), WorkBy: int64(m.Work.By),
		}}}
	case contract.Release:
		return &wirepb.Frame{Body: &wirepb.Frame_Release{Release: &wirepb.Release{Offer: m.Offer}}}
	case contract.Query:
		return &wirepb.Frame{Body: &wirepb.Frame_Query{Query: &wirepb.Query{
			Attempt: attemptRef(m.Attempt), Group: uint64(m.Group), Epoch: epochRef(m.Epoch), Store: m.Store,
		}}}
	case contract.Signal:
		return &wirepb.Frame{Body: &wirepb.Frame_Signal{Signal: &wirepb.Signal{
			Attempt: attemptRef(m.Attempt), Group: uint64(m.Group), Epoch: epochRef(m.Epoch), Number: int64(m.Number),
		}}}
	case contract.Cancel:
		return &wirepb.Frame{Body: &wirepb.Frame_Cancel{Cancel: &wirepb.Cancel{
			Attempt: attemptRef(m.Attempt), Group: uint64(m.Group), Epoch: epochRef(m.Epoch), GraceNs: int64(m.Grace), Reason: sentence(m.Reason),
		}}}
	case contract.Ack:
		return &wirepb.Frame{Body: &wirepb.Frame_Ack{Ack: &wirepb.Ack{
			Attempt: attemptRef(m.Attempt), Group: uint64(m.Group), Epoch: epochRef(m.Epoch), N: m.N,
		}}}
	case contract.Owns:
		groups := make([]*wirepb.GroupEpoch, len(m.Groups))
		for i, g := range m.Groups {
			groups[i] = &wirepb.GroupEpoch{Group: uint64(g.Group), Epoch: epochRef(g.Epoch), Founding: founding(g.Founding)}
		}
		return &wirepb.Frame{Body: &wirepb.Frame_Owns{Owns: &wirepb.Owns{Groups: groups}}}
	case contract.Renewed:
		verdicts := make([]*wirepb.Verdict, len(m.Verdicts))
		for i, v := range m.Verdicts {
			verdicts[i] = &wirepb.Verdict{Attempt: attemptRef(v.Attempt), Keep: v.Keep}
		}
		return &wirepb.Frame{Body: &wirepb.Frame_Renewed{Renewed: &wirepb.Renewed{
			Group: uint64(m.Group), Epoch: epochRef(m.Epoch), Clock: m.Clock, Session: uint64(m.Session), Verdicts: verdicts,
		}}}
	}
	return nil
}

func startFrame(m contract.Start) *wirepb.Frame {
	sum := m.File.Digest()
	return &wirepb.Frame{Body: &wirepb.Frame_Start{Start: &wirepb.Start{
		Offer: m.Offer, Attempt: attemptRef(m.Attempt), Group: uint64(m.Group), Epoch: epochRef(m.Epoch),
		Session: uint64(m.Session), User: m.User, Spec: m.File.Text(), File: sum[:],
		Array: m.Element.Array, Index: int64(m.Element.Index), Entry: m.Element.Entry, Preempted: m.Element.Preempted,
		Rank: int64(m.Element.Rank), Gang: gang(m.Gang),
	}}}
}

func gang(g *contract.Gang) *wirepb.Gang {
	if g == nil {
		return nil
	}
	out := &wirepb.Gang{Port: int64(g.Port), Members: make([]*wirepb.Member, len(g.Members))}
	for i, m := range g.Members {
		out.Members[i] = &wirepb.Member{Node: string(m.Node), Name: m.Name, Address: m.Address}
	}
	return out
}

func toSchedulerFrame(msg contract.ToScheduler) *wirepb.Frame {
	switch m := msg.(type) {
	case contract.Commit:
		return &wirepb.Frame{Body: &wirepb.Frame_Commit{Commit: &wirepb.Commit{
			Offer: m.Offer, Attempt: attemptRef(m.Attempt), Group: uint64(m.Group), Devices: m.Devices, Session: uint64(m.Session),
			Address: m.Address, Port: int64(m.Port), Conditional: m.Conditional,
		}}}
	case contract.Decline:
		return &wirepb.Frame{Body: &wirepb.Frame_Decline{Decline: &wirepb.Decline{
			Offer: m.Offer, Attempt: attemptRef(m.Attempt), Word: m.Reason.Word, Detail: sentence(m.Reason.Detail),
			Free: free(m.Free), Never: m.Never, NoUser: m.NoUser,
		}}}
	case contract.Event:
		return &wirepb.Frame{Body: &wirepb.Frame_Event{Event: &wirepb.Event{
			Attempt: attemptRef(m.Attempt), Group: uint64(m.Group), N: m.N, State: string(m.State), Pid: int64(m.PID),
			Devices: m.Devices, Exit: exit(m.Exit), Refused: sentence(m.Refused), Isolation: sentence(m.Isolation), Detail: sentence(m.Detail),
			BeganNs: wallClock(m.Began),
		}}}
	case contract.Availability:
		return &wirepb.Frame{Body: &wirepb.Frame_Availability{Availability: &wirepb.Availability{
			Seq: m.Seq, Free: free(m.Free), Draining: m.Draining, Detail: sentence(m.Detail), UnderQuota: m.UnderQuota,
			Forecasts: forecasts(m.Forecasts), Usage: shares(m.Usage), Kept: keptOnes(m.Kept),
		}}}
	case contract.Renew:
		live := make([]*wirepb.AttemptRef, len(m.Live))
		for i, a := range m.Live {
			live[i] = attemptRef(a)
		}
		return &wirepb.Frame{Body: &wirepb.Frame_Renew{Renew: &wirepb.Renew{
			Group: uint64(m.Group), Store: m.Store, Clock: m.Clock, Session: uint64(m.Session), Live: live,
		}}}
	case contract.Stale:
		return &wirepb.Frame{Body: &wirepb.Frame_Stale{Stale: &wirepb.Stale{
			Group: uint64(m.Group), Epoch: epochRef(m.Epoch), Owner: string(m.Owner),
		}}}
	case contract.Hello:
		return &wirepb.Frame{Body: &wirepb.Frame_Hello{Hello: &wirepb.WorkerHello{Profile: profile(m.Profile), Free: free(m.Free)}}}
	}
	return nil
}

func forecasts(all []contract.Forecast) []*wirepb.Forecast {
	out := make([]*wirepb.Forecast, len(all))
	for i, f := range all {
		out[i] = &wirepb.Forecast{Offer: f.Offer, StartNs: int64(f.Start), KeptNs: int64(f.Kept), SharedNs: int64(f.Shared), Elsewhere: f.Elsewhere}
	}
	return out
}

func keptOnes(all []contract.Kept) []*wirepb.Kept {
	out := make([]*wirepb.Kept, len(all))
	for i, k := range all {
		out[i] = &wirepb.Kept{
			Job: string(k.Job), User: k.User, Priority: int64(k.Priority), Below: k.Below, Cpus: int64(k.CPUs), Memory: int64(k.Memory),
			Milli: int64(k.Milli), ForNs: int64(k.For), Starts: k.Starts,
		}
		for _, g := range k.GPUs {
			out[i].Gpus = append(out[i].Gpus, int64(g))
		}
	}
	return out
}

func attemptRef(a job.Attempt) *wirepb.AttemptRef {
	return &wirepb.AttemptRef{Job: string(a.Job), Task: int64(a.Task), N: int64(a.N)}
}

func epochRef(e contract.Epoch) *wirepb.EpochRef {
	return &wirepb.EpochRef{Generation: e.Generation, Term: e.Term}
}

func resources(r job.Resources) *wirepb.Resources {
	return &wirepb.Resources{
		Cpus: int64(r.CPUs), Memory: int64(r.Memory), Gpus: int64(r.GPUs), GpuModel: r.GPUModel,
		GpuMemory: int64(r.GPUMemory), GpuShare: r.GPUShare, Exclusive: r.Exclusive,
	}
}

func free(f contract.Free) *wirepb.Free {
	gpus := make([]*wirepb.FreeGPU, len(f.GPUs))
	for i, g := range f.GPUs {
		gpus[i] = &wirepb.FreeGPU{Uuid: g.UUID, Memory: int64(g.Memory), Milli: int64(g.Milli)}
	}
	out := &wirepb.Free{Cpus: int64(f.CPUs), Memory: int64(f.Memory), Gpus: gpus, Aside: f.Quarantined, Tasks: int64(f.Tasks), Exclusive: f.Exclusive}
	for _, u := range f.Foreign {
		out.Foreign = append(out.Foreign, &wirepb.ForeignUse{Uuid: u.UUID, Memory: int64(u.Memory), Pid: int64(u.PID), Others: int64(u.Others)})
	}
	levels := false
	for _, y := range f.Preemptible {
		levels = levels || y.Level > 0
		if n := len(out.Preemptible); n > 0 && out.Preemptible[n-1].Priority == int64(y.Priority) {
			last := out.Preemptible[n-1]
			last.Cpus, last.Memory, last.Gpus = last.Cpus+int64(y.CPUs), last.Memory+int64(y.Memory), last.Gpus+int64(y.GPUs)
			continue
		}
		out.Preemptible = append(out.Preemptible, preemptible(y, 0))
	}
	if !levels {
		return out
	}
	for _, y := range f.Preemptible {
		out.Yields = append(out.Yields, preemptible(y, y.Level))
	}
	return out
}

func preemptible(y contract.Preemptible, level int) *wirepb.Preemptible {
	return &wirepb.Preemptible{Priority: int64(y.Priority), Level: int64(level), Cpus: int64(y.CPUs), Memory: int64(y.Memory), Gpus: int64(y.GPUs)}
}

func shares(u *contract.Usage) *wirepb.Usage {
	if u == nil {
		return nil
	}
	out := &wirepb.Usage{Entries: make([]*wirepb.UsageEntry, len(u.Entries))}
	for i, e := range u.Entries {
		out.Entries[i] = &wirepb.UsageEntry{User: e.User, Project: e.Project, Gpu: e.Used.GPU, Cpu: e.Used.CPU}
	}
	return out
}

func profile(p contract.Profile) *wirepb.Profile {
	gpus := make([]*wirepb.Device, len(p.GPUs))
	for i, d := range p.GPUs {
		gpus[i] = device(d)
	}
	out := &wirepb.Profile{
		Peer: string(p.Peer), Name: p.Name, Version: p.Version, Store: p.Store, Labels: p.Labels, Cpus: int64(p.CPUs),
		Memory: int64(p.Memory), Disk: int64(p.Disk), Gpus: gpus, Drivers: p.Drivers, Worker: p.Worker, Mounts: p.Mounts,
		Arch: p.Arch, Os: p.OS, OnlyUser: p.OnlyUser, NoRoot: p.NoRoot, Limits: userLimits(p.Limits),
		Boot: p.Fencing.Boot, Fences: p.Fencing.Certain,
	}
	if l := p.Limits; l != nil {
		out.MoreLimits, out.MemberLimits = l.More, most(l.Member)
	}
	return out
}

// userLimits encodes the limits of users. The limits that apply to every user come first.
func userLimits(l *contract.UserLimits) (out []*wirepb.UserLimit) {
	if l == nil {
		return nil
	}
	out = append(out, &wirepb.UserLimit{Most: most(l.PerUser)})
	for _, user := range slices.Sorted(maps.Keys(l.Users)) {
		out = append(out, &wirepb.UserLimit{User: user, Most: most(l.Users[user])})
	}
	return out
}

func most(l contract.Limit) map[string]int64 {
	m := make(map[string]int64, len(l))
	for q, n := range l {
		m[string(q)] = n
	}
	return m
}

// tellable returns the limits without the users and the amounts that a receiver would refuse, so that a Hello does not
// fail because of one odd name in a configuration. The limits of such users are not sent.
func tellable(l *contract.UserLimits) *contract.UserLimits {
	if checkLimits(l) == nil {
		return l
	}
	out := &contract.UserLimits{PerUser: contract.Limit{}, Users: map[string]contract.Limit{}, Member: l.Member, More: true}
	for q, n := range l.PerUser {
		if n <= maxLimit {
			out.PerUser[q] = n
		}
	}
	for user, own := range l.Bounded().Users {
		if checkLimits(&contract.UserLimits{Users: map[string]contract.Limit{user: own}}) == nil {
			out.Users[user] = own
		}
	}
	return out
}

// fewLinks returns the devices without their links if a Hello cannot hold so many. A host without known links still
// runs tasks; a host that cannot send its Hello runs none.
func fewLinks(devices []gpu.Device) []gpu.Device {
	n := 0
	for _, d := range devices {
		n += len(d.Links)
	}
	if n <= maxLinks {
		return devices
	}
	bare := slices.Clone(devices)
	for i := range bare {
		bare[i].Links = nil
	}
	return bare
}

func device(d gpu.Device) *wirepb.Device {
	links := make([]*wirepb.DeviceLink, len(d.Links))
	for i, l := range d.Links {
		links[i] = &wirepb.DeviceLink{To: l.To, Kind: string(l.Kind), Nvlinks: int64(l.NVLinks)}
	}
	return &wirepb.Device{
		Uuid: d.UUID, Index: int64(d.Index), Model: d.Model, Class: d.Class, Memory: int64(d.Memory), Compute: d.Compute,
		Driver: d.Driver, Pci: d.PCI, Numa: int64(d.NUMA), Parent: d.Parent, Simulated: d.Simulated, Links: links,
	}
}

func exit(e *job.Exit) *wirepb.Exit {
	if e == nil {
		return nil
	}
	return &wirepb.Exit{
		State: string(e.State), Code: int64(e.Code), Signal: int64(e.Signal), Reason: sentence(e.Reason), Started: e.Started,
		BeganNs: wallClock(e.Began), EndedNs: wallClock(e.Ended), Tail: []byte(e.Tail), Isolation: sentence(e.Isolation), Usage: []byte(e.Usage),
	}
}

// wallClock returns nanoseconds since 1970, or 0 for an unknown time.
func wallClock(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// sentence makes s fit to be shown and sent: one line of at most MaxDetail bytes. The receiver refuses any other
// text.
func sentence(s string) string {
	if isSentence(s) {
		return s
	}
	s = strings.ToValidUTF8(s, "?")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > contract.MaxDetail {
		end := contract.MaxDetail
		for !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return s
}

func isSentence(s string) bool { return len(s) <= contract.MaxDetail && printable(s) }

// printable reports whether s is valid UTF-8 without control characters.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
		}
	}
	return true
}

// founding encodes the proof that this daemon has founded a group, or returns nil if there is none.
func founding(f job.Founding) []byte {
	if f == (job.Founding{}) {
		return nil
	}
	return f[:]
}
