package session

// Every message of the largest allowed size crosses a session.

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
)

// longest returns n bytes that are a valid ID, name and word.
func longest(n int) string { return strings.Repeat("x", n) }

// longestID returns the i-th of many different IDs of maximal length.
func longestID(i int) string { return fmt.Sprintf("%0*d", maxID, i) }

func many[T any](n int, make func(i int) T) []T {
	out := blank[T](n)
	for i := range out {
		out[i] = make(i)
	}
	return out
}

func blank[T any](n int) []T { return make([]T, n) }

const largestGroup = job.Group(math.MaxUint64)

func largestAttempt(i int) job.Attempt {
	return job.Attempt{Job: job.NewID(largestGroup, math.MaxUint64), Task: job.MaxTasks - 1 - i, N: job.MaxAttempts}
}

var largestEpoch = contract.Epoch{Generation: math.MaxUint64, Term: math.MaxUint64}

func largestFree() contract.Free {
	return contract.Free{
		CPUs: job.MaxCPUs, Memory: math.MaxInt64, Tasks: contract.MaxLive, Exclusive: true,
		GPUs: many(contract.MaxGPUs, func(i int) contract.FreeGPU {
			return contract.FreeGPU{UUID: longestID(i), Memory: math.MaxInt64, Milli: wholeDevice}
		}),
		Quarantined: many(contract.MaxGPUs, longestID),
		Foreign: many(contract.MaxForeign, func(i int) contract.ForeignUse {
			return contract.ForeignUse{UUID: longestID(i), Memory: math.MaxInt64, PID: maxPID, Others: maxPID}
		}),
	}
}

func largestProfile() contract.Profile {
	p := contract.Profile{
		Peer: job.Peer(longest(maxPeer)), Name: longest(job.MaxName), Version: longest(job.MaxName), Store: longestID(0), Labels: map[string]string{},
		Arch: longestID(0), OS: longestID(0), Fencing: job.Fencing{Certain: true, Boot: longestID(0)}, CPUs: job.MaxCPUs, Memory: math.MaxInt64, Disk: math.MaxInt64, Worker: true,
		Drivers: many(maxDrivers, longestID),
		Mounts:  many(contract.MaxMounts, func(int) string { return "/" + longest(maxPath-1) }),
		GPUs: many(contract.MaxGPUs, func(i int) gpu.Device {
			return gpu.Device{
				UUID: longestID(i), Index: 1<<16 - 1, Model: longest(job.MaxName), Class: longest(job.MaxName), Memory: math.MaxInt64,
				Compute: longest(job.MaxName), Driver: longest(job.MaxName), PCI: longest(job.MaxName), NUMA: -1, Parent: longestID(i), Simulated: true,
			}
		}),
	}
	most := contract.Limit{}
	for i := range contract.MaxQuantities {
		most[contract.Quantity(fmt.Sprintf("%0*d", maxQuantity, i))] = maxLimit
	}
	p.Limits = &contract.UserLimits{PerUser: most, Users: map[string]contract.Limit{}, Member: most, More: true}
	for i := range contract.MaxLimitedUsers {
		p.Limits.Users[fmt.Sprintf("%0*d", job.MaxName, i)] = most
	}
	p.Limits = p.Limits.Bounded()
	for i := range contract.MaxLabels {
		p.Labels[fmt.Sprintf("%0*d", job.MaxName, i)] = longest(job.MaxName)
	}
	for i := range maxLinks {
		d := &p.GPUs[i%len(p.GPUs)]
		d.Links = append(d.Links, gpu.Link{To: longestID(i), Kind: gpu.LinkNVLink, NVLinks: 1<<16 - 1})
	}
	return p
}

