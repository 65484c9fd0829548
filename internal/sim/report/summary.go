package report

// The summary on a terminal, in lines of at most Width characters.

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/sim/report/units"
)

// Summary prints what a person wants to know first. All runs are in its first table, muster's on top.
func Summary(out io.Writer, d *Document) {
	head(out, d)
	if len(d.Runs) == 0 {
		return
	}
	placements(out, d.Runs)
	comparison(out, d.Runs)
	if f := d.Runs[0].Figures; f != nil {
		unfinished(out, f)
		overTime(out, f)
		groups(out, f)
		again(out, f)
		faultTable(out, f)
		distances(out, f, d.Network)
	}
	news(out, d.Information)
	gates(out, d.Gates)
}

func head(out io.Writer, d *Document) {
	c := d.Cluster
	words := []string{
		fmt.Sprintf("simulated: %s machines", units.Count(c.Machines)), units.Count(c.GPUs) + " GPUs",
		units.Count(int64(c.CPUs)) + " CPUs", units.Bytes(float64(c.Memory)),
	}
	if len(d.Runs) > 0 && d.Runs[0].Figures != nil {
		words = append(words, units.Count(d.Runs[0].Figures.Jobs.Submitted)+" jobs")
	}
	fill(out, append(words, fmt.Sprintf("seed %d", d.Seed)), " · ")
	var set []string
	for _, s := range d.Settings {
		set = append(set, s.Name+" "+s.Value)
	}
	fill(out, set, " · ")
}

// comparison prints a line for each run.
func comparison(out io.Writer, runs []Run) {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Figures == nil })
	if len(runs) == 0 {
		return
	}
	c := columns{out, []int{21, 7, 8, 8, 8, 8, 6, 7, 7}}
	fmt.Fprintln(out)
	c.row("", "GPUs", "wait", "wait", "wait", "compl.", "slow-", "make-", "pre-")
	c.row("", "used", "mean", "p99", "max", "mean", "down", "span", "empted")
	for i, r := range runs {
		f := r.Figures
		name := r.Name
		if i == 1 {
			fmt.Fprintln(out, "a centre that sees everything would have had:")
		}
		if i > 0 {
			name = "  " + name
		}
		if r.Policy != "" {
			name += ", " + r.Policy
		}
		c.row(name, units.Percent(f.Use.GPUs), units.Span(f.Wait.Mean), units.Span(f.Wait.P99), units.Span(f.Wait.Max),
			units.Span(f.Completion.Mean), units.Digits(f.Slowdown.Mean), units.Span(f.Makespan), units.Count(f.Again.Preemptions))
	}
}

func placements(out io.Writer, runs []Run) {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Placement == nil })
	if len(runs) == 0 {
		return
	}
	c := columns{out, []int{24, 11, 11, 12, 11, 11}}
	fmt.Fprintln(out)
	c.row("GPUs allocated", "at 100%", "at 130%", "fragments", "placed", "rejected")
	for _, r := range runs {
		p := r.Placement
		name := r.Name
		if r.Policy != "" && r.Policy != r.Name {
			name += ", " + r.Policy
		}
		c.row(name, fine(p.At100), fine(p.At130), fine(p.Fragments), units.Count(p.Placed), units.Count(p.Rejected))
	}
}

// fine writes a part as a percentage with two decimals.
func fine(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) }

func unfinished(out io.Writer, f *Figures) {
	j := f.Jobs
	if j.Submitted == j.Finished {
		return
	}
	words := []string{units.Count(j.Finished) + " finished"}
	add := func(n int, what string) {
		if n > 0 {
			words = append(words, units.Count(n)+" "+what)
		}
	}
	add(j.Running, "still running")
	add(j.Waiting, "still waiting")
	add(j.Never, "never started")
	add(j.Rejected, "rejected")
	if j.Oldest > 0 {
		words = append(words, "the oldest has waited "+units.Span(j.Oldest))
	}
	fmt.Fprintln(out)
	fill(out, append([]string{fmt.Sprintf("of %s jobs", units.Count(j.Submitted))}, words...), " · ")
}

