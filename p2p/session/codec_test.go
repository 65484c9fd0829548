package session

// Every valid message survives encoding and decoding, and no bytes decode to a message that is out of bounds.

import (
	"bytes"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// carry encodes and decodes a message.
func carry(msg any) (any, error) {
	f, err := toWire(msg)
	if err != nil {
		return nil, err
	}
	b, err := appendFrame(nil, f)
	if err != nil {
		return nil, err
	}
	return parse(b)
}

func parse(b []byte) (any, error) {
	f, err := newFrameReader(bytes.NewReader(b)).next()
	if err != nil {
		return nil, err
	}
	return fromWire(f, &files[*job.File]{})
}

func TestMessagesSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msg := anyMessage().Draw(t, "message")
		got, err := carry(msg)
		if err != nil {
			t.Fatalf("%#v: %v", msg, err)
		}
		if !reflect.DeepEqual(got, msg) {
			t.Fatalf("want %#v\n got %#v", msg, got)
		}
	})
}

// TestEveryMessageHasAGenerator lists all messages, so that a new message cannot be left out of the codec.
func TestEveryMessageHasAGenerator(t *testing.T) {
	want := []string{
		"Ack", "Availability", "Cancel", "Commit", "Decline", "Event", "Hello", "Offer", "Owns", "Query", "Release", "Renew",
		"Renewed", "Signal", "Stale", "Start",
	}
	seen := map[string]bool{}
	for i := range 500 {
		seen[reflect.TypeOf(anyMessage().Example(i)).Name()] = true
	}
	for _, name := range want {
		if !seen[name] {
			t.Errorf("no %s was generated", name)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("got %d kinds of messages, want %d: %v", len(seen), len(want), seen)
	}
}

func TestMessagesOutOfBoundsAreRefused(t *testing.T) {
	o := testOffer(1)
	a, g := o.Attempt, o.Group
	end := time.Unix(1, 0)
	usage := func(entries ...fairshare.Entry) contract.Availability {
		return contract.Availability{Usage: &contract.Usage{Entries: entries}}
	}
	good := fileOf(job.Spec{Command: []string{"x"}})
	with := func(change func(*contract.Offer)) contract.Offer {
		o := o
		change(&o)
		return o
	}
	member := func(change func(*contract.Start)) contract.Start {
		s := contract.Start{Attempt: a, Group: g, File: good, Gang: &contract.Gang{Members: gangOfSize(2), Port: 20000}}
		if _, err := carry(s); err != nil {
			t.Fatal(err)
		}
		change(&s)
		return s
	}
	host := func(change func(*contract.Profile)) contract.Hello {
		p := contract.Profile{Peer: "p", GPUs: []gpu.Device{{UUID: "GPU-1"}, {UUID: "GPU-2"}}}
		change(&p)
		return contract.Hello{Profile: p}
	}
	for name, msg := range map[string]any{
		"no message":       42,
		"nil":              nil,
		"bad device":       with(func(o *contract.Offer) { o.Device = "a b" }),
		"bad id":           with(func(o *contract.Offer) { o.Attempt.Job = "x" }),
		"attempt 0":        with(func(o *contract.Offer) { o.Attempt.N = 0 }),
		"task -1":          with(func(o *contract.Offer) { o.Attempt.Task = -1 }),
		"another's group":  with(func(o *contract.Offer) { o.Group++ }),
		"priority":         with(func(o *contract.Offer) { o.Priority = job.MaxPriority + 1 }),
		"level":            with(func(o *contract.Offer) { o.Level, o.Work.By = contract.MaxLevel+1, contract.ByAttained }),
		"negative level":   with(func(o *contract.Offer) { o.Level, o.Work.By = -1, contract.ByAttained }),
		"level by age":     with(func(o *contract.Offer) { o.Level = 1 }),
		"order":            with(func(o *contract.Offer) { o.Work.By = contract.ByRemaining + 1 }),
		"work":             with(func(o *contract.Offer) { o.Work = contract.Work{By: contract.ByAttained, Time: contract.MaxWork + 1} }),
		"negative work":    with(func(o *contract.Offer) { o.Work = contract.Work{By: contract.ByAttained, Time: -1} }),
		"work by age":      with(func(o *contract.Offer) { o.Work.Time = 1 }),
		"yields":           contract.Availability{Seq: 1, Free: contract.Free{Preemptible: []contract.Preemptible{{Priority: 1}, {Priority: 1, Level: 1}}}},
		"level of yields":  contract.Availability{Seq: 1, Free: contract.Free{Preemptible: []contract.Preemptible{{Priority: 1, Level: contract.MaxLevel + 1}}}},
		"wait":             with(func(o *contract.Offer) { o.Wait = contract.MaxOfferWait + 1 }),
		"limit":            with(func(o *contract.Offer) { o.Limit = contract.MaxLimit + 1 }),
		"negative limit":   with(func(o *contract.Offer) { o.Limit = -1 }),
		"age":              with(func(o *contract.Offer) { o.Age = -1 }),
		"NaN share":        with(func(o *contract.Offer) { o.Need.GPUs, o.Need.GPUShare = 0, math.NaN() }),
		"share and GPUs":   with(func(o *contract.Offer) { o.Need.GPUShare = 0.5 }),
		"negative memory":  with(func(o *contract.Offer) { o.Need.Memory = -1 }),
		"model":            with(func(o *contract.Offer) { o.Need.GPUModel = "h100\n" }),
		"user":             with(func(o *contract.Offer) { o.User = "a\x1b[31m" }),
		"token":            with(func(o *contract.Offer) { o.Token = strings.Repeat("t", maxToken+1) }),
		"signal 0":         contract.Signal{Attempt: a, Group: g},
		"grace":            contract.Cancel{Attempt: a, Group: g, Grace: maxGrace + 1},
		"groups":           contract.Owns{Groups: make([]contract.GroupEpoch, maxGroups+1)},
		"no command":       contract.Start{Attempt: a, Group: g, File: fileOf(job.Spec{})},
		"no file":          contract.Start{Attempt: a, Group: g},
		"index":            contract.Start{Attempt: a, Group: g, File: good, Element: contract.Element{Array: true, Index: -1}},
		"no array":         contract.Start{Attempt: a, Group: g, File: good, Element: contract.Element{Index: 1}},
		"entry":            contract.Start{Attempt: a, Group: g, File: good, Element: contract.Element{Array: true, Entry: "a\x00"}},
		"huge command":     contract.Start{Attempt: a, Group: g, File: fileOf(job.Spec{Command: []string{strings.Repeat("x", job.MaxSpecBytes-100)}}), Element: contract.Element{Array: true, Entry: strings.Repeat("x", job.MaxSpecBytes)}},
		"gang of 1":        with(func(o *contract.Offer) { o.Gang = 1 }),
		"gang of -2":       with(func(o *contract.Offer) { o.Gang = -2 }),
		"gang of 513":      with(func(o *contract.Offer) { o.Gang = job.MaxNodes + 1 }),
		"hold":             with(func(o *contract.Offer) { o.Gang, o.Hold = 2, maxHold+1 }),
		"negative hold":    with(func(o *contract.Offer) { o.Gang, o.Hold = 2, -1 }),
		"firm, no gang":    with(func(o *contract.Offer) { o.Firm = true }),
		"rank, no gang":    contract.Start{Attempt: a, Group: g, File: good, Element: contract.Element{Rank: 1}},
		"rank 2 of 2":      member(func(s *contract.Start) { s.Element.Rank = 2 }),
		"rank -1":          member(func(s *contract.Start) { s.Element.Rank = -1 }),
		"one member":       member(func(s *contract.Start) { s.Gang.Members = s.Gang.Members[:1] }),
		"513 members":      member(func(s *contract.Start) { s.Gang.Members = gangOfSize(job.MaxNodes + 1) }),
		"member twice":     member(func(s *contract.Start) { s.Gang.Members[1].Node = "n0" }),
		"member, no peer":  member(func(s *contract.Start) { s.Gang.Members[1].Node = "" }),
		"name of a member": member(func(s *contract.Start) { s.Gang.Members[1].Name = "a\nb" }),
		"no address":       member(func(s *contract.Start) { s.Gang.Members[1].Address = "" }),
		"host name":        member(func(s *contract.Start) { s.Gang.Members[1].Address = "n1.example" }),
		"two lines":        member(func(s *contract.Start) { s.Gang.Members[1].Address = "10.0.0.1\n10.0.0.2" }),
		"zone":             member(func(s *contract.Start) { s.Gang.Members[1].Address = "fe80::1%eth0" }),
		"link only":        member(func(s *contract.Start) { s.Gang.Members[1].Address = "fe80::1" }),
		"any address":      member(func(s *contract.Start) { s.Gang.Members[1].Address = "0.0.0.0" }),
		"multicast":        member(func(s *contract.Start) { s.Gang.Members[1].Address = "224.0.0.1" }),
		"long form":        member(func(s *contract.Start) { s.Gang.Members[1].Address = "2001:db8:0:0:0:0:0:7" }),
		"mapped":           member(func(s *contract.Start) { s.Gang.Members[1].Address = "::ffff:10.0.0.1" }),
		"port 0":           member(func(s *contract.Start) { s.Gang.Port = 0 }),
		"port 65536":       member(func(s *contract.Start) { s.Gang.Port = 65536 }),
		"commit port":      contract.Commit{Attempt: a, Group: g, Port: 65536},
		"commit port -1":   contract.Commit{Attempt: a, Group: g, Port: -1},
		"commit address":   contract.Commit{Attempt: a, Group: g, Address: "10.0.0.1:22"},
		"project":          contract.Offer{Attempt: a, Group: g, User: "u", Project: "a b"},
		"usage project":    usage(fairshare.Entry{Account: fairshare.Account{User: "u", Project: "a b"}}),
		"usage user":       usage(fairshare.Entry{Account: fairshare.Account{User: "u\n"}}),
		"usage NaN":        usage(fairshare.Entry{Used: fairshare.Use{GPU: math.NaN()}}),
		"usage infinite":   usage(fairshare.Entry{Used: fairshare.Use{CPU: math.Inf(1)}}),
		"usage below 0":    usage(fairshare.Entry{Used: fairshare.Use{GPU: -1}}),
		"usage of many":    usage(make([]fairshare.Entry, contract.MaxUsage+1)...),
		"device":           contract.Commit{Attempt: a, Group: g, Devices: []string{"GPU-1,GPU-2"}},
		"devices":          contract.Commit{Attempt: a, Group: g, Devices: slices.Repeat([]string{"G"}, contract.MaxGPUs+1)},
		"no reason":        contract.Decline{Attempt: a},
		"a device twice":   contract.Availability{Free: contract.Free{GPUs: []contract.FreeGPU{{UUID: "G"}, {UUID: "H"}, {UUID: "G"}}}},
		"many devices":     contract.Availability{Free: contract.Free{GPUs: slices.Repeat([]contract.FreeGPU{{UUID: "G"}}, 17)}},
		"milli":            contract.Availability{Free: contract.Free{GPUs: []contract.FreeGPU{{UUID: "G", Milli: 1001}}}},
		"tasks":            contract.Availability{Free: contract.Free{Tasks: -1}},
		"foreign memory":   contract.Availability{Free: contract.Free{Foreign: []contract.ForeignUse{{UUID: "G", Memory: -1}}}},
		"foreign program":  contract.Availability{Free: contract.Free{Foreign: []contract.ForeignUse{{UUID: "G", PID: -1}}}},
		"many foreign":     contract.Availability{Free: contract.Free{Foreign: slices.Repeat([]contract.ForeignUse{{UUID: "G"}}, contract.MaxForeign+1)}},
		"too many tasks":   contract.Availability{Free: contract.Free{Tasks: contract.MaxLive + 1}},
		"pending event":    contract.Event{Attempt: a, Group: g, N: 1, State: job.Pending},
		"event 0":          contract.Event{Attempt: a, Group: g, State: job.Running},
		"end without exit": contract.Event{Attempt: a, Group: g, N: 1, State: job.Failed},
		"exit and running": contract.Event{Attempt: a, Group: g, N: 1, State: job.Running, Exit: &job.Exit{State: job.Failed}},
		"tail": contract.Event{
			Attempt: a, Group: g, N: 1, State: job.Failed,
			Exit: &job.Exit{State: job.Failed, Began: end, Ended: end, Tail: strings.Repeat("x", job.TailBytes+1)},
		},
		"no report of usage": contract.Event{
			Attempt: a, Group: g, N: 1, State: job.Failed, Exit: &job.Exit{State: job.Failed, Began: end, Ended: end, Usage: "\x08\x01"},
		},
		"large report of usage": contract.Event{
			Attempt: a, Group: g, N: 1, State: job.Failed, Exit: &job.Exit{State: job.Failed, Began: end, Ended: end, Usage: largestReport() + strings.Repeat("\x98\x06\x00", job.UsageBytes)},
		},
		"year 3000": contract.Event{
			Attempt: a, Group: g, N: 1, State: job.Failed, Exit: &job.Exit{State: job.Failed, Ended: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)},
		},
		"began":     contract.Event{Attempt: a, Group: g, N: 1, State: job.Running, Began: time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"live":      contract.Renew{Group: g, Live: slices.Repeat([]job.Attempt{a}, contract.MaxLive+1)},
		"verdicts":  contract.Renewed{Group: g + 1, Verdicts: []contract.Verdict{{Attempt: a}}},
		"owner":     contract.Stale{Owner: job.Peer(strings.Repeat("p", maxPeer+1))},
		"no peer":   host(func(p *contract.Profile) { p.Peer = "" }),
		"name":      host(func(p *contract.Profile) { p.Name = "a\nb" }),
		"label":     host(func(p *contract.Profile) { p.Labels = map[string]string{"a b": "c"} }),
		"same GPU":  host(func(p *contract.Profile) { p.GPUs[1].UUID = p.GPUs[0].UUID }),
		"no uuid":   host(func(p *contract.Profile) { p.GPUs[1].UUID = "" }),
		"link kind": host(func(p *contract.Profile) { p.GPUs[0].Links = []gpu.Link{{To: "GPU-2", Kind: "rope"}} }),
		"GPUs":      host(func(p *contract.Profile) { p.GPUs = make([]gpu.Device, contract.MaxGPUs+1) }),
		"mounts":    host(func(p *contract.Profile) { p.Mounts = []string{"/a\nb"} }),
		"waits":     contract.Event{Attempt: a, Group: g, N: 1, State: job.Running, Detail: "still pulling"},
		"arch":      host(func(p *contract.Profile) { p.Arch = strings.Repeat("x", maxID+1) }),
		"os":        host(func(p *contract.Profile) { p.OS = "a b" }),
		"no tasks":  contract.Availability{Free: contract.Free{Tasks: -1}},
		"forecasts": contract.Availability{Forecasts: make([]contract.Forecast, contract.MaxForecasts+1)},
		"start":     contract.Availability{Forecasts: []contract.Forecast{{Start: -1}}},
		"kept":      contract.Availability{Forecasts: []contract.Forecast{{Kept: contract.MaxForecast + 1}}},
		"elsewhere": contract.Availability{Forecasts: []contract.Forecast{{Shared: 1, Elsewhere: true}}},
		"keeps":     contract.Availability{Kept: make([]contract.Kept, contract.MaxKept+1)},
		"kept job":  contract.Availability{Kept: []contract.Kept{{Job: "j"}}},
		"kept for":  contract.Availability{Kept: []contract.Kept{{User: "a\nb"}}},
		"kept GPU":  contract.Availability{Free: contract.Free{GPUs: []contract.FreeGPU{{UUID: "GPU-1"}}}, Kept: []contract.Kept{{GPUs: []int{1}}}},
		"GPU twice": contract.Availability{Free: contract.Free{GPUs: []contract.FreeGPU{{UUID: "GPU-1"}}}, Kept: []contract.Kept{{GPUs: []int{0, 0}}}},
		"two":       contract.Availability{Forecasts: []contract.Forecast{{Start: 1, Shared: 1}}},
		"drivers":   host(func(p *contract.Profile) { p.Drivers = []string{"exec driver"} }),
	} {
		if got, err := carry(msg); err == nil {
			t.Errorf("%s was encoded and decoded: got %#v, want an error", name, got)
		}
	}
}

func gangOfSize(n int) []contract.Member {
	return many(n, func(i int) contract.Member {
		return contract.Member{Node: job.Peer(fmt.Sprint("n", i)), Name: "n", Address: "10.0.0.1"}
	})
}

// TestTextForPeopleIsCleaned checks that text for people that is not printable or too long is cleaned and not refused.
func TestTextForPeopleIsCleaned(t *testing.T) {
	a := testOffer(1).Attempt
	for in, want := range map[string]string{
		"two\nlines":                            "two lines",
		"\xff\xfe":                              "?",
		strings.Repeat("é", contract.MaxDetail): strings.Repeat("é", contract.MaxDetail/2),
		"x" + strings.Repeat("é", contract.MaxDetail): "x" + strings.Repeat("é", contract.MaxDetail/2-1),
		"fine as it is": "fine as it is",
	} {
		got, err := carry(contract.Cancel{Attempt: a, Group: a.Job.Group(), Reason: in})
		if err != nil || got.(contract.Cancel).Reason != want {
			t.Errorf("%.20q arrived as %.20q, %v, want the cleaned text", in, got, err)
		}
	}
}

func FuzzReadFrame(f *testing.F) {
	for i := range 50 {
		if frame, err := toWire(anyMessage().Example(i)); err == nil {
			if b, err := appendFrame(nil, frame); err == nil {
				f.Add(b)
			}
		}
	}
	f.Add([]byte{0})
	f.Add([]byte{0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		msg, err := parse(b)
		if err != nil {
			return
		}
		// A message that was accepted can be sent again unchanged.
		again, err := carry(msg)
		if err != nil {
			t.Fatalf("%#v was read but cannot be sent: %v", msg, err)
		}
		if !reflect.DeepEqual(again, msg) {
			t.Fatalf("want %#v\n got %#v", msg, again)
		}
	})
}

// A proof of a group's founder has 16 bytes or none.
func TestFoundersProofHas16BytesOrNone(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 1000} {
		frame := &wirepb.Frame{Body: &wirepb.Frame_Owns{Owns: &wirepb.Owns{Groups: []*wirepb.GroupEpoch{{Group: 1, Epoch: &wirepb.EpochRef{Generation: 1}, Founding: make([]byte, n)}}}}}
		b, err := appendFrame(nil, frame)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(b); (err == nil) != (n == 0 || n == 16) {
			t.Errorf("a proof of %d bytes: got %v, want an error unless it has 0 or 16", n, err)
		}
	}
}
