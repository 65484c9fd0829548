package session

// Random generators of every message of package contract, within its bounds.

import (
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/internal/usage"
	"github.com/musterhq/muster/job"
)

var (
	anyWord  = rapid.StringMatching(`[A-Za-z0-9._:/-]{1,40}`)
	anyName  = rapid.StringMatching(`[ -~]{0,40}|[äöü€]{0,20}`)
	anyModel = rapid.StringMatching(`|[A-Za-z0-9][ -{}~]{0,30}(\|[A-Z0-9]{1,8}){0,2}`)
	anyText  = rapid.StringMatching(`[ -~äöü€]{0,80}`)
	// anyReport is what an attempt used, or nothing.
	anyReport = rapid.Custom(func(t *rapid.T) string {
		r := usage.NewReport()
		r.Samples, r.Step = rapid.Uint64Range(0, 1000).Draw(t, "samples"), 5*time.Second
		r.CPU = float64(rapid.IntRange(0, 1<<30).Draw(t, "cpu"))
		if b, err := r.Encode(); err == nil && r.Samples > 0 {
			return string(b)
		}
		return ""
	})
	anySize  = rapid.Custom(func(t *rapid.T) job.Size { return job.Size(rapid.Int64Min(0).Draw(t, "size")) })
	anyEpoch = rapid.Custom(func(t *rapid.T) contract.Epoch {
		return contract.Epoch{Generation: rapid.Uint64().Draw(t, "generation"), Term: rapid.Uint64().Draw(t, "term")}
	})
	anyAttempt = rapid.Custom(func(t *rapid.T) job.Attempt { return attemptOf(t, anyGroup.Draw(t, "group")) })
	anyGroup   = rapid.Custom(func(t *rapid.T) job.Group { return job.Group(rapid.Uint64().Draw(t, "group")) })
	anySession = rapid.Custom(func(t *rapid.T) contract.Session { return contract.Session(rapid.Uint64().Draw(t, "session")) })
	anyAddress = rapid.SampledFrom([]string{"10.0.0.7", "127.0.0.1", "2001:db8::7", "::1", "fd00::1:2:3:4"})
	anyEnd     = rapid.SampledFrom([]job.State{
		job.Succeeded, job.Failed, job.Cancelled, job.Timeout, job.OutOfMemory, job.NodeFail, job.Preempted,
	})
)

func attemptOf(t *rapid.T, g job.Group) job.Attempt {
	return job.Attempt{
		Job:  job.NewID(g, rapid.Uint64().Draw(t, "drawn")),
		Task: rapid.IntRange(0, job.MaxTasks-1).Draw(t, "task"), N: rapid.IntRange(1, job.MaxAttempts).Draw(t, "n"),
	}
}

// listOf returns nil for an empty list, as decoding does.
func listOf[T any](t *rapid.T, g *rapid.Generator[T], most int, name string) []T {
	l := rapid.SliceOfN(g, 0, most).Draw(t, name)
	if len(l) == 0 {
		return nil
	}
	return l
}

