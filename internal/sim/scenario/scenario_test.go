package scenario

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim"
	"github.com/musterhq/muster/internal/sim/central"
	"github.com/musterhq/muster/internal/sim/fabric"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/internal/sim/report"
)

// refereed is a sink that checks each record.
type refereed struct {
	t       *testing.T
	referee *report.Referee
}

func (r refereed) Take(x record.Record) {
	if err := r.referee.Check(x); err != nil {
		r.t.Errorf("%v", err)
	}
}

// small is a scenario of 16 machines on 4 leaves.
func small(t *testing.T, seed uint64) *Scenario {
	t.Helper()
	topology, err := fabric.LeafSpine{
		Spines: 2, Leaves: 4, Hosts: 4, Oversubscription: 2, Bandwidth: 25 * fabric.Gbps,
		HostLatency: time.Microsecond, SpineLatency: 2 * time.Microsecond,
	}.Build()
	if err != nil {
		t.Fatal(err)
	}
	machines, err := load.ParseMachines("16x4xH100-80GB,64cpu,512GiB")
	if err != nil {
		t.Fatal(err)
	}
	if machines, err = LayOut(topology, machines, 4); err != nil {
		t.Fatal(err)
	}
	how, err := load.ParseSynthetic("test", "jobs: 120; load: 0.7; durations: lognormal(median=10m,sigma=1,max=2h); gpus: 1:0.6,4:0.2,8:0.2; priorities: 50:0.8,80:0.2; preemptible: 0.3; files: 10MiB")
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := how.Jobs(machines, seed)
	if err != nil {
		t.Fatal(err)
	}
	return &Scenario{
		Seed: seed, Load: load.Load{Machines: machines, Jobs: jobs}, Schedulers: 3, Topology: topology, Shape: "leaf-spine",
		Restart: time.Minute,
	}
}

