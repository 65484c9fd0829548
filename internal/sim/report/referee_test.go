package report_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/internal/sim/report"
	"github.com/musterhq/muster/internal/sim/report/reporttest"
	"github.com/musterhq/muster/job"
)

func check(t *testing.T, l *load.Load, records []record.Record) (int, error) {
	t.Helper()
	f, err := report.NewReferee(l, report.Rules{Restart: reporttest.Restart})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range records {
		if err := f.Check(r); err != nil {
			return f.Open(), fmt.Errorf("record %d: %w", i, err)
		}
	}
	return f.Open(), nil
}

// A legal run passes through its log, and each of the faults below is found.
func TestRefereeFindsEachFault(t *testing.T) {
	found := map[string]int{}
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := reporttest.Load(r, 8, 60)
		records := reporttest.Run(r, l, 0.15, 0.15)
		if open, err := check(t, l, records); err != nil || open != 0 {
			t.Fatalf("seed %d: a legal run: %v; %d jobs open, want no error and 0", seed, err, open)
		}
		for _, name := range slices.Sorted(maps.Keys(faults)) {
			spoilt := slices.Clone(records)
			for i := range spoilt {
				spoilt[i].Alloc = slices.Clone(spoilt[i].Alloc)
				for k := range spoilt[i].Alloc {
					spoilt[i].Alloc[k].Devices = slices.Clone(spoilt[i].Alloc[k].Devices)
				}
			}
			spoilt, did := faults[name](r, l, spoilt)
			if !did {
				continue
			}
			open, err := check(t, l, spoilt)
			if err == nil && open == 0 {
				t.Errorf("seed %d: %s: the referee has found nothing", seed, name)
			}
			found[name]++
		}
	}
	for name := range faults {
		if found[name] == 0 {
			t.Errorf("%s was never tried", name)
		}
	}
}

// pick returns a random record with this property.
func pick(r *rand.Rand, records []record.Record, so func(int) bool) (int, bool) {
	for _, i := range r.Perm(len(records)) {
		if so(i) {
			return i, true
		}
	}
	return 0, false
}

type spoiler func(*rand.Rand, *load.Load, []record.Record) ([]record.Record, bool)

// change alters one random record of a kind.
func change(kind record.Kind, f func(l *load.Load, x *record.Record) bool) spoiler {
	return func(r *rand.Rand, l *load.Load, all []record.Record) ([]record.Record, bool) {
		_, ok := pick(r, all, func(i int) bool { return all[i].Kind == kind && f(l, &all[i]) })
		return all, ok
	}
}

func withDevices(f func(l *load.Load, a *record.Alloc) bool) spoiler {
	return change(record.Start, func(l *load.Load, x *record.Record) bool {
		return len(x.Alloc) > 0 && len(x.Alloc[0].Devices) > 0 && f(l, &x.Alloc[0])
	})
}