func anyMessage() *rapid.Generator[any] {
	draw := func(f func(t *rapid.T) any) *rapid.Generator[any] { return rapid.Custom(f) }
	return rapid.OneOf(
		draw(drawOffer), draw(drawStart), draw(drawCommit), draw(drawDecline), draw(drawEvent), draw(drawHello),
		draw(func(t *rapid.T) any { return contract.Release{Offer: rapid.Uint64().Draw(t, "offer")} }),
		draw(func(t *rapid.T) any {
			a := anyAttempt.Draw(t, "attempt")
			return contract.Ack{Attempt: a, Group: a.Job.Group(), Epoch: anyEpoch.Draw(t, "epoch"), N: rapid.Uint64().Draw(t, "n")}
		}),
		draw(func(t *rapid.T) any {
			return contract.Owns{Groups: listOf(t, rapid.Custom(func(t *rapid.T) contract.GroupEpoch {
				return contract.GroupEpoch{Group: anyGroup.Draw(t, "group"), Epoch: anyEpoch.Draw(t, "epoch"), Founding: anyFounding.Draw(t, "founding")}
			}), 5, "groups")}
		}),
		draw(func(t *rapid.T) any {
			a := anyAttempt.Draw(t, "attempt")
			return contract.Query{Attempt: a, Group: a.Job.Group(), Epoch: anyEpoch.Draw(t, "epoch"), Store: anyWord.Draw(t, "store")}
		}),
		draw(func(t *rapid.T) any {
			a := anyAttempt.Draw(t, "attempt")
			return contract.Signal{Attempt: a, Group: a.Job.Group(), Epoch: anyEpoch.Draw(t, "epoch"), Number: rapid.IntRange(1, maxSignal).Draw(t, "signal")}
		}),
		draw(func(t *rapid.T) any {
			a := anyAttempt.Draw(t, "attempt")
			return contract.Cancel{
				Attempt: a, Group: a.Job.Group(), Epoch: anyEpoch.Draw(t, "epoch"),
				Grace: drawDuration(t, maxGrace), Reason: anyText.Draw(t, "reason"),
			}
		}),
		draw(func(t *rapid.T) any {
			g := anyGroup.Draw(t, "group")
			return contract.Renewed{
				Group: g, Epoch: anyEpoch.Draw(t, "epoch"), Clock: rapid.Int64().Draw(t, "clock"), Session: anySession.Draw(t, "session"),
				Verdicts: listOf(t, rapid.Custom(func(t *rapid.T) contract.Verdict {
					return contract.Verdict{Attempt: attemptOf(t, g), Keep: rapid.Bool().Draw(t, "keep")}
				}), 5, "verdicts"),
			}
		}),
		draw(func(t *rapid.T) any {
			g := anyGroup.Draw(t, "group")
			return contract.Renew{
				Group: g, Store: anyWord.Draw(t, "store"), Clock: rapid.Int64().Draw(t, "clock"), Session: anySession.Draw(t, "session"),
				Live: listOf(t, rapid.Custom(func(t *rapid.T) job.Attempt { return attemptOf(t, g) }), 5, "live"),
			}
		}),
		draw(func(t *rapid.T) any {
			free := drawFree(t)
			return contract.Availability{
				Seq: rapid.Uint64().Draw(t, "seq"), Free: free, Kept: listOf(t, rapid.Custom(func(t *rapid.T) contract.Kept { return drawKept(t, len(free.GPUs)) }), 5, "kept"), Draining: rapid.Bool().Draw(t, "draining"), Detail: anyText.Draw(t, "detail"),
				UnderQuota: listOf(t, anyWord, 5, "under quota"), Forecasts: listOf(t, rapid.Custom(drawForecast), 5, "forecasts"),
				Usage: drawUsage(t),
			}
		}),
		draw(func(t *rapid.T) any {
			return contract.Stale{Group: anyGroup.Draw(t, "group"), Epoch: anyEpoch.Draw(t, "epoch"), Owner: job.Peer(anyWord.Draw(t, "owner"))}
		}),
	)
}

func drawDuration(t *rapid.T, most time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(most)).Draw(t, "duration"))
}

func drawUsage(t *rapid.T) *contract.Usage {
	if rapid.Bool().Draw(t, "no usage") {
		return nil
	}
	return &contract.Usage{Entries: listOf(t, rapid.Custom(func(t *rapid.T) fairshare.Entry {
		return fairshare.Entry{
			Account: fairshare.Account{User: anyName.Draw(t, "user"), Project: anyWord.Draw(t, "project")},
			Used:    fairshare.Use{GPU: rapid.Float64Range(0, contract.MaxUsed).Draw(t, "gpu"), CPU: rapid.Float64Range(0, contract.MaxUsed).Draw(t, "cpu")},
		}
	}), 5, "usage")}
}

func drawNeed(t *rapid.T) job.Resources {
	r := job.Resources{
		CPUs: rapid.IntRange(0, job.MaxCPUs).Draw(t, "cpus"), Memory: anySize.Draw(t, "memory"),
		GPUs: rapid.IntRange(0, job.MaxGPUs).Draw(t, "gpus"),
	}
	if r.GPUs == 0 {
		r.GPUShare = rapid.Float64Range(0, 0.999).Draw(t, "share")
	}
	if r.GPUs > 0 || r.GPUShare > 0 {
		r.GPUModel, r.GPUMemory = anyModel.Draw(t, "model"), anySize.Draw(t, "gpu memory")
	}
	return r
}

