package placing

// Gates: what the policies of muster must reach, by name.

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/musterhq/muster/scheduler/policy"
)

// Gate is one demand on the policies, and what was measured. Points are percentages of all GPUs.
type Gate struct {
	Name  string
	Aim   string  // what is demanded
	Least float64 // the least that meets the aim, in points
	Got   float64 // what was measured
	Where string  // the table, and the policy, that is the furthest from the aim; empty for a mean
	Met   bool
}

// Demands on the policies, in points.
const (
	fragBelow   = -0.2 // frag against FGD, on any table
	packBelow   = -0.3 // pack against the lesser of BestFit and GpuPacking, on any table
	fragMean    = 0.5  // frag against FGD, mean over the tables
	fragStretch = 0.9
	pinnedAbove = 5    // frag against FGD, on a table of which a third is pinned
	sampleLoss  = -0.5 // a policy that chooses from a sample, against the same one that sees all machines
	asPublished = -0.3 // a published policy against its published figure
)

// Sample is how many random candidates a policy chooses from in the gate on samples.
const Sample = 64

// Judged returns a study of these tables that yields the figures of all gates. The caller sets its seeds.
func Judged(tables []Table) Study {
	return Study{Tables: tables, Policies: policy.Names(), Candidates: []int{0, Sample}, Yardsticks: []string{FGD, BestFit, GpuPacking}}
}

// WithPinned adds pinned copies of two tables: of the first one, and of the one in which the most requests name models.
// In a copy, a third of the requests for GPUs is pinned to models as in the table that names most of them. If no request names a model,
// it adds no table.
func WithPinned(tables []Table) []Table {
	most, from := 0, 0
	for i, t := range tables {
		n := 0
		for k := range t.Requests {
			if t.Requests[k].Models != "" {
				n++
			}
		}
		if n > most {
			most, from = n, i
		}
	}
	if most == 0 {
		return tables
	}
	out := slices.Clone(tables)
	for i, t := range tables {
		if i == 0 || i == from {
			t.Name, t.Pinned = t.Name+"-pinned", true
			t.Requests = Pin(t.Requests, tables[from].Requests, 1.0/3, 1)
			out = append(out, t)
		}
	}
	return out
}

// Gates compares the figures. Gates for which figures are missing are left out. The yardsticks are the published
// policies on the same machines, tables and seeds.
func Gates(figures []Figure) []Gate {
	frag := margins(figures, "frag", FGD)
	var plain, pinned []margin
	for _, m := range frag {
		if m.pinned {
			pinned = append(pinned, m)
		} else {
			plain = append(plain, m)
		}
	}
	var gates []Gate
	add := func(name, aim string, least float64, ms []margin) {
		if len(ms) > 0 {
			w := worst(ms)
			gates = append(gates, Gate{Name: name, Aim: aim, Least: least, Got: w.by, Where: w.where, Met: reached(w.by, least)})
		}
	}
	add("frag on every table", "FGD - 0.2 points", fragBelow, frag)
	if len(plain) > 0 {
		x := meanOf(plain)
		gates = append(gates,
			Gate{Name: "frag in the mean", Aim: "FGD + 0.5 points", Least: fragMean, Got: x, Met: reached(x, fragMean)},
			Gate{Name: "frag in the mean, stretch", Aim: "FGD + 0.9 points", Least: fragStretch, Got: x, Met: reached(x, fragStretch)})
	}
	add("frag where a third is pinned to models", "FGD + 5 points", pinnedAbove, pinned)
	add("pack on every table", "the lesser of BestFit and GpuPacking - 0.3 points", packBelow, lesser(figures))
	for _, p := range policy.Names() {
		add(fmt.Sprintf("%s of %d candidates", p, Sample), "all candidates - 0.5 points", sampleLoss, sampled(figures, p))
	}
	return gates
}

// reached compares in thousandths of a point, so that a figure at the limit does not depend on rounding errors.
func reached(got, least float64) bool { return math.Round(1000*got) >= math.Round(1000*least) }

// margin is by how many points one figure is above another.
type margin struct {
	where  string
	by     float64
	pinned bool
}

func worst(ms []margin) margin {
	return slices.MinFunc(ms, func(a, b margin) int {
		switch {
		case a.by < b.by:
			return -1
		case a.by > b.by:
			return 1
		}
		return 0
	})
}

func meanOf(ms []margin) float64 {
	sum := 0.0
	for _, m := range ms {
		sum += m.by
	}
	return sum / float64(len(ms))
}

// margins compares two policies that see all machines, on each table that has both.
func margins(figures []Figure, policy, yardstick string) []margin {
	var out []margin
	for _, f := range figures {
		if y, known := find(figures, f.Table, yardstick, 0); known && f.Policy == policy && f.Candidates == 0 {
			out = append(out, margin{f.Table, f.At100 - y.At100, f.Pinned})
		}
	}
	return out
}

// lesser compares pack with the lesser of BestFit and GpuPacking.
func lesser(figures []Figure) []margin {
	fit, packing := margins(figures, "pack", BestFit), margins(figures, "pack", GpuPacking)
	if len(fit) != len(packing) {
		return nil
	}
	for i := range fit {
		fit[i].by = max(fit[i].by, packing[i].by)
	}
	return fit
}

// sampled compares a policy that chooses from a sample with the same policy that sees all machines.
func sampled(figures []Figure, policy string) []margin {
	var out []margin
	for _, f := range figures {
		if all, known := find(figures, f.Table, policy, 0); known && f.Policy == policy && f.Candidates == Sample {
			out = append(out, margin{where: f.Table, by: f.At100 - all.At100})
		}
	}
	return out
}

// Reproduced returns the gate on the published policies: each must be as near to its published figure as the published
// means vary. published has the figures by table and policy. It returns false if no figure was published.
func Reproduced(figures []Figure, published map[[2]string]float64) (Gate, bool) {
	var ms []margin
	for _, f := range figures {
		if x, known := published[[2]string{f.Table, f.Policy}]; known && f.Candidates == 0 {
			ms = append(ms, margin{where: f.Policy + " on " + f.Table, by: -math.Abs(f.At100 - x)})
		}
	}
	if len(ms) == 0 {
		return Gate{}, false
	}
	w := worst(ms)
	return Gate{
		Name: "published policies as published", Aim: "within 0.3 points", Least: asPublished, Got: w.by, Where: w.where,
		Met: reached(w.by, asPublished),
	}, true
}

// WriteGates writes a line for each gate: met or missed, by how much, and where.
func WriteGates(w io.Writer, gates []Gate) error {
	for _, g := range gates {
		word := "met   "
		if !g.Met {
			word = "MISSED"
		}
		where := "mean over the tables"
		if g.Where != "" {
			where = "least on " + g.Where
		}
		if _, err := fmt.Fprintf(w, "%s  %-42s %+.3f points, %s; aim: %s\n", word, g.Name, g.Got, where, g.Aim); err != nil {
			return err
		}
	}
	return nil
}