var faults = map[string]spoiler{
	"a finish too early":   change(record.Finish, func(_ *load.Load, x *record.Record) bool { x.At -= time.Millisecond; return true }),
	"a finish too late":    change(record.Finish, func(_ *load.Load, x *record.Record) bool { x.At += time.Millisecond; return true }),
	"a finish is missing":  drop(record.Finish),
	"a start is missing":   drop(record.Start),
	"a preempt is missing": drop(record.Preempt),
	"a lost is missing":    drop(record.Lost),
	"two finishes":         twice(record.Finish),
	"two starts":           twice(record.Start),
	"two preempts":         twice(record.Preempt),
	"a preempt that was a loss": func(r *rand.Rand, _ *load.Load, all []record.Record) ([]record.Record, bool) {
		// It must have done something: its run is longer than the restart.
		i, ok := pick(r, all, func(i int) bool {
			if all[i].Kind != record.Preempt {
				return false
			}
			begin := i
			for all[begin].Kind != record.Start || all[begin].Job != all[i].Job || all[begin].Task != all[i].Task {
				begin--
			}
			return all[i].At-all[begin].At > reporttest.Restart
		})
		if ok {
			all[i].Kind = record.Lost
		}
		return all, ok
	},
	"an unknown kind": change(record.Finish, func(_ *load.Load, x *record.Record) bool { x.Kind = "done"; return true }),
	"an unknown job":  change(record.Start, func(l *load.Load, x *record.Record) bool { x.Job = len(l.Jobs); return true }),
	"an unknown task": change(record.Start, func(_ *load.Load, x *record.Record) bool { x.Task += 4; return true }),
	"before its submission": func(r *rand.Rand, l *load.Load, all []record.Record) ([]record.Record, bool) {
		// Its duration is right, so only the submission is wrong.
		i, ok := pick(r, all, func(i int) bool { return all[i].Kind == record.Start && all[i].At > 0 })
		l.Jobs = slices.Clone(l.Jobs)
		l.Jobs[all[i].Job].Submit = all[i].At + 1
		return all, ok
	},
	"a device twice": withDevices(func(_ *load.Load, a *record.Alloc) bool {
		if len(a.Devices) < 2 {
			return false
		}
		a.Devices[1] = a.Devices[0]
		return true
	}),
	"a device too few":         withDevices(func(_ *load.Load, a *record.Alloc) bool { a.Devices = a.Devices[1:]; return true }),
	"a device that is missing": withDevices(func(_ *load.Load, a *record.Alloc) bool { a.Devices[0] = 8; return true }),
	"a device below 0":         withDevices(func(_ *load.Load, a *record.Alloc) bool { a.Devices[0] = -1; return true }),
	"less of a device":         withDevices(func(_ *load.Load, a *record.Alloc) bool { a.Milli--; return true }),
	"a machine that is missing": change(record.Start, func(l *load.Load, x *record.Record) bool {
		x.Alloc[0].Machine = len(l.Machines)
		return true
	}),
	"a gang with one member less": change(record.Start, func(_ *load.Load, x *record.Record) bool {
		if len(x.Alloc) < 2 {
			return false
		}
		x.Alloc = x.Alloc[1:]
		return true
	}),
	"a gang with two members on one machine": change(record.Start, func(_ *load.Load, x *record.Record) bool {
		if len(x.Alloc) < 2 {
			return false
		}
		x.Alloc[1] = x.Alloc[0]
		return true
	}),
	"no machine": change(record.Start, func(_ *load.Load, x *record.Record) bool { x.Alloc = nil; return true }),
	"a model that will not do": change(record.Start, func(l *load.Load, x *record.Record) bool {
		r := l.Jobs[x.Job].Spec.Resources
		if r.GPUModel == "" {
			return false
		}
		for m := range l.Machines {
			if l.Machines[m].Model != r.GPUModel && l.Machines[m].GPUs >= r.GPUs {
				x.Alloc[0].Machine = m
				return true
			}
		}
		return false
	}),
	"a device that another task has": func(r *rand.Rand, l *load.Load, all []record.Record) ([]record.Record, bool) {
		// The next start uses the devices of a task that still runs.
		i, ok := pick(r, all, func(i int) bool {
			return i+1 < len(all) && all[i].Kind == record.Start && all[i+1].Kind == record.Start && takesWhole(l, all[i]) && takesWhole(l, all[i+1]) && sameSize(all[i], all[i+1])
		})
		if ok {
			all[i+1].Alloc = all[i].Alloc
		}
		return all, ok
	},
	"CPUs that are not there": change(record.Start, func(l *load.Load, x *record.Record) bool {
		l.Machines = slices.Clone(l.Machines)
		l.Machines[x.Alloc[0].Machine].CPUs = l.Jobs[x.Job].Spec.Resources.CPUs - 1
		return true
	}),
	"memory that is not there": change(record.Start, func(l *load.Load, x *record.Record) bool {
		if l.Jobs[x.Job].Spec.Resources.Memory == 0 {
			return false
		}
		l.Machines = slices.Clone(l.Machines)
		l.Machines[x.Alloc[0].Machine].Memory = l.Jobs[x.Job].Spec.Resources.Memory - 1
		return true
	}),
	"a job that runs after its refusal": change(record.Preempt, func(_ *load.Load, x *record.Record) bool { x.Kind = record.Reject; return true }),
}

