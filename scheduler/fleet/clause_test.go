package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// If labels must be trusted, a host has only the labels that are signed for it, whatever it reports.
func TestOnlySignedLabelsAreTrusted(t *testing.T) {
	host := func(own, signed map[string]string) *Host {
		h := &Host{Peer: "p"}
		p := contract.Profile{Peer: "p", Name: "n", Labels: own, CPUs: 8, Worker: true, Drivers: []string{contract.DriverExec, contract.DriverSigned}}
		p.Sign(signed)
		hello(h, contract.Hello{Profile: p}, time.Time{})
		return h
	}
	yes := map[string]string{"secure": "yes"}
	no := map[string]string{"secure": "no"}
	for _, c := range []struct {
		name         string
		host         *Host
		any, trusted bool // meets secure=yes
		strange      bool // with trusted labels, meets !secure
	}{
		{"own", host(yes, nil), true, false, true},
		{"signed", host(nil, yes), true, true, false},
		{"signed against own", host(no, yes), true, true, false},
		{"own against signed", host(yes, no), false, false, false},
		{"none", host(nil, nil), false, false, true},
	} {
		meets := func(constraint string, trusted bool) bool {
			clauses, err := ClausesOf(job.Spec{Constraint: constraint, TrustedLabels: trusted})
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range clauses {
				if (x.Test(c.host) == "") != (x.met == nil && x.Test(c.host) == "" || x.met != nil && x.met(c.host)) {
					t.Errorf("%s: the two answers of clause %s differ", c.name, x.Text)
				}
			}
			return Meets(clauses, c.host)
		}
		if meets("secure=yes", false) != c.any || meets("secure=yes", true) != c.trusted || meets("!secure", true) != c.strange {
			t.Errorf("%s: secure=yes %v, with trusted labels %v, !secure %v, want %v, %v and %v", c.name, meets("secure=yes", false), meets("secure=yes", true), meets("!secure", true), c.any, c.trusted, c.strange)
		}
		if !meets("cpus=8", true) {
			t.Errorf("%s: trusted labels hide the facts of the host", c.name)
		}
		prefers := job.Spec{Prefer: "secure=yes", TrustedLabels: true}.Preferences()
		if got := Weight(prefers, c.host) == 1; got != c.trusted {
			t.Errorf("%s: preferred %v, want %v", c.name, got, c.trusted)
		}
	}
	old := host(nil, yes)
	old.Profile.Drivers = []string{contract.DriverExec}
	if clauses, _ := ClausesOf(job.Spec{TrustedLabels: true}); Meets(clauses, old) {
		t.Error("a host of an earlier version, which would refuse the job file, fits")
	}
}

func TestClausesOfAnImage(t *testing.T) {
	bare := &Host{Profile: contract.Profile{Worker: true, Drivers: []string{contract.DriverExec}}}
	engine := &Host{Profile: contract.Profile{Worker: true, Drivers: []string{contract.DriverExec, contract.DriverDocker}, Mounts: []string{"/data"}}}
	for _, c := range []struct {
		mounts       []string
		bare, engine string
	}{
		{nil, "no Docker engine", ""},
		{[]string{"/data/set:/in:ro"}, "no Docker engine", ""},
		{[]string{"/etc:/in"}, "no Docker engine", "lets containers see /data"},
	} {
		clauses, err := ClausesOf(job.Spec{Image: "busybox", Mounts: c.mounts})
		if err != nil {
			t.Fatal(err)
		}
		for h, want := range map[*Host]string{bare: c.bare, engine: c.engine} {
			got := ""
			for _, clause := range clauses {
				if why := clause.Test(h); why != "" && got == "" {
					got = why
				}
			}
			if got != want {
				t.Errorf("mounts %v on %v: %q, want %q", c.mounts, h.Profile.Drivers, got, want)
			}
		}
	}
}

