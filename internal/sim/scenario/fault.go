package scenario

// Faults: from a script, or at random with a rate.

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/sim"
	"github.com/musterhq/muster/internal/sim/central"
	"github.com/musterhq/muster/internal/sim/fabric"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/report"
)

// MaxFaults bounds the faults of a simulation.
const MaxFaults = 1_000_000

// Fault is a fault, as the script or the rate names it.
type Fault struct {
	sim.Fault

	What  string // for people
	hosts []int  // hosts that it hits
}

// of converts the fault for the world.
func (f *Fault) of(n *network) (sim.Fault, error) {
	if f.Kind != sim.Break {
		return f.Fault, nil
	}
	if n == nil {
		return f.Fault, fmt.Errorf("fault of %s: without a topology the network has no parts that fail", f.Part)
	}
	if _, err := n.parts(f.Part); err != nil {
		return f.Fault, fmt.Errorf("fault: %w", err)
	}
	f.hosts = n.hosts(f.Part)
	return f.Fault, nil
}

// reported returns the faults of a run in the order of time.
func (s *Scenario) reported() []report.Fault {
	var out []report.Fault
	for _, f := range s.Faults {
		r := report.Fault{At: f.At, Kind: string(f.Kind), What: f.What, Machines: f.hosts}
		if f.For > 0 {
			r.Until = f.At + f.For
		}
		if f.Kind == sim.Break {
			r.Kind, r.What, _ = strings.Cut(f.Part, " ")
		} else {
			r.Machines = []int{f.Machine}
		}
		out = append(out, r)
	}
	slices.SortStableFunc(out, func(a, b report.Fault) int { return cmp.Compare(a.At, b.At) })
	return out
}

// centralFaults returns the faults for the yardsticks, at the same machines and times. A fault of the network becomes a
// cut of the machines that it cuts off, if any.
func (s *Scenario) centralFaults() []central.Fault {
	order := make([]int, len(s.Faults))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.Faults[a].At, s.Faults[b].At) })
	var out []central.Fault
	last := map[int]int{} // by machine: 1 plus the index in out of its last fault that is for good
	seen := map[int]bool{}
	for _, i := range order {
		f := &s.Faults[i]
		x := central.Fault{At: f.At, For: f.For, Machines: []int{f.Machine}, Device: f.Device, Speed: f.Speed}
		switch f.Kind {
		case sim.Crash:
			x.Kind = central.Off
		case sim.Kill:
			x.Kind, x.For = central.Closed, max(f.For, sim.RestartLeast)
		case sim.Leave:
			x.Kind = central.Closed
		case sim.Join:
			if at := last[f.Machine]; at > 0 {
				out[at-1].For = f.At - out[at-1].At
				last[f.Machine] = 0
			}
			if seen[f.Machine] || f.At == 0 {
				continue
			}
			x.Kind, x.At, x.For = central.Closed, 0, f.At // the machine is absent before the join
		case sim.DeviceOut:
			x.Kind = central.DeviceOut
		case sim.Slow:
			x.Kind = central.Slow
		case sim.Break:
			if len(f.hosts) == 0 {
				continue
			}
			x.Kind, x.Machines = central.Cut, f.hosts
		}
		if f.Kind != sim.Break {
			seen[f.Machine] = true
		}
		if out = append(out, x); x.For == 0 && (f.Kind == sim.Crash || f.Kind == sim.Leave) {
			last[f.Machine] = len(out)
		}
	}
	return out
}

// Rate is how often things of a kind fail. Each fails independently, at any time with the same probability.
type Rate struct {
	Kind string  // host, daemon, gpu, slow, link or switch
	Hour float64 // failures an hour of each
	For  time.Duration
}

// rates are the kinds of faults that may have a rate, with how long they last by default.
var rates = map[string]time.Duration{
	"host": 10 * time.Minute, "daemon": 10 * time.Second, "gpu": time.Hour, "slow": time.Hour, "link": 10 * time.Minute, "switch": 10 * time.Minute,
}

// slowSpeed is the speed of a slow machine.
const slowSpeed = 0.5

