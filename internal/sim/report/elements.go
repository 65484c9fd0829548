package report

// The numbering of the elements of all jobs, one after the other.

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/job"
)

// elements numbers what runs as one: the elements of each job's array, or one element for a job without an array.
type elements struct {
	first []int32 // the first element of each job; at the end, the number of all elements
}

// numberElements returns an error if an array cannot be read.
func numberElements(jobs []load.Job) (elements, error) {
	e := elements{first: make([]int32, len(jobs)+1)}
	n := int32(0)
	for i := range jobs {
		e.first[i] = n
		size := 1
		if s := &jobs[i].Spec; s.Array != "" || len(s.EachLine) > 0 {
			l, err := s.Layout()
			if err != nil {
				return elements{}, fmt.Errorf("job %s: %w", jobs[i].Name, err)
			}
			size = l.Tasks() / l.Size()
		}
		n += int32(size)
	}
	e.first[len(jobs)] = n
	return e, nil
}

func (e elements) len() int { return int(e.first[len(e.first)-1]) }

// of returns how many elements a job has.
func (e elements) of(job int) int { return int(e.first[job+1] - e.first[job]) }

// at returns the number of an element, and whether the job has it.
func (e elements) at(job, task int) (int, bool) {
	if job < 0 || job >= len(e.first)-1 || task < 0 || task >= e.of(job) {
		return 0, false
	}
	return int(e.first[job]) + task, true
}

// milliOf returns the thousandths of GPUs that one element of a job asks for: a gang's for all of its machines.
func milliOf(s *job.Spec) int64 {
	return int64(max(1, s.Nodes)) * int64(gpu.Count(s.Resources)) * int64(gpu.Milli(s.Resources))
}

// held returns what one element takes of a machine besides GPUs.
func held(s *job.Spec, m *load.Machine) (cpus, memory int64) {
	if s.Exclusive {
		return int64(m.CPUs), int64(m.Memory)
	}
	return int64(s.Resources.CPUs), int64(s.Resources.Memory)
}

// seconds returns a time in seconds, as it is printed.
func seconds(d time.Duration) float64 { return round(d.Seconds()) }