// overTime draws the levels over time.
func overTime(out io.Writer, f *Figures) {
	s := f.Series
	const chart = 44
	fmt.Fprintf(out, "\nmuster over %s\n", units.Span(f.End))
	draw := func(name string, values []float64, most float64, say string) {
		fmt.Fprintf(out, "%-11s%-*s  %s\n", name, chart, bars(values, most, chart), say)
	}
	if slices.Max(append(s.GPUs, 0)) > 0 || f.Use.Fragments > 0 {
		draw("GPUs", s.GPUs, 1, percent(f.Use.GPUs, "allocated"))
		draw("fragments", s.Fragments, 1, percent(f.Use.Fragments, "free, of no use"))
	}
	draw("CPUs", s.CPUs, 1, percent(f.Use.CPUs, "allocated"))
	draw("memory", s.Memory, 1, percent(f.Use.Memory, "allocated"))
	most := slices.Max(append(slices.Clone(s.Waiting), 0))
	draw("waiting", s.Waiting, most, fmt.Sprintf("%6s jobs at most", units.Count(int64(most+0.5))))
}

func percent(x float64, what string) string { return fmt.Sprintf("%6s %s", units.Percent(x), what) }

// groups prints waiting and completion by class, size and user.
func groups(out io.Writer, f *Figures) {
	c := columns{out, []int{15, 8, 7, 7, 7, 7, 7, 7, 7, 7}}
	fmt.Fprintf(out, "\n%26s%s wait %s%4s%s completion %s\n", "", strings.Repeat("-", 9), strings.Repeat("-", 10), "", strings.Repeat("-", 6), strings.Repeat("-", 7))
	first := true
	table := func(what string, all []Group) {
		if len(all) == 0 {
			return
		}
		if !first {
			fmt.Fprintln(out)
		}
		first = false
		c.row(what, "jobs", "mean", "p50", "p95", "p99", "mean", "p50", "p95", "p99")
		for _, g := range all {
			name := g.Name
			if name == "" {
				name = "(none)"
			}
			cells := []string{name, units.Count(g.Jobs)}
			for _, s := range []Spread{g.Wait, g.Completion} {
				cells = append(cells, units.Span(s.Mean), units.Span(s.P50), units.Span(s.P95), units.Span(s.P99))
			}
			c.row(cells...)
		}
	}
	all := Group{Name: "all", Jobs: f.Jobs.Submitted, Wait: f.Wait, Completion: f.Completion}
	table("by class", append([]Group{all}, f.Classes...))
	table("by size", f.Sizes)
	const most = 5
	if f.UserCount > 1 {
		table("by user", f.Users[:min(most, len(f.Users))])
	}
	if n := f.UserCount; n > 1 {
		fmt.Fprintf(out, "fairness among %s users (Jain's index of their mean slowdowns): %.3f\n", units.Count(n), f.Fairness)
	}
	if f.Gangs.Starts > 0 {
		fmt.Fprintf(out, "gangs: %s, each in %.2f racks more than needed on average\n", units.Count(f.Gangs.Starts), f.Gangs.Racks)
	}
	if f.Gangs.Hops > 0 {
		fmt.Fprintf(out, "members of a gang are %.2f hops from the next one on average\n", f.Gangs.Hops)
	}
}

func again(out io.Writer, f *Figures) {
	a := f.Again
	if a.Preemptions+a.Lost+a.Restarts == 0 {
		return
	}
	fmt.Fprintln(out)
	words := []string{units.Count(a.Restarts) + " restarts"}
	if a.Preemptions > 0 {
		words = append(words, units.Count(a.Preemptions)+" preemptions")
	}
	if a.Lost > 0 {
		words = append(words, units.Count(a.Lost)+" runs ended by faults", "lost "+units.Digits(a.LostGPU/3600)+" GPU-hours of work")
	}
	if r := a.Recovery; r.N > 0 {
		words = append(words, fmt.Sprintf("ran again after %s (p99 %s, at most %s)", units.Span(r.Mean), units.Span(r.P99), units.Span(r.Max)))
	}
	fill(out, words, ", ")
}

func faultTable(out io.Writer, f *Figures) {
	if len(f.Faults) == 0 {
		return
	}
	fmt.Fprintln(out)
	c := columns{out, []int{29, 9, 9, 9, 7, 8, 9}}
	if len(Hits(f.Faults)) > 0 {
		c.row("fault", "at", "for", "jobs hit", "again", "GPU-h", "back in")
	}
	const most = 12
	hits := Hits(f.Faults)
	for _, x := range hits[:min(most, len(hits))] {
		lasted := "-"
		if x.Until > 0 {
			lasted = units.Span(x.Until - x.At)
		}
		c.row(strings.TrimSpace(x.Kind+" "+x.What), units.Span(x.At), lasted, units.Count(x.Hit), units.Count(x.Again), units.Digits(x.Lost/3600), units.Span(x.Recovery))
	}
	if n := len(hits) - most; n > 0 {
		fmt.Fprintf(out, "and %s more: see --json or --report\n", units.Count(n))
	}
	if n := len(f.Faults) - len(hits); n > 0 {
		fmt.Fprintf(out, "%s other faults ended no job\n", units.Count(n))
	}
}