// Faults of each kind cost time and end no job: nothing runs twice, nothing is lost.
func TestFaultsLoseNoJob(t *testing.T) {
	script := `at_s,kind,what,for_s
1000,host,host-00003,600
1500,daemon,host-00006,20
2000,rack,leaf1,600
3000,switch,spine0,600
4000,cut,"leaf0,leaf1",600
5000,link,leaf2 spine1,300
6000,switch,leaf3,60
7000,slow,host-00002:0.5,1000
`
	for seed := range uint64(2) {
		s := small(t, seed)
		s.Checkpoint = 2 * time.Minute
		var err error
		if s.Faults, err = ReadScript("faults.csv", strings.NewReader(script), &s.Load); err != nil {
			t.Fatal(err)
		}
		referee, err := report.NewReferee(&s.Load, report.Rules{Restart: s.Restart, Checkpoint: s.Checkpoint, Slack: time.Hour, Undone: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Log = refereed{t, referee}
		out, err := s.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f := out.Document.Runs[0].Figures
		if referee.Open() != 0 || f.Jobs.Finished != f.Jobs.Submitted || out.Result.Defects != 0 {
			t.Errorf("seed %d: %d jobs have finished, want %d; %d defects, want none", seed, f.Jobs.Finished, f.Jobs.Submitted, out.Result.Defects)
		}
		if lost := out.Result.LostWork.Seconds(); lost == 0 || math.Abs(f.Again.LostGPU-lost) > 1 {
			t.Errorf("seed %d: %v GPU-seconds of work are reported as lost, want the %v that the world counted", seed, f.Again.LostGPU, lost)
		}
		if len(f.Faults) != 8 || out.Result.Faults != 8 {
			t.Errorf("seed %d: %d faults are reported, %d happened, want 8 and 8", seed, len(f.Faults), out.Result.Faults)
		}
		if n := out.Document.Network; len(n.Links) != 16+8 || n.Copied == 0 {
			t.Errorf("network: %d links, %d bytes of files, want 24 and some", len(n.Links), n.Copied)
		}
	}
}

// The same scenario gives the same document, bit by bit.
func TestSameScenarioGivesTheSameDocument(t *testing.T) {
	var all [2]bytes.Buffer
	for i := range all {
		s := small(t, 3)
		rate, err := ParseRate("host=20%/h for 5m")
		if err != nil {
			t.Fatal(err)
		}
		if s.Faults, err = Draw([]Rate{rate}, &s.Load, s.Topology, s.FaultsUntil(), s.Seed); err != nil || len(s.Faults) == 0 {
			t.Fatalf("%d faults, %v, want some", len(s.Faults), err)
		}
		s.Yardsticks = []central.Order{central.Centre, central.EASY}
		out, err := s.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := report.Write(&all[i], &out.Document); err != nil {
			t.Fatal(err)
		}
		if len(out.Document.Runs) != 3 {
			t.Errorf("%d runs, want 3", len(out.Document.Runs))
		}
	}
	if !bytes.Equal(all[0].Bytes(), all[1].Bytes()) {
		t.Error("the documents differ")
	}
}

func TestRateIsParsed(t *testing.T) {
	for text, want := range map[string]Rate{
		"1%/h":              {"host", 0.01, 10 * time.Minute},
		"gpu=2.4%/d":        {"gpu", 0.001, time.Hour},
		"link=168/w for 5m": {"link", 1, 5 * time.Minute},
	} {
		if got, err := ParseRate(text); err != nil || got.Kind != want.Kind || got.For != want.For || got.Hour < want.Hour*0.999 || got.Hour > want.Hour*1.001 {
			t.Errorf("%s: %+v, %v, want the rate of the case", text, got, err)
		}
	}
	for _, text := range []string{"", "1%", "x/h", "disk=1%/h", "-1%/h", "NaN/h", "1%/y", "1%/h for ever", "1%/h for -1m"} {
		if got, err := ParseRate(text); err == nil || !strings.Contains(err.Error(), "want something like") {
			t.Errorf(`%q: %+v, %v, want an error and "want something like" in it`, text, got, err)
		}
	}
}

func TestInvalidScriptIsRefused(t *testing.T) {
	s := small(t, 1)
	head := "at_s,kind,what,for_s\n"
	for text, want := range map[string]string{
		"":                            "f.csv: the file is empty",
		"at_s,kind,what\n":            `f.csv line 1: column "for_s" is missing`,
		"at_s,kind,what,for_s,who\n":  `f.csv line 1: column "who" is unknown`,
		head + "-1,host,host-00001,5": `f.csv line 2, at_s: "-1" is no number`,
		head + "NaN,host,host-00001,": `f.csv line 2, at_s: "NaN" is no number`,
		head + "1,fire,host-00001,5":  `f.csv line 2, kind: "fire" is not`,
		head + "1,host,nobody,5":      `f.csv line 2, what: there is no machine "nobody"`,
		head + "1,gpu,host-00001:4,5": `f.csv line 2, what: "host-00001:4" is no GPU`,
		head + "1,slow,host-00001,5":  `f.csv line 2, what: "host-00001": want`,
		head + "1,host,host-00001":    "f.csv: record on line 2: wrong number of fields",
	} {
		if _, err := ReadScript("f.csv", strings.NewReader(text), &s.Load); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	s.Faults = []Fault{{Fault: sim.Fault{Kind: sim.Break, Part: "switch leaf9"}}}
	if _, err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `the network has no node "leaf9"`) {
		t.Errorf(`%v, want an error and "the network has no node \"leaf9\"" in it`, err)
	}
}

// Machines of a list are on the hosts of a network file that have their names.
func TestMachinesAreOnTheHostsWithTheirNames(t *testing.T) {
	topology, err := fabric.Parse("net.yaml", []byte(`
nodes:
  - {name: b, kind: host}
  - {name: a, kind: host}
  - {name: s, kind: switch}
edges:
  - {from: a, to: s, latency: 1us, bandwidth: 10Gbps}
  - {from: b, to: s, latency: 1us, bandwidth: 10Gbps}
`))
	if err != nil {
		t.Fatal(err)
	}
	machines, err := LayOut(topology, []load.Machine{{Name: "a", CPUs: 1000}, {Name: "b", CPUs: 2000}}, 0)
	if err != nil || topology.Nodes[0].Name != "a" || machines[0].Labels[load.LeafLabel] != "s" {
		t.Errorf("%+v, %v, want the machine a on the leaf s", machines, err)
	}
}

// The cost of a remote placement is in the figures and in the log, and agrees with what the network and the world
// counted: bytes and paths of files, hops, and how long tasks waited for files.
func TestCostOfRemoteTasksIsReported(t *testing.T) {
	s := small(t, 4)
	var text bytes.Buffer
	log := report.NewLog(&text, &s.Load)
	log.On(NodeNames(s.Topology))
	s.Log = log
	out, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	var bytesIn, starts, hops int64
	var waited float64
	paths := map[string]bool{}
	for line := range strings.Lines(text.String()) {
		var x struct {
			Alloc []struct {
				Node  string
				Hops  int
				Path  string
				Way   float64 `json:"path_s"`
				Bytes int64
				Files float64 `json:"files_s"`
			}
		}
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatal(err)
		}
		for _, a := range x.Alloc {
			if (a.Hops == 0) != (a.Path == "") || (a.Hops == 0) != (a.Way == 0) || a.Hops > 0 && len(strings.Fields(a.Path)) != a.Hops-1 {
				t.Fatalf("hops, path and way of this line do not agree: %s", line)
			}
			starts, hops, bytesIn, waited = starts+1, hops+int64(a.Hops), bytesIn+a.Bytes, waited+a.Files
			if a.Hops > 0 {
				paths[a.Path] = true
			}
		}
	}
	n, r := out.Document.Network, out.Document.Runs[0].Figures.Remote
	if n.Copied == 0 || bytesIn != n.Copied {
		t.Errorf("the log has %d bytes of files, want %d as the network copied", bytesIn, n.Copied)
	}
	far := int64(0)
	for at, tasks := range r.ByHops {
		if at > 0 {
			far += int64(tasks)
		}
	}
	if got := waited / float64(far); math.Abs(got-r.FileWait) > 1e-5 || r.FileWait == 0 || r.Latency == 0 || math.Abs(r.Hops-float64(hops)/float64(starts)) > 1e-5 {
		t.Errorf("by the log tasks waited %v for files; the figures %+v do not agree", got, r)
	}
	var copies, moved int64
	for _, p := range n.Paths {
		copies, moved = copies+p.Flows, moved+p.Bytes
		if len(strings.Fields(p.Path))%2 != 1 {
			t.Errorf("the path %q has an even number of parts", p.Path)
		}
	}
	if copies != n.Copies || moved != n.Copied || n.CopyTime <= 0 || len(paths) == 0 {
		t.Errorf("paths have %d copies of %d bytes, want %d of %d as the network, in %v s", copies, moved, n.Copies, n.Copied, n.CopyTime)
	}
	if err := report.ReadLog(&text, &s.Load, func(record.Record) error { return nil }); err != nil {
		t.Error(err)
	}
}

// Random worlds on a network with switches, with the policy that goes by paths, while links and switches fail and paths
// become longer. Each start is legal, nothing runs twice, all jobs end, and gangs are in few racks.
func TestTopologyPlacesLegallyUnderFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("runs several worlds")
	}
	starts, extra := 0, 0.0
	for seed := range uint64(4) {
		s := small(t, 20+seed)
		s.Policy, s.Checkpoint = "topology", 10*time.Minute
		if seed%2 == 1 {
			s.Policy = "" // gangs still have the policy
		}
		var rates []Rate
		for _, text := range []string{"link=20%/h for 5m", "switch=5%/h for 2m", "host=5%/h for 5m"} {
			rate, err := ParseRate(text)
			if err != nil {
				t.Fatal(err)
			}
			rates = append(rates, rate)
		}
		var err error
		if s.Faults, err = Draw(rates, &s.Load, s.Topology, s.FaultsUntil(), s.Seed); err != nil || len(s.Faults) == 0 {
			t.Fatalf("%d faults, %v, want some", len(s.Faults), err)
		}
		referee, err := report.NewReferee(&s.Load, report.Rules{Restart: s.Restart, Checkpoint: s.Checkpoint, Slack: time.Hour, Undone: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Log = refereed{t, referee}
		out, err := s.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f := out.Document.Runs[0].Figures
		if referee.Open() != 0 || f.Jobs.Finished != f.Jobs.Submitted || out.Result.Defects != 0 {
			t.Errorf("seed %d: %d jobs have finished, want %d; %d defects, want none", seed, f.Jobs.Finished, f.Jobs.Submitted, out.Result.Defects)
		}
		if f.Gangs.Starts == 0 || f.Gangs.Hops < 2 || f.Gangs.Hops > 4 {
			t.Errorf("seed %d: gangs %+v, want 2 to 4 hops", seed, f.Gangs)
		}
		starts, extra = starts+f.Gangs.Starts, extra+f.Gangs.Racks*float64(f.Gangs.Starts)
	}
	if mean := extra / float64(starts); mean > 0.65 {
		t.Errorf("%d gangs have %.2f racks more than needed, want at most 0.65", starts, mean)
	}
}

// With the policy that goes by paths, tasks are nearer to the daemon that accepted them than with another policy.
func TestTopologyPlacesTasksNearTheirOwner(t *testing.T) {
	hops := map[string]float64{}
	for _, policy := range []string{"topology", "frag"} {
		s := small(t, 9)
		s.Policy = policy
		out, err := s.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		hops[policy] = out.Document.Runs[0].Figures.Remote.Hops
	}
	if hops["topology"] >= hops["frag"] {
		t.Errorf(`hops on average: %v, want ["topology"] less than %v`, hops, hops["frag"])
	}
}

// The yardsticks have the same faults as muster: a power cut of all machines ends what runs there, and the document
// says so.
func TestYardsticksHaveTheSameFaults(t *testing.T) {
	s := small(t, 1)
	s.Yardsticks = central.Orders
	for i := range s.Load.Machines {
		s.Faults = append(s.Faults, Fault{Fault: sim.Fault{At: 2000 * time.Second, Kind: sim.Crash, Machine: i, For: 10 * time.Minute}})
	}
	out, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range out.Document.Runs {
		f := r.Figures
		if f.Again.Lost == 0 || f.Again.Recovery.N != f.Again.Lost || f.Again.Recovery.Mean < 300 || len(f.Faults) != len(s.Faults) || f.Jobs.Finished != f.Jobs.Submitted {
			t.Errorf("%s: %d runs lost, which ran again after %v; %d faults; %d of %d jobs finished, want all, after at least 300 s", r.Name, f.Again.Lost, f.Again.Recovery, len(f.Faults), f.Jobs.Finished, f.Jobs.Submitted)
		}
		t.Logf("%s: %d lost, mean wait %.0f s", r.Name, f.Again.Lost, f.Wait.Mean)
	}
	var text strings.Builder
	report.Summary(&text, &out.Document)
	if !strings.Contains(text.String(), "faults of the yardsticks the same") || !strings.Contains(text.String(), "on-partition fence") {
		t.Errorf("the summary does not say which faults the yardsticks had:\n%s", text.String())
	}
}

// A fault of the network disconnects the machines that are in it or behind it, for the yardsticks too. Machines that
// join or leave do so for all.
func TestNetworkFaultsApplyToTheYardsticks(t *testing.T) {
	script := `at_s,kind,what,for_s
0,join,host-00001,
100,leave,host-00002,
500,join,host-00003,
600,rack,leaf1,60
700,switch,spine0,60
800,join,host-00002,
`
	s := small(t, 1)
	var err error
	if s.Faults, err = ReadScript("faults.csv", strings.NewReader(script), &s.Load); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := s.config(nil); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range s.centralFaults() {
		got = append(got, fmt.Sprint(f.Kind, f.Machines, " ", f.At, " ", f.For))
	}
	want := []string{"closed[2] 1m40s 11m40s", "closed[3] 0s 8m20s", "cut[4 5 6 7] 10m0s 1m0s"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
