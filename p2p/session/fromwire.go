package session

// Decoding of frames into messages of package contract. A decoded message is in bounds and printable, and is trusted
// from then on.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

var (
	errSentence = fmt.Errorf("a sentence is longer than %d bytes or not printable", contract.MaxDetail)
	errUnknown  = errors.New("unknown kind of message")
	errNoJSON   = errors.New("a job file that is no JSON object")
)

// fromWire decodes and checks the message of a frame. It returns a contract.ToWorker or a contract.ToScheduler. known are
// the job files that the session has carried before.
func fromWire(f *wirepb.Frame, known *files[*job.File]) (any, error) {
	d := &decoder{files: known}
	msg := d.toWorker(f)
	if msg == nil {
		msg = d.toScheduler(f)
	}
	if msg == nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, errUnknown)
	}
	if d.err == nil {
		d.err = check(msg)
	}
	if d.err != nil {
		return nil, fmt.Errorf("%w: %T: %w", ErrInvalid, msg, d.err)
	}
	return msg, nil
}

// decoder keeps the first error in a message.
type decoder struct {
	files *files[*job.File]
	err   error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *decoder) toWorker(f *wirepb.Frame) any {
	switch b := f.GetBody().(type) {
	case *wirepb.Frame_Offer:
		m := b.Offer
		return contract.Offer{
			ID: m.GetId(), Attempt: attempt(m.GetAttempt()), Group: job.Group(m.GetGroup()), Epoch: epoch(m.GetEpoch()),
			Need: need(m.GetNeed()), Device: m.GetDevice(), Priority: int(m.GetPriority()), User: m.GetUser(), Token: m.GetToken(),
			Wait: time.Duration(m.GetWaitNs()), Age: time.Duration(m.GetAgeNs()), Preempt: m.GetPreempt(), Project: m.GetProject(),
			Gang: int(m.GetGang()), Hold: time.Duration(m.GetHoldNs()), Firm: m.GetFirm(), Order: m.GetOrder(), Limit: time.Duration(m.GetLimitNs()),
			Keeping: contract.Keeping{Spare: m.GetSpare(), Elsewhere: m.GetElsewhere(), Private: m.GetPrivate()},
			Ordered: contract.Ordered{Level: int(m.GetLevel()), Work: contract.Work{By: contract.OrderBy(m.GetWorkBy()), Time: time.Duration(m.GetWorkNs())}},
		}
	case *wirepb.Frame_Release:
		return contract.Release{Offer: b.Release.GetOffer()}
	case *wirepb.Frame_Start:
		m := b.Start
		return contract.Start{
			Offer: m.GetOffer(), Attempt: attempt(m.GetAttempt()), Group: job.Group(m.GetGroup()), Epoch: epoch(m.GetEpoch()),
			Session: contract.Session(m.GetSession()), User: m.GetUser(), File: d.file(m),
			Element: contract.Element{Array: m.GetArray(), Index: int(m.GetIndex()), Entry: m.GetEntry(), Preempted: m.GetPreempted(), Rank: int(m.GetRank())},
			Gang:    gangOf(m.GetGang()),
		}
	case *wirepb.Frame_Query:
		m := b.Query
		return contract.Query{Attempt: attempt(m.GetAttempt()), Group: job.Group(m.GetGroup()), Epoch: epoch(m.GetEpoch()), Store: m.GetStore()}
	case *wirepb.Frame_Signal:
		m := b.Signal
		return contract.Signal{Attempt: attempt(m.GetAttempt()), Group: job.Group(m.GetGroup()), Epoch: epoch(m.GetEpoch()), Number: int(m.GetNumber())}
	case *wirepb.Frame_Cancel:
		m := b.Cancel
		return contract.Cancel{
			Attempt: attempt(m.GetAttempt()), Group: job.Group(m.GetGroup()), Epoch: epoch(m.GetEpoch()),
			Grace: time.Duration(m.GetGraceNs()), Reason: d.sentence(m.GetReason()),
		}
	case *wirepb.Frame_Ack:
		m := b.Ack
		return contract.Ack{Attempt: attempt(m.GetAttempt()), Group: job.Group(m.GetGroup()), Epoch: epoch(m.GetEpoch()), N: m.GetN()}
	case *wirepb.Frame_Owns:
		m := contract.Owns{Groups: some[contract.GroupEpoch](len(b.Owns.GetGroups()))}
		for i, g := range b.Owns.GetGroups() {
			m.Groups[i] = contract.GroupEpoch{Group: job.Group(g.GetGroup()), Epoch: epoch(g.GetEpoch()), Founding: d.founding(g.GetFounding())}
		}
		return m
	case *wirepb.Frame_Renewed:
		m := b.Renewed
		r := contract.Renewed{
			Group: job.Group(m.GetGroup()), Epoch: epoch(m.GetEpoch()), Clock: m.GetClock(),
			Session: contract.Session(m.GetSession()), Verdicts: some[contract.Verdict](len(m.GetVerdicts())),
		}
		for i, v := range m.GetVerdicts() {
			r.Verdicts[i] = contract.Verdict{Attempt: attempt(v.GetAttempt()), Keep: v.GetKeep()}
		}
		return r
	}
	return nil
}