// If no host runs containers, or none allows them to see a directory, the advice says what is needed. It is silent
// about mounts that a host without an engine would allow.
func TestAdviceOnContainers(t *testing.T) {
	bare := &Host{Profile: contract.Profile{Worker: true, CPUs: 1, Drivers: []string{contract.DriverExec}}}
	engine := &Host{Profile: contract.Profile{Worker: true, CPUs: 1, Drivers: []string{contract.DriverExec, contract.DriverDocker}, Mounts: []string{"/data"}}}
	const ask, container, mount = "", "a job with --image needs a node where a Docker engine runs", "its setting docker-mount, as in muster daemon --docker-mount /etc"
	for _, c := range []struct {
		spec  job.Spec
		hosts []*Host
		want  string
	}{
		{job.Spec{Image: "busybox"}, []*Host{bare, bare}, container},
		{job.Spec{Image: "busybox", Mounts: []string{"/etc:/in"}}, []*Host{bare}, container},
		{job.Spec{Image: "busybox", Mounts: []string{"/etc:/in"}}, []*Host{bare, engine}, mount},
		{job.Spec{Image: "busybox", Mounts: []string{"/data:/in"}}, []*Host{bare, engine}, ask},
		{job.Spec{Image: "busybox", Resources: job.Resources{CPUs: 2}}, []*Host{engine}, ask},
		{job.Spec{Image: "busybox"}, nil, ask},
	} {
		clauses, err := ClausesOf(c.spec)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, x := range Explain(clauses, c.hosts) {
			if x.Advice != "" {
				all = append(all, x.Advice)
			}
		}
		if got := strings.Join(all, "|"); len(all) > 1 || (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v on %d hosts: %q, want %q", c.spec, len(c.hosts), got, c.want)
		}
	}
}

// A task with input goes only to hosts that forward input. Earlier versions do not.
func TestTaskWithInputNeedsAHostThatForwardsIt(t *testing.T) {
	old := &Host{Profile: contract.Profile{Worker: true, Drivers: []string{contract.DriverExec}}}
	knows := &Host{Profile: contract.Profile{Worker: true, Drivers: []string{contract.DriverExec, contract.DriverInput}}}
	for _, s := range []job.Spec{{}, {Stdin: true}, {TTY: "24x80"}} {
		clauses, err := ClausesOf(s)
		if err != nil {
			t.Fatal(err)
		}
		if Meets(clauses, old) == s.TakesInput() || !Meets(clauses, knows) {
			t.Errorf("stdin %v, tty %q: met by %v: %v, by %v: %v, want it met by the first only without input, and by the second", s.Stdin, s.TTY, old.Profile.Drivers, Meets(clauses, old), knows.Profile.Drivers, Meets(clauses, knows))
		}
		if (PoolKey(s) == PoolKey(job.Spec{})) == s.TakesInput() {
			t.Errorf("stdin %v, tty %q: in the pool %s, want one of its own only with input", s.Stdin, s.TTY, PoolKey(s))
		}
	}
}

// sameDevices are n devices of one kind.
func sameDevices(n int, class string, memory job.Size) []gpu.Device {
	out := make([]gpu.Device, n)
	for i := range out {
		out[i] = gpu.Device{UUID: fmt.Sprint(class, i), Class: class, Memory: memory, Compute: "8.6", Driver: "550.54"}
	}
	return out
}

// Each term of a constraint has a line of its own. It says what the hosts have that fail it.
func TestEachTermOfAConstraintIsAClause(t *testing.T) {
	table := NewTable()
	add := func(name, labels string, devices ...gpu.Device) {
		p := contract.Profile{Name: name, CPUs: 4, Worker: true, Drivers: []string{contract.DriverExec}, Labels: map[string]string{}, GPUs: devices}
		for l := range strings.FieldsSeq(labels) {
			k, v, _ := strings.Cut(l, "=")
			p.Labels[k] = v
		}
		table.Hello(table.Add(job.Peer("p-"+name), false), contract.Hello{Profile: p}, start)
	}
	add("a", "rack=r1 old=1", sameDevices(2, "a40", 48e9)...)
	add("b", "rack=r2", sameDevices(1, "t4", 16e9)...)
	add("c", "")
	clauses, err := ClausesOf(job.Spec{Constraint: "rack=r1 & !old & (gpu.cc>=9.0|gpu.memory>=40GB)", NodeList: []string{"[a-b]"}, Exclude: []string{"b"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range Explain(clauses, table.Sorted()) {
		text := fmt.Sprintf("%s: %d of %d", c.Clause, c.Meets, c.Of)
		for _, f := range c.Fails {
			text += "; " + f.Name + ": " + f.Reason
		}
		got = append(got, text)
	}
	want := []string{
		"driver: exec: 3 of 3",
		"constraint rack=r1: 1 of 3; b: has rack=r2; c: is not labelled rack",
		"constraint !old: 2 of 3; a: has old=1",
		"constraint (gpu.cc>=9.0|gpu.memory>=40GB): 1 of 3; b: has gpu.cc=8.6, has gpu.memory=16GB; c: has no GPU",
		"nodelist: [a-b]: 2 of 3; c: not listed",
		"exclude: b: 2 of 3; b: excluded",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