func drawOffer(t *rapid.T) any {
	a := anyAttempt.Draw(t, "attempt")
	need := drawNeed(t)
	need.Exclusive = rapid.Bool().Draw(t, "exclusive")
	work, level := contract.Work{By: contract.OrderBy(rapid.IntRange(0, 2).Draw(t, "order by"))}, 0
	if work.By != contract.ByAge {
		work.Time, level = drawDuration(t, contract.MaxWork), rapid.IntRange(0, contract.MaxLevel).Draw(t, "level")
	}
	gang := rapid.OneOf(rapid.Just(0), rapid.IntRange(2, job.MaxNodes)).Draw(t, "gang")
	return contract.Offer{
		ID: rapid.Uint64().Draw(t, "id"), Attempt: a, Group: a.Job.Group(), Epoch: anyEpoch.Draw(t, "epoch"), Need: need, Device: anyWord.Draw(t, "device"),
		Priority: rapid.IntRange(0, job.MaxPriority).Draw(t, "priority"), User: anyName.Draw(t, "user"), Project: anyWord.Draw(t, "project"), Token: anyWord.Draw(t, "token"),
		Wait: drawDuration(t, contract.MaxOfferWait), Age: drawDuration(t, 1<<62), Preempt: rapid.Bool().Draw(t, "preempt"),
		Gang: gang, Hold: drawDuration(t, maxHold), Firm: gang > 0 && rapid.Bool().Draw(t, "firm"), Order: rapid.Uint64().Draw(t, "order"),
		Keeping: contract.Keeping{Spare: rapid.Bool().Draw(t, "spare"), Elsewhere: rapid.Bool().Draw(t, "elsewhere"), Private: rapid.Bool().Draw(t, "private")}, Ordered: contract.Ordered{Level: level, Work: work},
		Limit: drawDuration(t, contract.MaxLimit),
	}
}

func drawKept(t *rapid.T, gpus int) contract.Kept {
	k := contract.Kept{
		Priority: rapid.IntRange(0, job.MaxPriority).Draw(t, "priority"), Below: rapid.Bool().Draw(t, "below"),
		CPUs: rapid.IntRange(0, job.MaxCPUs).Draw(t, "cpus"), Memory: anySize.Draw(t, "memory"), Milli: rapid.IntRange(0, wholeDevice).Draw(t, "milli"),
		For: drawDuration(t, contract.MaxForecast), Starts: rapid.Bool().Draw(t, "starts"),
	}
	if rapid.Bool().Draw(t, "named") {
		k.Job, k.User = anyAttempt.Draw(t, "attempt").Job, anyName.Draw(t, "user")
	}
	for i := range gpus {
		if rapid.Bool().Draw(t, "kept") {
			k.GPUs = append(k.GPUs, i)
		}
	}
	return k
}

func drawForecast(t *rapid.T) contract.Forecast {
	f := contract.Forecast{Offer: rapid.Uint64().Draw(t, "offer")}
	d := drawDuration(t, contract.MaxForecast)
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0:
		f.Start, f.Elsewhere = d, d > 0 && rapid.Bool().Draw(t, "elsewhere")
	case 1:
		f.Kept = d
	case 2:
		f.Shared = d
	}
	return f
}

func drawStart(t *rapid.T) any {
	a := anyAttempt.Draw(t, "attempt")
	s := job.Spec{
		Name: anyName.Draw(t, "name"), Resources: drawNeed(t), TimeLimit: job.Duration(drawDuration(t, job.MaxTimeLimit)),
		Grace: job.Duration(drawDuration(t, time.Hour)), Priority: rapid.IntRange(0, job.MaxPriority).Draw(t, "priority"),
		Retries: rapid.IntRange(0, job.MaxRetries).Draw(t, "retries"), Requeue: rapid.Bool().Draw(t, "requeue"),
		Partition: rapid.SampledFrom([]string{"", "fence", "hold"}).Draw(t, "partition"),
	}
	// The text form of a size round-trips only below 2^50.
	s.Resources.Memory &= 1<<50 - 1
	s.Resources.GPUMemory &= 1<<50 - 1
	if rapid.Bool().Draw(t, "script") {
		s.Script = "#!/bin/sh\n" + anyText.Draw(t, "script")
	} else {
		s.Command = append([]string{"prog"}, rapid.SliceOfN(anyText, 0, 5).Draw(t, "args")...)
	}
	if rapid.Bool().Draw(t, "with env") {
		s.Env = map[string]string{"A": anyText.Draw(t, "env"), "B_1": "\n"}
		s.Constraint, s.Workdir = "rack=r1&!slow", "/data"
	}
	x := drawElement(t)
	var g *contract.Gang
	g, x.Rank = drawGang(t)
	return contract.Start{
		Offer: rapid.Uint64().Draw(t, "offer"), Attempt: a, Group: a.Job.Group(), Epoch: anyEpoch.Draw(t, "epoch"),
		Session: anySession.Draw(t, "session"), User: anyName.Draw(t, "user"), File: fileOf(s), Element: x, Gang: g,
	}
}

func fileOf(s job.Spec) *job.File {
	f, err := job.NewFile(s)
	if err != nil {
		panic(err)
	}
	return f
}

