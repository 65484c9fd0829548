package main

// How far the clocks of the owners of jobs are ahead: listings report that, but events do not.

import (
	"sync"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// ownerClocks remembers what listings have reported. Its methods are safe for concurrent use.
type ownerClocks struct {
	mu    sync.Mutex
	ahead map[job.Group]float64 // guarded by mu; in seconds, by the group of the jobs
}

func (o *ownerClocks) learn(listed []api.Job) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ahead == nil {
		o.ahead = map[job.Group]float64{}
	}
	for _, j := range listed {
		o.ahead[j.ID.Group()] = j.ClockAhead
	}
}

// told returns the job of an event, with ClockAhead filled in from earlier listings.
func (o *ownerClocks) told(j api.Job) api.Job {
	o.mu.Lock()
	defer o.mu.Unlock()
	j.ClockAhead = o.ahead[j.ID.Group()]
	return j
}