// Hits returns the faults that ended jobs.
func Hits(all []FaultCost) []FaultCost {
	return slices.DeleteFunc(slices.Clone(all), func(x FaultCost) bool { return x.Hit == 0 })
}

// distances prints where jobs started, and what the network carried.
func distances(out io.Writer, f *Figures, n *Network) {
	r := f.Remote
	if r.Away > 0 {
		fmt.Fprintln(out)
		words := []string{
			fmt.Sprintf("%s of %s starts (%s) were on another host than the daemon's", units.Count(r.Away), units.Count(r.Starts), units.Percent(over(float64(r.Away), float64(r.Starts)))),
			fmt.Sprintf("%.2f hops on average", r.Hops), fmt.Sprintf("they started after %s on average, the others after %s", units.Span(r.RemoteDelay), units.Span(r.LocalDelay)),
		}
		if r.Latency > 0 {
			words = append(words, "a message takes "+units.Span(r.Latency)+" to a task there")
		}
		if r.FileWait > 0 {
			words = append(words, "which waits "+units.Span(r.FileWait)+" for files")
		}
		if r.Bytes > 0 {
			words = append(words, units.Bytes(float64(r.Bytes))+" of files went to other hosts")
		}
		fill(out, words, ", ")
	}
	if n == nil {
		return
	}
	jobs := float64(max(1, f.Jobs.Submitted))
	fmt.Fprintln(out)
	words := []string{
		"network " + n.Topology, units.Count(n.Messages) + " messages", units.Bytes(float64(n.Bytes)),
		fmt.Sprintf("%s messages and %s for each job", units.Digits(float64(n.Messages)/jobs), units.Bytes(float64(n.Bytes)/jobs)),
	}
	if n.Quiet > 0 {
		words = append(words, "without "+units.Span(n.Quiet)+" in which nothing happened")
	}
	if n.Dropped > 0 {
		words = append(words, units.Count(n.Dropped)+" lost")
	}
	if n.Copies > 0 {
		words = append(words, fmt.Sprintf("%s copies of files, %s, %s each", units.Count(n.Copies), units.Bytes(float64(n.Copied)), units.Span(n.CopyTime/float64(n.Copies))))
	}
	fill(out, words, " · ")
	const most = 5
	for _, p := range n.Paths[:min(most, len(n.Paths))] {
		fmt.Fprintf(out, "  %9s flows  %9s  %s\n", units.Count(p.Flows), units.Bytes(float64(p.Bytes)), clip(p.Path, Width-31))
	}
}

func news(out io.Writer, i *Information) {
	if i == nil {
		return
	}
	fmt.Fprintln(out)
	words := []string{fmt.Sprintf("news by %s: %s messages", i.Way, units.Count(i.Messages)), units.Bytes(float64(i.Bytes))}
	if i.LinkBytes > 0 {
		words = append(words, units.Bytes(i.LinkBytes)+" on each link")
	}
	words = append(words, fmt.Sprintf("what is believed is %s old (p99 %s)", units.Span(i.AgeMean), units.Span(i.AgeP99)))
	if i.Reach99 > 0 {
		words = append(words, fmt.Sprintf("99%% of the hosts know after %s", units.Span(i.Reach99)))
	}
	if i.Offers > 0 {
		words = append(words, fmt.Sprintf("%s of %s offers were declined (%s)", units.Count(i.Declined), units.Count(i.Offers), units.Percent(float64(i.Declined)/float64(i.Offers))))
	}
	fill(out, words, " · ")
}

func gates(out io.Writer, all []Gate) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(out)
	for _, g := range all {
		word := "missed"
		if g.Met {
			word = "met"
		}
		line := fmt.Sprintf("%-7s%-30s%12s", word, g.Name, g.Got)
		if utf8.RuneCountInString(line+g.Want)+2 <= Width {
			fmt.Fprintln(out, line+"  "+g.Want)
			continue
		}
		fmt.Fprintf(out, "%-7s%s: %s\n       %s\n", word, g.Name, g.Got, g.Want)
	}
}