// largestSpec returns a job file whose encoding has exactly n bytes. Other encoders write each of its characters as six
// bytes.
func largestSpec(t *testing.T, n int) job.Spec {
	t.Helper()
	s := job.DefaultSpec()
	s.Script = "#"
	text, err := job.EncodeSpec(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Script += strings.Repeat("<", n-len(text))
	if text, err = job.EncodeSpec(s); err != nil || len(text) != n {
		t.Fatalf("got %d bytes, %v, want %v", len(text), err, n)
	}
	return s
}

// largestMessages returns one message of each kind, each filled to its bounds.
func largestMessages(t *testing.T) []any {
	sentence, a := longest(contract.MaxDetail), largestAttempt(0)
	at := time.Date(2261, 12, 31, 0, 0, 0, 0, time.UTC)
	return []any{
		contract.Offer{
			ID: math.MaxUint64, Attempt: a, Group: largestGroup, Epoch: largestEpoch, Priority: job.MaxPriority, User: longest(job.MaxName),
			Need:   job.Resources{CPUs: job.MaxCPUs, Memory: math.MaxInt64, GPUs: job.MaxGPUs, GPUModel: longest(job.MaxName), GPUMemory: math.MaxInt64, Exclusive: true},
			Device: longestID(0), Token: longest(maxToken), Wait: contract.MaxOfferWait, Age: math.MaxInt64, Limit: contract.MaxLimit,
			Preempt: true, Gang: job.MaxNodes, Hold: maxHold, Firm: true, Keeping: contract.Keeping{Spare: true, Elsewhere: true, Private: true}, Order: math.MaxUint64,
			Ordered: contract.Ordered{Level: contract.MaxLevel, Work: contract.Work{By: contract.ByRemaining, Time: contract.MaxWork}},
		},
		contract.Release{Offer: math.MaxUint64},
		contract.Start{
			Offer: math.MaxUint64, Attempt: a, Group: largestGroup, Epoch: largestEpoch, Session: math.MaxUint64, User: longest(job.MaxName),
			File: fileOf(largestSpec(t, job.MaxSpecBytes)), Element: contract.Element{Array: true, Index: job.MaxIndex, Entry: longest(job.MaxEntry), Rank: job.MaxNodes - 1},
			Gang: &contract.Gang{Port: maxPort, Members: many(job.MaxNodes, func(i int) contract.Member {
				return contract.Member{Node: job.Peer(longestID(i)), Name: longest(job.MaxName), Address: "2001:db8:1111:2222:3333:4444:5555:6666"}
			})},
		},
		contract.Query{Attempt: a, Group: largestGroup, Epoch: largestEpoch, Store: longestID(0)},
		contract.Signal{Attempt: a, Group: largestGroup, Epoch: largestEpoch, Number: maxSignal},
		contract.Cancel{Attempt: a, Group: largestGroup, Epoch: largestEpoch, Grace: maxGrace, Reason: sentence},
		contract.Ack{Attempt: a, Group: largestGroup, Epoch: largestEpoch, N: math.MaxUint64},
		contract.Owns{Groups: many(maxGroups, func(i int) contract.GroupEpoch {
			return contract.GroupEpoch{Group: largestGroup - job.Group(i), Epoch: largestEpoch, Founding: job.Founding{15: 255}}
		})},
		contract.Renewed{
			Group: largestGroup, Epoch: largestEpoch, Clock: -1, Session: math.MaxUint64,
			Verdicts: many(contract.MaxLive, func(i int) contract.Verdict { return contract.Verdict{Attempt: largestAttempt(i), Keep: true} }),
		},
		contract.Hello{Profile: largestProfile(), Free: largestFree()},
		contract.Availability{
			Seq: math.MaxUint64, Free: largestFree(), Draining: true, Detail: sentence,
			UnderQuota: many(contract.MaxUnderQuota, func(int) string { return longest(job.MaxName) }),
			Forecasts: many(contract.MaxForecasts, func(int) contract.Forecast {
				return contract.Forecast{Offer: math.MaxUint64, Start: contract.MaxForecast, Elsewhere: true}
			}),
			Kept: many(contract.MaxKept, func(int) contract.Kept {
				return contract.Kept{
					Job: a.Job, User: longest(job.MaxName), Priority: job.MaxPriority, Below: true, CPUs: job.MaxCPUs, Memory: math.MaxInt64,
					GPUs: many(contract.MaxGPUs, func(i int) int { return i }), Milli: wholeDevice, For: contract.MaxForecast, Starts: true,
				}
			}),
			Usage: &contract.Usage{Entries: many(contract.MaxUsage, func(int) fairshare.Entry {
				return fairshare.Entry{
					Account: fairshare.Account{User: longest(job.MaxName), Project: strings.Repeat("p", job.MaxProject)},
					Used:    fairshare.Use{GPU: contract.MaxUsed, CPU: contract.MaxUsed},
				}
			})},
		},
		contract.Commit{Offer: math.MaxUint64, Attempt: a, Group: largestGroup, Devices: many(contract.MaxGPUs, longestID), Session: math.MaxUint64, Port: maxPort, Conditional: true, Address: "2001:db8:1111:2222:3333:4444:5555:6666"},
		contract.Decline{
			Offer: math.MaxUint64, Attempt: a, Reason: job.Reason{Word: longestID(0), Detail: sentence}, Free: largestFree(), Never: true,
		},
		contract.Event{
			Attempt: a, Group: largestGroup, N: math.MaxUint64, State: job.Failed, PID: math.MaxInt64, Devices: many(contract.MaxGPUs, longestID),
			Isolation: sentence, Began: at, Exit: &job.Exit{
				State: job.Failed, Code: -1, Signal: maxSignal, Reason: sentence, Started: true, Began: at, Ended: at,
				Tail: longest(job.TailBytes), Isolation: sentence, Usage: largestReport(),
			},
		},
		contract.Renew{
			Group: largestGroup, Store: longestID(0), Clock: -1, Session: math.MaxUint64, Live: many(contract.MaxLive, largestAttempt),
		},
		contract.Stale{Group: largestGroup, Epoch: largestEpoch, Owner: job.Peer(longest(maxPeer))},
	}
}

func TestLargestMessagesFit(t *testing.T) {
	for _, msg := range largestMessages(t) {
		f, err := toWire(msg)
		if err != nil {
			t.Errorf("%T: %v", msg, err)
			continue
		}
		n := proto.Size(f)
		t.Logf("%T: %d bytes", msg, n)
		if n > MaxFrame {
			t.Errorf("%T: got %d bytes, want at most %d, the bound of a frame", msg, n, MaxFrame)
			continue
		}
		b, err := appendFrame(nil, f)
		if err != nil {
			t.Errorf("%T: %v", msg, err)
			continue
		}
		got, err := newFrameReader(strings.NewReader(string(b))).next()
		if err != nil {
			t.Errorf("%T: %v", msg, err)
			continue
		}
		back, err := fromWire(got, &files[*job.File]{})
		if err != nil || !reflect.DeepEqual(back, msg) {
			t.Errorf("%T was changed by encoding and decoding: %v, want the same message", msg, err)
		}
	}
}

// TestHelloLeavesOutLinksThatDoNotFit checks that a host is announced without links if its devices have more links than
// a Hello can hold.
func TestHelloLeavesOutLinksThatDoNotFit(t *testing.T) {
	h := contract.Hello{Profile: contract.Profile{Peer: "p", Worker: true}}
	for i := range 100 {
		d := gpu.Device{UUID: fmt.Sprint(i)}
		for k := range 100 {
			if k != i {
				d.Links = append(d.Links, gpu.Link{To: fmt.Sprint(k), Kind: gpu.LinkNVLink, NVLinks: 18})
			}
		}
		h.Profile.GPUs = append(h.Profile.GPUs, d)
	}
	if check(h) == nil {
		t.Error("a Hello with all links was accepted")
	}
	f, err := toWire(h)
	if err != nil {
		t.Fatal(err)
	}
	back, err := fromWire(f, &files[*job.File]{})
	if err != nil {
		t.Fatal(err)
	}
	if got := back.(contract.Hello).Profile.GPUs; len(got) != 100 || got[0].Links != nil {
		t.Errorf("got %d devices with %d links of the first, want 100 without links", len(got), len(got[0].Links))
	}
	if len(h.Profile.GPUs[0].Links) != 99 {
		t.Error("the sender's own profile was changed")
	}
}

// TestJobFileBeyondItsBoundIsRefused checks that both the sender and the receiver refuse a job file that is one byte
// too long.
func TestJobFileBeyondItsBoundIsRefused(t *testing.T) {
	a := largestAttempt(0)
	spec := largestSpec(t, job.MaxSpecBytes+1)
	if _, err := job.NewFile(spec); err == nil {
		t.Error("it was accepted as a job file")
	}
	text, err := job.EncodeSpec(spec)
	if err != nil {
		t.Fatal(err)
	}
	spec.Script = "x"
	m := contract.Start{Attempt: a, Group: largestGroup, File: fileOf(spec)}
	f, err := toWire(m)
	if err != nil {
		t.Fatal(err)
	}
	f.GetStart().Spec = text
	if _, err := fromWire(f, &files[*job.File]{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("received: got %v, want ErrInvalid", err)
	}
}

// TestLargestMessagesCross sends the largest messages over a session between two hosts. The session stays up.
func TestLargestMessagesCross(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		a, b := c.nodes[0], c.nodes[1]
		got := make(chan any, 1)
		b.onAny = func(msg any) { got <- msg }
		a.Want(b.id())
		pass(time.Second)
		for _, msg := range largestMessages(t) {
			if h, ok := msg.(contract.Hello); ok {
				h.Profile.Peer = a.id()
				msg = h
			}
			if err := a.Send(b.id(), msg); err != nil {
				t.Errorf("%T: %v", msg, err)
				continue
			}
			pass(5 * time.Second)
			select {
			case m := <-got:
				if h, ok := msg.(contract.Hello); ok {
					h.Profile.Format = job.FormatNow // the session adds it
					msg = h
				}
				if !reflect.DeepEqual(m, msg) {
					t.Errorf("got a changed %T: %v, want %v", msg, m, msg)
				}
			default:
				t.Errorf("%T did not arrive: %v", msg, a.lastErr())
			}
		}
		if a.ups != 1 {
			t.Errorf("got %v, want that the session came up once", a.seen)
		}
	})
}