// ParseRate reads a rate: "1%/h" for hosts, "gpu=0.5%/d" or "link=2/d for 1m". Units of time are h, d and w.
func ParseRate(text string) (Rate, error) {
	wrong := func(what string) (Rate, error) {
		return Rate{}, fmt.Errorf("rate %q: %s; want something like 1%%/h, gpu=0.5%%/d or link=2%%/d for 10m", text, what)
	}
	r := Rate{Kind: "host"}
	rest := text
	if kind, of, named := strings.Cut(rest, "="); named {
		r.Kind, rest = strings.TrimSpace(kind), of
	}
	var known bool
	if r.For, known = rates[r.Kind]; !known {
		return wrong(fmt.Sprintf("%q is not host, daemon, gpu, slow, link or switch", r.Kind))
	}
	often, lasts, long := strings.Cut(rest, " for ")
	if long {
		d, err := time.ParseDuration(strings.TrimSpace(lasts))
		if err != nil || d <= 0 {
			return wrong(fmt.Sprintf("%q is no time", lasts))
		}
		r.For = d
	}
	number, unit, per := strings.Cut(strings.TrimSpace(often), "/")
	hours, known := map[string]float64{"h": 1, "d": 24, "w": 24 * 7}[unit]
	if !per || !known {
		return wrong("no time unit")
	}
	scale := 1.0
	if n, percent := strings.CutSuffix(number, "%"); percent {
		number, scale = n, 0.01
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !(x >= 0) || x > 1e6 {
		return wrong(fmt.Sprintf("%q is no number", number))
	}
	r.Hour = x * scale / hours
	return r, nil
}

// Draw draws faults with these rates, up to a time. The same seed gives the same faults.
func Draw(rates []Rate, l *load.Load, t *fabric.Topology, until time.Duration, seed uint64) ([]Fault, error) {
	var out []Fault
	for i, r := range rates {
		all, err := r.all(l, t)
		if err != nil {
			return nil, err
		}
		hours := until.Hours()
		if expected := r.Hour * hours * float64(len(all)); expected > MaxFaults {
			return nil, fmt.Errorf("%s fail %.0f times until %s: at most %d faults can be simulated", r.Kind, expected, until.Round(time.Second), MaxFaults)
		}
		rng := rand.New(rand.NewPCG(seed, 0xfa<<32|uint64(i)))
		for _, f := range all {
			for at := next(rng, r.Hour); at < hours; at += r.For.Hours() + next(rng, r.Hour) {
				f.At, f.For = time.Duration(at*float64(time.Hour)), r.For
				out = append(out, f)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return out, nil
}

// next draws the hours until the next failure.
func next(rng *rand.Rand, hour float64) float64 {
	if hour == 0 {
		return math.Inf(1)
	}
	return rng.ExpFloat64() / hour
}

// all returns a fault for each thing that may fail, without a time.
func (r Rate) all(l *load.Load, t *fabric.Topology) ([]Fault, error) {
	var out []Fault
	if t == nil && (r.Kind == "link" || r.Kind == "switch") {
		return nil, fmt.Errorf("rate of %s: without a topology the network has none", r.Kind)
	}
	switch r.Kind {
	case "link":
		for _, x := range t.Links {
			a, b := t.Nodes[x.A].Name, t.Nodes[x.B].Name
			out = append(out, Fault{Fault: sim.Fault{Kind: sim.Break, Part: "link " + a + " " + b}})
		}
		return out, nil
	case "switch":
		for _, x := range t.Nodes[t.Hosts:] {
			out = append(out, Fault{Fault: sim.Fault{Kind: sim.Break, Part: "switch " + x.Name}})
		}
		return out, nil
	}
	kind := map[string]sim.FaultKind{"host": sim.Crash, "daemon": sim.Kill, "gpu": sim.DeviceOut, "slow": sim.Slow}[r.Kind]
	for i := range l.Machines {
		m := &l.Machines[i]
		f := Fault{Fault: sim.Fault{Kind: kind, Machine: i}, What: m.Name}
		switch kind { //nolint:exhaustive // the others need no more
		case sim.Slow:
			f.Speed = slowSpeed
		case sim.DeviceOut:
			for d := range m.GPUs {
				f.Device, f.What = d, fmt.Sprintf("%s:%d", m.Name, d)
				out = append(out, f)
			}
			continue
		}
		out = append(out, f)
	}
	return out, nil
}

// scriptColumns are those of a script of faults.
var scriptColumns = []string{"at_s", "kind", "what", "for_s"}

// ReadScript reads faults from a CSV table with the columns at_s, kind, what and for_s, in any order. Kind and what are
//
//	host, daemon, leave, join  the name of a machine; leave and join are a machine that goes in order, and one that comes
//	gpu                        machine:index
//	slow                       machine:speed, as 0.5
//	switch                     the name of a switch
//	link                       two names
//	rack                       the name of a leaf: it and its machines are cut off together
//	cut                        names of leaves and other nodes that are cut off together
//
// For_s is how long it lasts; empty: for good. Name is what errors call the file.
func ReadScript(name string, in io.Reader, l *load.Load) ([]Fault, error) {
	byName := map[string]int{}
	for i := range l.Machines {
		byName[l.Machines[i].Name] = i
	}
	r := csv.NewReader(in)
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the file is empty; it needs the columns %s", name, strings.Join(scriptColumns, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	at := map[string]int{}
	for i, c := range head {
		if !slices.Contains(scriptColumns, c) {
			return nil, fmt.Errorf("%s line 1: column %q is unknown; the columns are %s", name, c, strings.Join(scriptColumns, ", "))
		}
		at[c] = i
	}
	for _, c := range scriptColumns {
		if _, there := at[c]; !there {
			return nil, fmt.Errorf("%s line 1: column %q is missing", name, c)
		}
	}
	var out []Fault
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		line, _ := r.FieldPos(0)
		f, err := scripted(row[at["at_s"]], row[at["kind"]], row[at["what"]], row[at["for_s"]], byName, l)
		if err != nil {
			return nil, fmt.Errorf("%s line %d, %w", name, line, err)
		}
		if out = append(out, f); len(out) > MaxFaults {
			return nil, fmt.Errorf("%s: more than %d faults", name, MaxFaults)
		}
	}
	slices.SortStableFunc(out, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return out, nil
}

func seconds(column, text string) (time.Duration, error) {
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0) || x > 1e9 {
		return 0, fmt.Errorf("%s: %q is no number of seconds", column, text)
	}
	return time.Duration(x * float64(time.Second)), nil
}

// scripted reads one line.
func scripted(at, kind, what, lasts string, machines map[string]int, l *load.Load) (f Fault, err error) {
	if f.At, err = seconds("at_s", at); err != nil {
		return f, err
	}
	if lasts != "" {
		if f.For, err = seconds("for_s", lasts); err != nil {
			return f, err
		}
	}
	f.What = what
	switch kind {
	case "switch", "link", "rack", "cut":
		f.Kind, f.Part = sim.Break, kind+" "+what
		return f, nil
	}
	kinds := map[string]sim.FaultKind{
		"host": sim.Crash, "daemon": sim.Kill, "leave": sim.Leave, "join": sim.Join, "gpu": sim.DeviceOut, "slow": sim.Slow,
	}
	known := false
	if f.Kind, known = kinds[kind]; !known {
		return f, fmt.Errorf("kind: %q is not host, daemon, leave, join, gpu, slow, switch, link, rack or cut", kind)
	}
	machine, more, _ := strings.Cut(what, ":")
	if f.Machine, known = machines[machine]; !known {
		return f, fmt.Errorf("what: there is no machine %q", machine)
	}
	switch f.Kind { //nolint:exhaustive // the others need no more
	case sim.DeviceOut:
		if f.Device, err = strconv.Atoi(more); err != nil || f.Device < 0 || f.Device >= l.Machines[f.Machine].GPUs {
			return f, fmt.Errorf("what: %q is no GPU of %s; want %s:0 to %s:%d", what, machine, machine, machine, l.Machines[f.Machine].GPUs-1)
		}
	case sim.Slow:
		if f.Speed, err = strconv.ParseFloat(more, 64); err != nil || !(f.Speed > 0 && f.Speed <= 1) {
			return f, fmt.Errorf("what: %q: want %s:0.5 for half the speed", what, machine)
		}
	default:
		if more != "" {
			return f, fmt.Errorf("what: %q: want the name of a machine", what)
		}
	}
	return f, nil
}
