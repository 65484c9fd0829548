package jobfile

// Job files with several jobs, which may depend on each other by name.

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/job"
)

// Job is one job of a file.
type Job struct {
	Spec job.Spec
	Line int // where it begins
	// Depends has its dependencies. A parent may be given by the name of another job of the file.
	Depends job.Dependencies
	lines   []int // of the elements of dependency
	from    []int // of each of Depends.Terms: its element
}

// File is a job file.
type File struct {
	Name string
	Jobs []Job
}

// at returns how errors name a line.
func (f File) at(line int) string { return fmt.Sprintf("job file %s:%d", f.Name, line) }

// LineOf returns how errors name the line of a dependency of a job.
func (f File) LineOf(i, term int) string {
	j := f.Jobs[i]
	if k := j.from[term]; k < len(j.lines) {
		return f.at(j.lines[k])
	}
	return f.at(j.Line)
}

// Named returns the job of the file that has this name.
func (f File) Named(name string) (i int, there bool) {
	i = slices.IndexFunc(f.Jobs, func(j Job) bool { return j.Spec.Name == name && name != "" })
	return i, i >= 0
}

// setDepends reads the dependencies of all jobs.
func (f File) setDepends() error {
	for i := range f.Jobs {
		j := &f.Jobs[i]
		var err error
		if j.Depends, err = job.ParseDependencies(j.Spec.Dependency, true); err != nil {
			return fmt.Errorf("%s: %w", f.at(j.Line), err)
		}
		for k, text := range j.Spec.Dependency {
			some, _ := job.ParseDependencies([]string{text}, true)
			for range some.Terms {
				j.from = append(j.from, k)
			}
		}
	}
	return nil
}

// checkNames refuses two jobs with one name, because others could not tell them apart.
func (f File) checkNames() error {
	for i, j := range f.Jobs {
		if first, there := f.Named(j.Spec.Name); there && first != i {
			return fmt.Errorf("%s: a second job with the name %q; the first begins in line %d", f.at(j.Line), j.Spec.Name, f.Jobs[first].Line)
		}
	}
	return nil
}

// Order returns the jobs so that each comes after the jobs of the file that it depends on, and otherwise in the order
// of the file. Jobs that wait for each other are an error.
func (f File) Order() ([]int, error) {
	const (
		unseen = iota
		open   // it is on the way from the first job to the current one
		done
	)
	state, order, way := make([]int, len(f.Jobs)), make([]int, 0, len(f.Jobs)), []int{}
	var visit func(i int) error
	visit = func(i int) error {
		state[i], way = open, append(way, i)
		for term, x := range f.Jobs[i].Depends.Terms {
			k, there := f.Named(string(x.Job))
			switch {
			case !there || state[k] == done:
			case state[k] == open:
				return f.cycle(way[slices.Index(way, k):], term)
			default:
				if err := visit(k); err != nil {
					return err
				}
			}
		}
		state[i], way = done, way[:len(way)-1]
		order = append(order, i)
		return nil
	}
	for i := range f.Jobs {
		if state[i] == unseen {
			if err := visit(i); err != nil {
				return nil, err
			}
		}
	}
	return order, nil
}

// cycle returns the error for a cycle: each job of way waits for the next, and the last waits for the first by its
// dependency number term.
func (f File) cycle(way []int, term int) error {
	at := f.LineOf(way[len(way)-1], term)
	if len(way) == 1 {
		return fmt.Errorf("%s: the job %q waits for itself", at, f.Jobs[way[0]].Spec.Name)
	}
	var names []string
	for _, i := range way {
		names = append(names, fmt.Sprintf("%q", f.Jobs[i].Spec.Name))
	}
	return fmt.Errorf("%s: these jobs wait for each other: %s", at, strings.Join(names, ", "))
}
