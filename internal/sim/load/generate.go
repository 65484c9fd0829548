package load

// The jobs of a synthetic load.

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// The streams of random numbers. Each part of a job has its own stream, so that a change of one part's distribution
// does not change the other parts.
const (
	arrivalStream = iota
	durationStream
	sizeStream
	needStream
	arrayStream
	priorityStream
	userStream
	limitStream
	fileStream
	streams
)

// generator makes jobs.
type generator struct {
	*Synthetic
	random   [streams]*rand.Rand
	cluster  cluster
	capacity capacity
	spelled  []string  // the models, in the spelling of the scheduler
	arrivals []float64 // arrival times of the jobs; in seconds, or not yet scaled
	left     int       // jobs of the present burst that are still to come
	user     string    // of the present burst
	work     float64   // work of the jobs so far
}

// Jobs makes the jobs for a cluster, in the order of their submission; the first is submitted at 0. The same settings,
// machines and seed make the same jobs. A job that the cluster could never run is an error.
//
// With "load", the times between submissions are scaled so that the jobs offer exactly that load; see Load.Offered.
// With "load" and "for", there are as many jobs as offer that load over that time, so the last job is submitted at
// about its end.
func (s Synthetic) Jobs(machines []Machine, seed uint64) ([]Job, error) {
	g := &generator{Synthetic: &s, cluster: clusterOf(machines), capacity: capacityOf(machines)}
	for i := range g.random {
		g.random[i] = rand.New(rand.NewPCG(seed, uint64(i)))
	}
	for _, c := range s.models {
		name := contract.ModelName(c.text)
		if c.text == anyModel {
			name = ""
		}
		g.spelled = append(g.spelled, name)
	}
	jobs := make([]Job, 0, s.jobs)
	for {
		g.arrive()
		more, err := g.wants(len(jobs))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		if !more {
			break
		}
		j, err := g.job(len(jobs))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		jobs = append(jobs, j)
		g.work += g.capacity.work(j)
	}
	if err := g.setTimes(jobs); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	return jobs, nil
}

// maxIdle bounds the jobs in a row, at the beginning of a load, that need nothing.
const maxIdle = 10_000

// wants reports whether the load has more than n jobs.
func (g *generator) wants(n int) (bool, error) {
	switch {
	case g.jobs > 0:
		return n < g.jobs, nil
	case n == MaxJobs:
		return false, fmt.Errorf("more than %d jobs", MaxJobs)
	case g.offered == 0:
		return g.arrivals[n] <= g.within.Seconds(), nil
	case n >= maxIdle && g.work == 0:
		_, err := g.capacity.spanFor(0, g.offered)
		return false, err
	}
	return n == 0 || g.work < g.offered*g.capacity.devices*g.within.Seconds(), nil
}

// setTimes sets when the jobs are submitted.
func (g *generator) setTimes(jobs []Job) error {
	factor, last := 1.0, g.arrivals[len(jobs)-1]
	if g.offered > 0 {
		span, err := g.capacity.spanFor(g.work, g.offered)
		if err == nil && last == 0 {
			err = errAtOnce
		}
		if err != nil {
			return err
		}
		factor = span / last
	}
	if last*factor > maxTime.Seconds() {
		return errLate
	}
	for i := range jobs {
		jobs[i].Submit = time.Duration(math.Round(g.arrivals[i] * factor * float64(time.Second)))
	}
	return nil
}

// job makes the job with this number, which has arrived.
func (g *generator) job(number int) (Job, error) {
	j := Job{Name: fmt.Sprintf("job-%07d", number), User: g.user, Spec: job.DefaultSpec()}
	s := &j.Spec
	s.Name, s.Command = j.Name, command
	j.Runs = time.Duration(math.Round(g.durations.draw(g.random[durationStream])*milli)) * time.Millisecond
	asked := g.need(&j)
	j.Bytes = int64(g.files.draw(g.random[fileStream]))
	r := g.random[priorityStream]
	s.Priority = int(g.priorityOf[g.priorities.draw(r)])
	s.Preemptible = r.Float64() < g.preemptible
	r = g.random[arrayStream]
	if isArray, n := r.Float64() < g.arrays, int(g.arrayTasks[g.arraySizes.draw(r)]); isArray {
		s.Array = "0-" + strconv.Itoa(n-1)
	}
	r = g.random[limitStream]
	if limited, factor := r.Float64() < g.limits, max(1, g.limitFactors.draw(r)); limited {
		limit := math.Ceil(j.Runs.Seconds() * factor)
		s.TimeLimit = job.Duration(min(limit, job.MaxTimeLimit.Seconds())) * job.Duration(time.Second)
	}
	return j, g.check(j, asked)
}

// arrive adds an arrival: of the present burst, or of the next one.
func (g *generator) arrive() {
	r, at := g.random[arrivalStream], 0.0
	if n := len(g.arrivals); n > 0 {
		at = g.arrivals[n-1]
	}
	if g.left--; g.left < 0 {
		if len(g.arrivals) > 0 && g.burst > 0 {
			rate := cmp.Or(g.rate, 1) // scaled later
			at += r.ExpFloat64() * g.burst / rate
		}
		g.left = 0
		if g.burst > 1 { // geometric
			g.left = int(min(math.Log(1-r.Float64())/math.Log(1-1/g.burst), MaxJobs))
		}
		g.user = g.users[g.users.draw(g.random[userStream])].text
	}
	g.arrivals = append(g.arrivals, at)
}

// need draws what a job asks for, and returns its number of GPUs.
func (g *generator) need(j *Job) (gpus float64) {
	gpus = g.sizes[g.gpus.draw(g.random[sizeStream])]
	r := g.random[needStream]
	model, cpus, memory := g.spelled[g.models.draw(r)], g.cpus.draw(r), g.memory.draw(r)
	need, times := &j.Spec.Resources, gpus
	switch {
	case gpus == 0:
		j.Class, times, model = "no GPU", 1, ""
	case gpus < 1:
		j.Class, need.GPUShare = "part of a GPU", math.Round(gpus*gpu.Whole)/gpu.Whole
	case gpus == 1:
		j.Class, need.GPUs = "1 GPU", 1
	default:
		need.GPUs = int(gpus)
		j.Class = strconv.Itoa(need.GPUs) + " GPUs"
	}
	need.GPUModel = model
	need.CPUs = int(math.Round(cpus * times * milli))
	need.Memory = job.Size(math.Ceil(memory*times/(1<<20))) << 20
	j.gang(g.cluster.nodes(*need))
	return gpus
}

// check refuses a job that the cluster could never run.
func (g *generator) check(j Job, gpus float64) error {
	s := j.Spec
	if nodes := max(1, s.Nodes); nodes > job.MaxNodes {
		return fmt.Errorf("gpus %v: a gang of %d nodes; at most %d", gpus, nodes, job.MaxNodes)
	} else if gpus > 1 && s.Resources.GPUs*nodes != int(gpus) {
		return fmt.Errorf("gpus %v: the number does not divide by the %d nodes that it needs", gpus, nodes)
	}
	if _, err := s.Layout(); err != nil {
		return fmt.Errorf("gpus %v: %w", gpus, err)
	}
	if lacks, have := g.cluster.lacks(s); lacks != "" {
		return fmt.Errorf("gpus %v: the cluster could never run %s: %s", gpus, j.Name, unmet(s, lacks, have))
	}
	return nil
}
