package sim

// Jobs that depend on others. They name the others as the load does, and go to the same scheduler.

import (
	"fmt"

	"github.com/musterhq/muster/job"
)

// addDependencies finds the jobs on which others depend.
func (w *World) addDependencies() error {
	var byName map[string]*submission
	for _, s := range w.works {
		if len(s.spec.Dependency) == 0 {
			continue
		}
		if byName == nil {
			byName = make(map[string]*submission, len(w.works))
			for _, x := range w.works {
				byName[w.cfg.Load.Jobs[x.index].Name] = x
			}
		}
		name := w.cfg.Load.Jobs[s.index].Name
		d, err := job.ParseDependencies(s.spec.Dependency, true)
		if err != nil {
			return fmt.Errorf("sim: job %s: %w", name, err)
		}
		for _, term := range d.Terms {
			on := byName[string(term.Job)]
			if on == nil || on.index >= s.index {
				return fmt.Errorf("sim: job %s depends on %s: no earlier job of the load has this name", name, term.Job)
			}
			s.depends = append(s.depends, dependency{term, on})
			s.missing++
			on.awaited = append(on.awaited, s)
		}
	}
	if byName != nil {
		routeTogether(w)
	}
	return nil
}

// routeTogether sends jobs that depend on each other, directly or through other jobs, to one scheduler.
func routeTogether(w *World) {
	first := make([]int, len(w.works)) // a job of the same group, with a lower index or the same
	for i := range first {
		first[i] = i
	}
	find := func(i int) int {
		for first[i] != i {
			first[i] = first[first[i]]
			i = first[i]
		}
		return i
	}
	for _, s := range w.works {
		for _, d := range s.depends {
			a, b := find(s.index), find(d.on.index)
			first[max(a, b)] = min(a, b)
		}
	}
	turn := 0
	for _, s := range w.works {
		if len(s.depends) == 0 && len(s.awaited) == 0 {
			continue
		}
		root := w.works[find(s.index)]
		if root.owner == nil {
			root.owner = w.routed(root.user, turn)
			turn++
		}
		s.owner = root.owner
	}
}