func gangOf(g *wirepb.Gang) *contract.Gang {
	if g == nil {
		return nil
	}
	out := &contract.Gang{Port: int(g.GetPort()), Members: some[contract.Member](len(g.GetMembers()))}
	for i, m := range g.GetMembers() {
		out.Members[i] = contract.Member{Node: job.Peer(m.GetNode()), Name: m.GetName(), Address: m.GetAddress()}
	}
	return out
}

func (d *decoder) toScheduler(f *wirepb.Frame) any {
	switch b := f.GetBody().(type) {
	case *wirepb.Frame_Commit:
		m := b.Commit
		return contract.Commit{
			Offer: m.GetOffer(), Attempt: attempt(m.GetAttempt()), Group: job.Group(m.GetGroup()),
			Devices: m.GetDevices(), Session: contract.Session(m.GetSession()),
			Address: m.GetAddress(), Port: int(m.GetPort()), Conditional: m.GetConditional(),
		}
	case *wirepb.Frame_Decline:
		m := b.Decline
		return contract.Decline{
			Offer: m.GetOffer(), Attempt: attempt(m.GetAttempt()), Reason: job.Reason{Word: m.GetWord(), Detail: d.sentence(m.GetDetail())},
			Free: freeOf(m.GetFree()), Never: m.GetNever(), NoUser: m.GetNoUser(),
		}
	case *wirepb.Frame_Event:
		m := b.Event
		return contract.Event{
			Attempt: attempt(m.GetAttempt()), Group: job.Group(m.GetGroup()), N: m.GetN(), State: job.State(m.GetState()),
			PID: int(m.GetPid()), Devices: m.GetDevices(), Exit: d.exit(m.GetExit()), Refused: d.sentence(m.GetRefused()), Isolation: d.sentence(m.GetIsolation()), Detail: d.sentence(m.GetDetail()),
			Began: timeOf(m.GetBeganNs()),
		}
	case *wirepb.Frame_Availability:
		m := b.Availability
		return contract.Availability{
			Seq: m.GetSeq(), Free: freeOf(m.GetFree()), Draining: m.GetDraining(), Detail: d.sentence(m.GetDetail()),
			UnderQuota: m.GetUnderQuota(), Forecasts: forecastsOf(m.GetForecasts()), Usage: usageOf(m.GetUsage()),
			Kept: keptOf(m.GetKept()),
		}
	case *wirepb.Frame_Renew:
		m := b.Renew
		r := contract.Renew{
			Group: job.Group(m.GetGroup()), Store: m.GetStore(), Clock: m.GetClock(),
			Session: contract.Session(m.GetSession()), Live: some[job.Attempt](len(m.GetLive())),
		}
		for i, a := range m.GetLive() {
			r.Live[i] = attempt(a)
		}
		return r
	case *wirepb.Frame_Stale:
		m := b.Stale
		return contract.Stale{Group: job.Group(m.GetGroup()), Epoch: epoch(m.GetEpoch()), Owner: job.Peer(m.GetOwner())}
	case *wirepb.Frame_Hello:
		return contract.Hello{Profile: profileOf(b.Hello.GetProfile()), Free: freeOf(b.Hello.GetFree())}
	}
	return nil
}

func forecastsOf(all []*wirepb.Forecast) []contract.Forecast {
	out := some[contract.Forecast](len(all))
	for i, f := range all {
		out[i] = contract.Forecast{
			Offer: f.GetOffer(), Start: time.Duration(f.GetStartNs()), Kept: time.Duration(f.GetKeptNs()), Shared: time.Duration(f.GetSharedNs()),
			Elsewhere: f.GetElsewhere(),
		}
	}
	return out
}

