package load

import "github.com/musterhq/muster/job"

// Request is one arrival of the placement experiment, or one row of the table from which the usual requests are
// estimated.
type Request struct {
	Name   string
	GPUs   int    // different devices that it takes
	Milli  int    // of each of them, in thousandths; 0 if it takes none
	Models string // as the table writes them: the models that will do, joined by |; empty: any
	// Need is the same for the scheduler, with CPUs in thousandths.
	Need job.Resources
}

// AllMilli returns what the request takes of all its devices together, in thousandths of a device.
func (r Request) AllMilli() int { return r.GPUs * r.Milli }