func takesWhole(l *load.Load, x record.Record) bool { return l.Jobs[x.Job].Spec.Resources.GPUs > 0 }

func sameSize(a, b record.Record) bool {
	return len(a.Alloc) == 1 && len(b.Alloc) == 1 && len(a.Alloc[0].Devices) == len(b.Alloc[0].Devices)
}

func drop(kind record.Kind) spoiler {
	return func(r *rand.Rand, _ *load.Load, all []record.Record) ([]record.Record, bool) {
		i, ok := pick(r, all, func(i int) bool { return all[i].Kind == kind })
		if ok {
			all = slices.Delete(all, i, i+1)
		}
		return all, ok
	}
}

func twice(kind record.Kind) spoiler {
	return func(r *rand.Rand, _ *load.Load, all []record.Record) ([]record.Record, bool) {
		i, ok := pick(r, all, func(i int) bool { return all[i].Kind == kind })
		if ok {
			all = slices.Insert(all, i, all[i])
		}
		return all, ok
	}
}

func TestEachRuleOfTheReferee(t *testing.T) {
	l := &load.Load{
		Machines: []load.Machine{{Name: "n", CPUs: 4000, GPUs: 1}},
		Jobs: []load.Job{
			{Name: "all", Runs: time.Minute, Spec: job.Spec{Exclusive: true, Resources: job.Resources{CPUs: 1000}}},
			{Name: "small", Runs: time.Minute, Spec: job.Spec{Resources: job.Resources{CPUs: 1000}}},
		},
	}
	on := []record.Alloc{{Machine: 0}}
	start := func(at time.Duration, j int) record.Record {
		return record.Record{At: at, Kind: record.Start, Job: j, Alloc: on}
	}
	for name, c := range map[string]struct {
		records []record.Record
		want    string
	}{
		"a job shares the machine of one that asks for all of it": {[]record.Record{start(0, 0), start(1, 1)}, "shares it"},
		"a job asks for a machine where another one is":           {[]record.Record{start(0, 1), start(1, 0)}, "shares it"},
		"time goes back": {[]record.Record{start(1, 0), {At: 0, Kind: record.Finish}}, "the record before it is at"},
		"a loss undoes what was done": {[]record.Record{
			start(0, 0), {At: 30 * time.Second, Kind: record.Lost}, start(30*time.Second, 0), {At: time.Minute, Kind: record.Finish},
		}, "it has run for 30s, and its load says 1m0s"},
		"a preemption keeps it, at a price": {[]record.Record{
			start(0, 0), {At: 30 * time.Second, Kind: record.Preempt}, start(30*time.Second, 0), {At: time.Minute, Kind: record.Finish},
		}, "it has run for 0s"},
		"a finish that a fault undoes, where that may not be": {[]record.Record{
			start(0, 0), {At: time.Minute, Kind: record.Finish}, {At: time.Minute, Kind: record.Lost},
		}, "it is not running"},
		"a refused job starts":          {[]record.Record{{Kind: record.Reject}, start(1, 0)}, "it has ended"},
		"a job is refused two times":    {[]record.Record{{Kind: record.Reject}, {Kind: record.Reject}}, "it has ended"},
		"a job that waits is preempted": {[]record.Record{{Kind: record.Preempt}}, "it is not running"},
	} {
		_, err := check(t, l, c.records)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

// What a job has saved counts after a fault, and a fault may undo a finish that nobody has learnt of.
func TestRefereeAcceptsRunsWithFaults(t *testing.T) {
	l := &load.Load{
		Machines: []load.Machine{{Name: "n", CPUs: 4000, GPUs: 1}},
		Jobs:     []load.Job{{Name: "x", Runs: 10 * time.Minute, Spec: job.Spec{Resources: job.Resources{CPUs: 1000}}}},
	}
	rules := report.Rules{Restart: time.Minute, Checkpoint: 4 * time.Minute, Undone: true}
	at := func(minutes int, kind record.Kind) record.Record {
		r := record.Record{At: time.Duration(minutes) * time.Minute, Kind: kind}
		if kind == record.Start {
			r.Alloc = []record.Alloc{{Machine: 0}}
		}
		return r
	}
	f, err := report.NewReferee(l, rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []record.Record{
		at(0, record.Start), at(3, record.Lost), // nothing is saved
		at(3, record.Start), at(12, record.Lost), // 8 s are saved
		at(12, record.Start), at(15, record.Finish), // 1 s for the restart, and the last 2
		at(15, record.Lost),                                              // its end was lost with its host
		at(16, record.Start), at(17, record.Lost), at(17, record.Reject), // it is held, and a person releases it
		at(18, record.Start), at(28, record.Finish),
	} {
		if err := f.Check(r); err != nil {
			t.Fatal(err)
		}
	}
	if f.Open() != 0 {
		t.Errorf("%d jobs are open, want 0", f.Open())
	}
}

// The cost of a restart that a preemption cuts short may be paid later or not.
func TestRefereeAcceptsRestartsCutShort(t *testing.T) {
	l := &load.Load{
		Machines: []load.Machine{{Name: "n", CPUs: 4000, GPUs: 1}},
		Jobs:     []load.Job{{Name: "x", Runs: 10 * time.Minute, Spec: job.Spec{Resources: job.Resources{CPUs: 1000}}}},
	}
	s := time.Second
	for end, legal := range map[time.Duration]bool{509 * s: false, 510 * s: true, 520 * s: true, 550 * s: true, 551 * s: false} {
		on := []record.Alloc{{Machine: 0}}
		_, err := check(t, l, []record.Record{
			{Kind: record.Start, Alloc: on},
			{At: 200 * s, Kind: record.Preempt},
			{At: 200 * s, Kind: record.Start, Alloc: on},
			{At: 220 * s, Kind: record.Preempt}, // 40 s too early
			{At: 220 * s, Kind: record.Start, Alloc: on},
			{At: 220*s + end - 50*s, Kind: record.Finish},
		})
		if (err == nil) != legal {
			t.Errorf("a last run of %v: %v, want an error exactly if it is illegal", end-50*s, err)
		}
	}
}

// The log of a run reads back as the same records, and equal runs have equal bytes.
func TestLogReadsBack(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		l := reporttest.Load(r, 8, 80)
		l.Jobs[3].Name = "Jörg's \"job\"\n\\"
		records := reporttest.Run(r, l, 0.1, 0.1)
		text := logOf(t, l, records)
		if !bytes.Equal(text, logOf(t, l, records)) {
			t.Fatal("two logs of one run differ")
		}
		var back record.Log
		if err := report.ReadLog(bytes.NewReader(text), l, func(r record.Record) error { back.Take(r); return nil }); err != nil {
			t.Fatal(err)
		}
		if again := logOf(t, l, back); !bytes.Equal(text, again) {
			t.Fatalf("seed %d: the log reads back as another one", seed)
		}
		if open, err := check(t, l, back); err != nil || open != 0 {
			t.Fatalf("seed %d: %v, %d open, want no error and 0", seed, err, open)
		}
	}
}

func logOf(t *testing.T, l *load.Load, records []record.Record) []byte {
	t.Helper()
	var b bytes.Buffer
	g := report.NewLog(&b, l)
	for _, r := range records {
		g.Take(r)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The lines are those of the public queueing experiment.
func TestLinesOfALogHaveThePublishedForm(t *testing.T) {
	l := &load.Load{
		Machines: []load.Machine{{Name: "node-003", GPUs: 2}},
		Jobs: []load.Job{
			{Name: "job-00007", Spec: job.Spec{Resources: job.Resources{GPUs: 2}}},
			{Name: "cpu", Spec: job.Spec{Array: "5-9"}},
		},
	}
	got := string(logOf(t, l, []record.Record{
		{At: 12*time.Second + 500*time.Millisecond, Kind: record.Start, Alloc: []record.Alloc{{Devices: []int{0, 1}, Milli: 1000}}},
		{At: 99 * time.Second, Kind: record.Preempt},
		{At: 99*time.Second + 1, Kind: record.Start, Job: 1, Task: 3, Alloc: []record.Alloc{{}}},
		{At: 500 * time.Second, Kind: record.Finish},
	}))
	const want = `{"t":12.5,"event":"start","job":"job-00007","alloc":[{"node":"node-003","gpus":[0,1]}]}
{"t":99.0,"event":"preempt","job":"job-00007"}
{"t":99.000000001,"event":"start","job":"cpu","task":3,"alloc":[{"node":"node-003","gpus":[]}]}
{"t":500.0,"event":"finish","job":"job-00007"}
`
	if got != want {
		t.Errorf("the log is\n%swant\n%s", got, want)
	}
}

func TestReadLogNamesTheLine(t *testing.T) {
	l := reporttest.Load(rand.New(rand.NewPCG(1, 1)), 4, 4)
	for text, want := range map[string]string{
		`{"t":1.0,"event":"start","job":"job-00000"`:                                             "line 2: ",
		`{"t":1.0,"event":"began","job":"job-00000"}`:                                            `line 2: event "began": want start`,
		`{"t":1.0,"event":"finish","job":"job-9"}`:                                               `line 2: job "job-9": the load has no such job`,
		`{"t":-1,"event":"finish","job":"job-00000"}`:                                            "line 2: t: -1: want seconds",
		`{"t":1e300,"event":"finish","job":"job-00000"}`:                                         "line 2: t: 1e300: want seconds",
		`{"event":"finish","job":"job-00000"}`:                                                   "line 2: t: ",
		`{"t":1.0,"event":"start","job":"job-00000","alloc":[{"node":"node-9"}]}`:                `line 2: node "node-9": the load has no such machine`,
		`{"t":1.0,"event":"start","job":"job-00000","alloc":[{"node":"node-001","gpus":["a"]}]}`: "line 2: ",
		`{"t":1.0,"event":"finish","job":"job-00000","why":"x"}`:                                 `line 2: json: unknown field "why"`,
	} {
		err := report.ReadLog(strings.NewReader(`{"t":0.5,"event":"reject","job":"job-00001"}`+"\n"+text+"\n"), l, func(record.Record) error { return nil })
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
	l.Jobs[1].Name = l.Jobs[0].Name
	if err := report.ReadLog(strings.NewReader(""), l, nil); err == nil || !strings.Contains(err.Error(), "the same name") {
		t.Errorf(`two jobs of one name: %v, want an error and "the same name" in it`, err)
	}
}

func FuzzReadLog(f *testing.F) {
	l := reporttest.Load(rand.New(rand.NewPCG(1, 1)), 8, 20)
	f.Add([]byte(`{"t":12.5,"event":"start","job":"job-00007","alloc":[{"node":"node-003","gpus":[0,1]}]}`))
	f.Add([]byte(`{"t":99.0,"event":"preempt","job":"job-00007","task":-1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		referee, err := report.NewReferee(l, report.Rules{})
		if err != nil {
			t.Fatal(err)
		}
		_ = report.ReadLog(bytes.NewReader(text), l, referee.Check) // must not panic
	})
}
