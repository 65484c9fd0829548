package state

// The numbers of states.

import (
	"fmt"

	"github.com/musterhq/muster/job"
)

// States are numbered in the order of job.States.
var (
	states  = job.States()
	numbers = func() map[job.State]uint8 {
		m := map[job.State]uint8{}
		for i, s := range states {
			m[s] = uint8(i)
		}
		return m
	}()
)

func stateOf(n uint8) job.State { return states[n] }
func number(s job.State) uint8  { return numbers[s] }

// numbersOf returns the numbers of the states with these names, which come from a row.
func numbersOf(names []string) ([]uint8, error) {
	out := make([]uint8, 0, len(names))
	for _, name := range names {
		n, known := numbers[job.State(name)]
		if !known {
			return nil, fmt.Errorf("%w: no state %.40q", errBadRow, name)
		}
		out = append(out, n)
	}
	return out, nil
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
