package jobs

// The numbers of states.

import "github.com/musterhq/muster/job"

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

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}
