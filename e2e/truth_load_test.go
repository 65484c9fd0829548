//go:build e2e

package e2e

// The load of real daemons and simulated ones: first jobs that come one after the other, then many at once.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/job"
)

const (
	truthGPUs = 2 // of each host, as `muster dev` has them
	truthCPUs = 4
	// apart is the time between two events of the first jobs. It is long compared with the time that a daemon takes for
	// an event.
	apart = 200 * time.Millisecond
	// pressure is the ratio of the GPU time that the other jobs ask for to that of the cluster while they arrive.
	pressure = 3
)

// truthLoad is the jobs of one run. CPUs are whole ones, as daemons count them.
type truthLoad struct {
	jobs  []load.Job
	first int           // jobs that come one after the other, to a cluster with free capacity
	dies  time.Duration // when a host dies
}

// newTruthLoad draws n jobs for this number of hosts.
func newTruthLoad(seed uint64, n, hosts int) truthLoad {
	chance := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable
	l := truthLoad{first: max(8, n/12)}
	// The first jobs come at even multiples of apart, and end at odd ones, no two at once.
	ends := map[int]bool{}
	for i := range l.first {
		end := 2*i + 3 + 2*chance.IntN(3)
		for ends[end] {
			end += 2
		}
		ends[end] = true
		x := truthJob(chance, i, i, hosts)
		x.Submit = time.Duration(2*i) * apart
		x.Runs = time.Duration(end)*apart - x.Submit
		l.jobs = append(l.jobs, x)
	}
	at := time.Duration(0)
	for end := range ends {
		at = max(at, time.Duration(end+2)*apart)
	}
	asked := 0.0 // seconds of GPUs
	for i := range n - l.first {
		x := truthJob(chance, l.first+i, chance.IntN(20), hosts)
		x.Runs = 500*time.Millisecond + time.Duration(chance.Int64N(int64(5500*time.Millisecond)))
		x.Runs = x.Runs.Round(time.Millisecond)
		x.Spec.Priority = []int{20, 50, 50, 80}[chance.IntN(4)]
		x.Spec.Preemptible = x.Spec.Nodes == 0 && chance.IntN(4) == 0
		if chance.IntN(2) == 0 {
			x.Spec.TimeLimit = job.Duration(x.Runs.Round(time.Second) + 5*time.Second)
		}
		asked += x.Runs.Seconds() * truthWidth(&x.Spec)
		l.jobs = append(l.jobs, x)
	}
	span := asked / float64(hosts*truthGPUs) / pressure
	times := make([]time.Duration, n-l.first)
	for i := range times {
		times[i] = at + time.Duration(span*chance.Float64()*float64(time.Second)).Round(time.Millisecond)
	}
	slices.Sort(times)
	for i, t := range times {
		l.jobs[l.first+i].Submit = t
	}
	l.dies = times[len(times)/8] + 50*time.Millisecond
	return l
}

// truthWidth is how many GPUs a job asks for; a job without GPUs counts by its CPUs.
func truthWidth(s *job.Spec) float64 {
	w := float64(s.Resources.GPUs) + s.Resources.GPUShare
	if w == 0 {
		w = float64(s.Resources.CPUs) * truthGPUs / truthCPUs
	}
	return w * float64(max(s.Nodes, 1))
}

// truthJob returns job i, of a kind from 0 to 19; other numbers count modulo 20.
func truthJob(chance *rand.Rand, i, kind, hosts int) load.Job {
	s := job.DefaultSpec()
	s.Name = fmt.Sprintf("job-%03d", i)
	s.Lease = job.Duration(job.MinLease) // a task of a host that dies begins again half a minute later
	class := ""
	switch kind % 20 {
	case 0, 5, 9, 13:
		class, s.Resources.GPUShare = "share", []float64{0.25, 0.5, 0.7}[chance.IntN(3)]
	case 2, 10, 16:
		class, s.Resources.CPUs = "no GPU", 1+chance.IntN(3)
	case 3, 12:
		class, s.Resources.GPUs = "several GPUs", 2
	case 4, 17:
		class, s.Nodes, s.Resources.GPUs = "gang", 2+chance.IntN(max(1, min(2, hosts/3))), 1
		s.Policy = "pack" // topology would depend on round trips, which differ on loopback from run to run
	default:
		class, s.Resources.GPUs = "one GPU", 1
	}
	return load.Job{Name: s.Name, Class: class, Spec: s}
}