func drawElement(t *rapid.T) contract.Element {
	if !rapid.Bool().Draw(t, "array") {
		return contract.Element{}
	}
	return contract.Element{Array: true, Index: rapid.IntRange(0, job.MaxIndex).Draw(t, "index"), Entry: anyText.Draw(t, "entry")}
}

func drawCommit(t *rapid.T) any {
	a := anyAttempt.Draw(t, "attempt")
	return contract.Commit{
		Offer: rapid.Uint64().Draw(t, "offer"), Attempt: a, Group: a.Job.Group(),
		Devices: listOf(t, anyWord, 8, "devices"), Session: anySession.Draw(t, "session"),
		Address: rapid.OneOf(rapid.Just(""), anyAddress).Draw(t, "address"), Port: rapid.IntRange(0, maxPort).Draw(t, "port"),
		Conditional: rapid.Bool().Draw(t, "conditional"),
	}
}

// drawGang draws a gang with the rank of one of its members, or none.
func drawGang(t *rapid.T) (*contract.Gang, int) {
	nodes := rapid.SliceOfNDistinct(anyWord, 0, 5, rapid.ID).Draw(t, "members")
	if len(nodes) < 2 {
		return nil, 0
	}
	g := &contract.Gang{Port: rapid.IntRange(1, maxPort).Draw(t, "port")}
	for _, n := range nodes {
		g.Members = append(g.Members, contract.Member{Node: job.Peer(n), Name: anyName.Draw(t, "name"), Address: anyAddress.Draw(t, "address")})
	}
	return g, rapid.IntRange(0, len(nodes)-1).Draw(t, "rank")
}

func drawDecline(t *rapid.T) any {
	return contract.Decline{
		Offer: rapid.Uint64().Draw(t, "offer"), Attempt: anyAttempt.Draw(t, "attempt"),
		Reason: job.Reason{Word: anyWord.Draw(t, "word"), Detail: anyText.Draw(t, "detail")},
		Free:   drawFree(t), Never: rapid.Bool().Draw(t, "never"), NoUser: rapid.Bool().Draw(t, "no user"),
	}
}

func drawEvent(t *rapid.T) any {
	a := anyAttempt.Draw(t, "attempt")
	e := contract.Event{
		Attempt: a, Group: a.Job.Group(), N: rapid.Uint64Min(1).Draw(t, "n"),
		PID: rapid.IntRange(0, 1<<22).Draw(t, "pid"), Devices: listOf(t, anyWord, 8, "devices"), Began: drawTime(t),
	}
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		e.State = rapid.SampledFrom([]job.State{job.Starting, job.Running, job.Completing}).Draw(t, "state")
		if e.State == job.Starting {
			e.Detail = anyText.Draw(t, "detail")
		}
	case 1:
		e.State = anyEnd.Draw(t, "end")
		e.Exit = &job.Exit{
			State: e.State, Code: rapid.IntRange(-1<<31, 1<<31-1).Draw(t, "code"), Signal: rapid.IntRange(0, maxSignal).Draw(t, "signal"),
			Reason: anyText.Draw(t, "reason"), Started: rapid.Bool().Draw(t, "started"), Began: drawTime(t), Ended: drawTime(t),
			Isolation: anyText.Draw(t, "isolation"),
			Usage:     anyReport.Draw(t, "usage"),
			Tail:      string(rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "tail")),
		}
	case 2:
		e.State = rapid.SampledFrom([]job.State{"", job.Starting, job.Failed}).Draw(t, "state")
		e.Refused = rapid.StringMatching(`[ -~]{1,80}`).Draw(t, "refused")
	}
	return e
}

func drawTime(t *rapid.T) time.Time {
	if rapid.Bool().Draw(t, "no time") {
		return time.Time{}
	}
	return time.Unix(0, rapid.Int64Range(1, 1<<62).Draw(t, "ns")).UTC()
}

func drawFree(t *rapid.T) contract.Free {
	return contract.Free{
		CPUs: rapid.IntRange(0, job.MaxCPUs).Draw(t, "cpus"), Memory: anySize.Draw(t, "memory"),
		GPUs: devicesOf(t, rapid.Custom(func(t *rapid.T) contract.FreeGPU {
			return contract.FreeGPU{UUID: anyWord.Draw(t, "uuid"), Memory: anySize.Draw(t, "memory"), Milli: rapid.IntRange(0, wholeDevice).Draw(t, "milli")}
		})),
		Tasks: rapid.IntRange(0, contract.MaxLive).Draw(t, "tasks"), Exclusive: rapid.Bool().Draw(t, "exclusive"),
		Foreign: drawForeign(t),
	}
}

