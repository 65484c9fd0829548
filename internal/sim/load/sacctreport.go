package load

// What was left out of the accounting, and what was changed.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// report returns lines that say what was made of the accounting.
func (s *sacct) report(jobs []Job) []string {
	gpus, gangs := 0.0, 0
	for _, j := range jobs {
		work, _ := j.Work()
		if gpus += work; j.Spec.Nodes > 1 {
			gangs++
		}
	}
	first, last := s.runs[0].at, jobs[len(jobs)-1].Submit
	lines := []string{fmt.Sprintf("%s: %d jobs, submitted from %s on for %s; %d of them on several nodes; %.0f GPU hours",
		s.name, len(jobs), first.Format("2006-01-02T15:04:05"), last.Round(time.Second), gangs, gpus/3600)}
	if s.steps > 0 {
		lines = append(lines, fmt.Sprintf("%s: %d lines are steps of jobs", s.name, s.steps))
	}
	for _, t := range ranked(s.left) {
		lines = append(lines, fmt.Sprintf("%s: left out: %s", s.name, t))
	}
	for _, t := range ranked(s.changed) {
		lines = append(lines, fmt.Sprintf("%s: changed: %s", s.name, t))
	}
	if s.has("priority") && !s.o.Priorities {
		lines = append(lines, s.name+": Slurm's priorities are not used")
	}
	if len(s.unused) > 0 {
		lines = append(lines, fmt.Sprintf("%s: columns that are not used: %s", s.name, strings.Join(s.unused[:min(len(s.unused), maxUnused)], ", ")))
	}
	return lines
}

const maxUnused = 200 // columns that are listed

// leftOut returns the text for the error if no job is left.
func (s *sacct) leftOut() string {
	return strings.Join(append([]string{""}, ranked(s.left)...), "; left out: ")
}

// ranked lists tallies, the largest first.
func ranked(tallies map[string]*tally) []string {
	whys := slices.SortedFunc(maps.Keys(tallies), func(a, b string) int {
		return cmp.Or(cmp.Compare(tallies[b].n, tallies[a].n), cmp.Compare(a, b))
	})
	var lines []string
	for _, why := range whys {
		t := tallies[why]
		lines = append(lines, fmt.Sprintf("%d %s (such as %.40q in line %d)", t.n, why, t.id, t.line))
	}
	return lines
}
