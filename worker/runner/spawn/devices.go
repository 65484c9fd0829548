package spawn

// The limits of a task's control group, the device files that the task may not open, and what it may take of their memory.

import "github.com/musterhq/muster/worker/cgroup"

// limits returns the limits of a task's control groups.
func (s *Spawner) limits(o *Order) cgroup.Limits {
	l := o.Start.Limits
	c := cgroup.Limits{CPUs: l.CPUs, Quota: l.Quota, Memory: int64(l.Memory), PIDs: l.PIDs}
	if s.Group.Bounds(cgroup.Devices) {
		for _, d := range l.Closed {
			c.Closed = append(c.Closed, cgroup.Closed(d))
		}
	}
	for _, d := range l.DeviceMemory {
		c.DeviceMemory = append(c.DeviceMemory, cgroup.DeviceMemory(d))
	}
	return c
}