func drawForeign(t *rapid.T) (all []contract.ForeignUse) {
	for range rapid.IntRange(0, 2).Draw(t, "foreign") {
		all = append(all, contract.ForeignUse{
			UUID: anyWord.Draw(t, "uuid"), Memory: anySize.Draw(t, "memory"), PID: rapid.IntRange(0, maxPID).Draw(t, "pid"), Others: rapid.IntRange(0, 3).Draw(t, "others"),
		})
	}
	return all
}

// devicesOf draws free devices. No two have the same ID.
func devicesOf(t *rapid.T, g *rapid.Generator[contract.FreeGPU]) []contract.FreeGPU {
	l := rapid.SliceOfNDistinct(g, 0, 8, func(d contract.FreeGPU) string { return d.UUID }).Draw(t, "gpus")
	if len(l) == 0 {
		return nil
	}
	return l
}

func drawLimits(t *rapid.T) *contract.UserLimits {
	if !rapid.Bool().Draw(t, "limits") {
		return nil
	}
	limit := rapid.Custom(func(t *rapid.T) contract.Limit {
		return rapid.MapOfN(rapid.Custom(func(t *rapid.T) contract.Quantity { return contract.Quantity(anyWord.Draw(t, "quantity")) }), rapid.Int64Range(0, maxLimit), 0, 4).Draw(t, "limit")
	})
	users := rapid.MapOfN(anyWord, limit, 0, 3).Draw(t, "users")
	l := &contract.UserLimits{PerUser: limit.Draw(t, "per user"), Users: users, More: rapid.Bool().Draw(t, "more")}
	if m := limit.Draw(t, "member"); len(m) > 0 {
		l.Member = m
	}
	return l
}

func drawHello(t *rapid.T) any {
	p := contract.Profile{
		Peer: job.Peer(anyWord.Draw(t, "peer")), Name: anyName.Draw(t, "name"), Version: anyName.Draw(t, "version"), Store: anyWord.Draw(t, "store"),
		CPUs: rapid.IntRange(0, job.MaxCPUs).Draw(t, "cpus"), Memory: anySize.Draw(t, "memory"), Disk: anySize.Draw(t, "disk"),
		Drivers: listOf(t, anyWord, 3, "drivers"), Mounts: listOf(t, anyWord, 3, "mounts"), Worker: rapid.Bool().Draw(t, "worker"),
		Arch: anyWord.Draw(t, "arch"), OS: anyWord.Draw(t, "os"), OnlyUser: anyWord.Draw(t, "only user"), NoRoot: rapid.Bool().Draw(t, "no root"),
		Fencing: job.Fencing{Certain: rapid.Bool().Draw(t, "fences"), Boot: anyWord.Draw(t, "boot")},
	}
	p.Limits = drawLimits(t)
	if labels := rapid.MapOfN(anyWord, anyWord, 0, 5).Draw(t, "labels"); len(labels) > 0 {
		p.Labels = labels
	}
	uuids := rapid.SliceOfNDistinct(anyWord, 0, 4, rapid.ID).Draw(t, "uuids")
	for i, u := range uuids {
		d := gpu.Device{
			UUID: u, Index: i, Model: anyName.Draw(t, "model"), Class: anyName.Draw(t, "class"), Memory: anySize.Draw(t, "memory"),
			Compute: "9.0", Driver: anyName.Draw(t, "driver"), PCI: anyName.Draw(t, "pci"), NUMA: rapid.IntRange(-1, 8).Draw(t, "numa"),
			Simulated: rapid.Bool().Draw(t, "simulated"),
		}
		for _, to := range uuids {
			if to != u {
				d.Links = append(d.Links, gpu.Link{To: to, Kind: gpu.LinkNVLink, NVLinks: rapid.IntRange(0, 18).Draw(t, "nvlinks")})
			}
		}
		p.GPUs = append(p.GPUs, d)
	}
	return contract.Hello{Profile: p, Free: drawFree(t)}
}

// anyFounding is a proof of a group's founder, or none.
var anyFounding = rapid.Custom(func(t *rapid.T) (f job.Founding) {
	copy(f[:], rapid.SliceOfN(rapid.Byte(), 0, len(f)).Draw(t, "bytes"))
	return f
})

// largestReport returns a report of usage of the largest size. Bytes that this version does not know fill it up.
func largestReport() string {
	r := usage.NewReport()
	r.Samples, r.Step = 1, time.Second
	b, err := r.Encode()
	if err != nil {
		panic(err)
	}
	rest := job.UsageBytes - len(b) - 4 // a tag of two bytes and a length of two bytes
	b = append(b, 0x9a, 0x06, byte(rest&0x7f|0x80), byte(rest>>7))
	return string(append(b, make([]byte, rest)...))
}