func keptOf(all []*wirepb.Kept) []contract.Kept {
	out := some[contract.Kept](len(all))
	for i, k := range all {
		out[i] = contract.Kept{
			Job: job.ID(k.GetJob()), User: k.GetUser(), Priority: int(k.GetPriority()), Below: k.GetBelow(), CPUs: int(k.GetCpus()),
			Memory: job.Size(k.GetMemory()), GPUs: some[int](len(k.GetGpus())), Milli: int(k.GetMilli()), For: time.Duration(k.GetForNs()), Starts: k.GetStarts(),
		}
		for j, g := range k.GetGpus() {
			out[i].GPUs[j] = int(g)
		}
	}
	return out
}

// some returns nil for n = 0: package contract does not distinguish an empty list from nil.
func some[T any](n int) []T {
	if n == 0 {
		return nil
	}
	return make([]T, n)
}

func (d *decoder) sentence(s string) string {
	if !isSentence(s) {
		d.fail(errSentence)
	}
	return s
}

// file returns the job file of a Start.
func (d *decoder) file(m *wirepb.Start) *job.File {
	if len(m.GetSpec()) == 0 {
		sum := m.GetFile()
		if len(sum) == len(job.Digest{}) {
			if f := d.files.known[job.Digest(sum)]; f != nil {
				return f
			}
		}
		d.fail(errNoFile)
		return nil
	}
	f, err := fileOfWire(bytes.Clone(m.GetSpec()))
	if err != nil {
		d.fail(err)
		return nil
	}
	if _, known := d.files.known[f.Digest()]; known {
		d.fail(errFileAgain)
		return nil
	}
	d.files.add(f.Digest(), len(f.Text()), f)
	return f
}

// fileOfWire decodes a job file. A field that the JSON leaves out gets its default, except the number of CPUs: EncodeSpec
// leaves it out if it is 0. A later version may have written fields and values that this version does not know. Then the
// worker refuses the task (job.StrangeFile), and the session goes on. A text that is not a JSON object is an error.
func fileOfWire(text []byte) (*job.File, error) {
	if err := checkSpecSize(text); err != nil {
		return nil, err
	}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); !json.Valid(text) || trimmed[0] != '{' {
		return nil, errNoJSON
	}
	s := job.DefaultSpec()
	s.Resources.CPUs = 0
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	err := dec.Decode(&s)
	if err != nil {
		return job.StrangeFile(text, strangeWhy(err)), nil
	}
	f, err := job.FileOf(s, text)
	if err != nil {
		return nil, err
	}
	if err := f.Validate(); err != nil {
		return job.StrangeFile(text, strangeWhy(err)), nil
	}
	return f, nil
}

// strangeWhy tells people what this version does not know in a job file. The error is from package json, or from the check
// of the job.
func strangeWhy(err error) string {
	return sentence("this node has another version of muster, which cannot run the job: " + strings.TrimPrefix(err.Error(), "json: "))
}

// founding decodes the proof that the sender has founded a group. The proof may be missing.
func (d *decoder) founding(b []byte) (f job.Founding) {
	switch len(b) {
	case 0:
	case len(f):
		copy(f[:], b)
	default:
		d.fail(errID)
	}
	return f
}

func (d *decoder) exit(e *wirepb.Exit) *job.Exit {
	if e == nil {
		return nil
	}
	return &job.Exit{
		State: job.State(e.GetState()), Code: int(e.GetCode()), Signal: int(e.GetSignal()), Reason: d.sentence(e.GetReason()),
		Started: e.GetStarted(), Began: timeOf(e.GetBeganNs()), Ended: timeOf(e.GetEndedNs()), Tail: string(e.GetTail()), Isolation: d.sentence(e.GetIsolation()),
		Usage: string(e.GetUsage()),
	}
}

func timeOf(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns).UTC()
}

func attempt(a *wirepb.AttemptRef) job.Attempt {
	return job.Attempt{Job: job.ID(a.GetJob()), Task: int(a.GetTask()), N: int(a.GetN())}
}

func epoch(e *wirepb.EpochRef) contract.Epoch {
	return contract.Epoch{Generation: e.GetGeneration(), Term: e.GetTerm()}
}

func need(r *wirepb.Resources) job.Resources {
	return job.Resources{
		CPUs: int(r.GetCpus()), Memory: job.Size(r.GetMemory()), GPUs: int(r.GetGpus()), GPUModel: r.GetGpuModel(),
		GPUMemory: job.Size(r.GetGpuMemory()), GPUShare: r.GetGpuShare(), Exclusive: r.GetExclusive(),
	}
}

func freeOf(f *wirepb.Free) contract.Free {
	out := contract.Free{
		CPUs: int(f.GetCpus()), Memory: job.Size(f.GetMemory()), GPUs: some[contract.FreeGPU](len(f.GetGpus())), Quarantined: f.GetAside(),
		Tasks: int(f.GetTasks()), Exclusive: f.GetExclusive(),
	}
	for i, g := range f.GetGpus() {
		out.GPUs[i] = contract.FreeGPU{UUID: g.GetUuid(), Memory: job.Size(g.GetMemory()), Milli: int(g.GetMilli())}
	}
	for _, u := range f.GetForeign() {
		out.Foreign = append(out.Foreign, contract.ForeignUse{UUID: u.GetUuid(), Memory: job.Size(u.GetMemory()), PID: int(u.GetPid()), Others: int(u.GetOthers())})
	}
	yields := f.GetYields()
	if len(yields) == 0 {
		yields = f.GetPreemptible()
	}
	for _, y := range yields {
		out.Preemptible = append(out.Preemptible, contract.Preemptible{
			Priority: int(y.GetPriority()), Level: int(y.GetLevel()), CPUs: int(y.GetCpus()), Memory: job.Size(y.GetMemory()), GPUs: int(y.GetGpus()),
		})
	}
	return out
}

func usageOf(u *wirepb.Usage) *contract.Usage {
	if u == nil {
		return nil
	}
	out := &contract.Usage{Entries: some[fairshare.Entry](len(u.GetEntries()))}
	for i, e := range u.GetEntries() {
		out.Entries[i] = fairshare.Entry{
			Account: fairshare.Account{User: e.GetUser(), Project: e.GetProject()}, Used: fairshare.Use{GPU: e.GetGpu(), CPU: e.GetCpu()},
		}
	}
	return out
}

func profileOf(p *wirepb.Profile) contract.Profile {
	out := contract.Profile{
		Peer: job.Peer(p.GetPeer()), Name: p.GetName(), Version: p.GetVersion(), Store: p.GetStore(), Labels: p.GetLabels(),
		CPUs: int(p.GetCpus()), Memory: job.Size(p.GetMemory()), Disk: job.Size(p.GetDisk()),
		GPUs: some[gpu.Device](len(p.GetGpus())), Drivers: p.GetDrivers(), Worker: p.GetWorker(), Mounts: p.GetMounts(),
		Arch: p.GetArch(), OS: p.GetOs(), OnlyUser: p.GetOnlyUser(), NoRoot: p.GetNoRoot(),
		Limits:  userLimitsOf(p),
		Fencing: job.Fencing{Certain: p.GetFences(), Boot: p.GetBoot()},
	}
	for i, d := range p.GetGpus() {
		out.GPUs[i] = deviceOf(d)
	}
	return out
}

// userLimitsOf decodes the limits of users; nil if the host sends none. If a user has several entries, the last one counts.
func userLimitsOf(p *wirepb.Profile) *contract.UserLimits {
	if len(p.GetLimits()) == 0 {
		return nil
	}
	out := &contract.UserLimits{PerUser: contract.Limit{}, Users: map[string]contract.Limit{}, More: p.GetMoreLimits()}
	if len(p.GetMemberLimits()) > 0 {
		out.Member = limitOf(p.GetMemberLimits())
	}
	for _, l := range p.GetLimits() {
		if l.GetUser() == "" {
			out.PerUser = limitOf(l.GetMost())
		} else {
			out.Users[l.GetUser()] = limitOf(l.GetMost())
		}
	}
	return out
}

func limitOf(most map[string]int64) contract.Limit {
	out := make(contract.Limit, len(most))
	for q, n := range most {
		out[contract.Quantity(q)] = n
	}
	return out
}

func deviceOf(d *wirepb.Device) gpu.Device {
	out := gpu.Device{
		UUID: d.GetUuid(), Index: int(d.GetIndex()), Model: d.GetModel(), Class: d.GetClass(), Memory: job.Size(d.GetMemory()),
		Compute: d.GetCompute(), Driver: d.GetDriver(), PCI: d.GetPci(), NUMA: int(d.GetNuma()), Parent: d.GetParent(),
		Simulated: d.GetSimulated(), Links: some[gpu.Link](len(d.GetLinks())),
	}
	for i, l := range d.GetLinks() {
		out.Links[i] = gpu.Link{To: l.GetTo(), Kind: gpu.LinkKind(l.GetKind()), NVLinks: int(l.GetNvlinks())}
	}
	return out
}
