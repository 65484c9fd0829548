package api

// What all tasks of a job together have held and used.

import (
	"context"
	"time"

	"github.com/musterhq/muster/job"
)

// JobUsage is the document of what all tasks of a job together have held and used. Only the newest attempt of each task
// counts.
type JobUsage struct {
	Schema    string     `json:"schema"`
	Job       job.ID     `json:"job"`
	Name      string     `json:"name"`
	User      string     `json:"user"`
	Project   string     `json:"project" doc:"Empty: none."`
	State     job.State  `json:"state"`
	StartedAt *time.Time `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at"`
	Sums
}

// Sums add up what tasks have held and used. KnownCPU and KnownGPU are the parts of what was held whose use is known.
type Sums struct {
	Tasks      int      `json:"tasks" doc:"Tasks that have run, or run."`
	Measured   int      `json:"measured" doc:"Those of them that have ended and of which is known what they used."`
	Seconds    float64  `json:"seconds" doc:"The time that the tasks have run."`
	HeldCPU    float64  `json:"cpu_seconds_held" doc:"CPUs that the tasks held, times seconds."`
	HeldGPU    float64  `json:"gpu_seconds_held" doc:"GPUs that the tasks held, or shares of one, times seconds."`
	UsedCPU    *float64 `json:"cpu_seconds" doc:"CPU time; null: known of no task, as in the others."`
	KnownCPU   float64  `json:"cpu_seconds_known" doc:"The part of cpu_seconds_held in which cpu_seconds were used."`
	UsedGPU    *float64 `json:"gpu_seconds" doc:"GPUs times seconds in which they computed."`
	KnownGPU   float64  `json:"gpu_seconds_known" doc:"The part of gpu_seconds_held in which gpu_seconds were used."`
	MemoryPeak *float64 `json:"memory_peak" doc:"The greatest use of memory by one task, in bytes."`
	Read       *float64 `json:"read_bytes" doc:"Bytes read from disks."`
	Written    *float64 `json:"written_bytes" doc:"Bytes written to disks."`
}

// Plus returns the sums of s and o. A sum is known if it is known in one of them.
func (s Sums) Plus(o Sums) Sums {
	s.Tasks, s.Measured, s.Seconds = s.Tasks+o.Tasks, s.Measured+o.Measured, s.Seconds+o.Seconds
	s.HeldCPU, s.HeldGPU, s.KnownCPU, s.KnownGPU = s.HeldCPU+o.HeldCPU, s.HeldGPU+o.HeldGPU, s.KnownCPU+o.KnownCPU, s.KnownGPU+o.KnownGPU
	add := func(a, b float64) float64 { return a + b }
	greater := func(a, b float64) float64 { return max(a, b) }
	s.UsedCPU, s.UsedGPU = both(s.UsedCPU, o.UsedCPU, add), both(s.UsedGPU, o.UsedGPU, add)
	s.Read, s.Written, s.MemoryPeak = both(s.Read, o.Read, add), both(s.Written, o.Written, add), both(s.MemoryPeak, o.MemoryPeak, greater)
	return s
}

// both joins two values. If one is unknown (nil) it returns the other.
func both(a, b *float64, join func(a, b float64) float64) *float64 {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	x := join(*a, *b)
	return &x
}

type (
	jobUsageInput struct {
		ID string `path:"id" maxLength:"64"`
	}
	jobUsageOutput struct{ Body JobUsage }
)

// job serves the request as the owner of the job.
func (r *usageRoutes) job(ctx context.Context, in *jobUsageInput) (*jobUsageOutput, error) {
	j, err := r.may(ctx, partRow, in.ID, "show the usage of")
	if err != nil {
		return nil, err
	}
	row := plainDocument(&j, 0)
	d := JobUsage{
		Schema: SchemaJobUsage, Job: j.ID, Name: row.Name, User: row.User, Project: j.Spec.Project, State: row.State, StartedAt: row.StartedAt, EndedAt: row.EndedAt,
	}
	now := time.Now()
	q := job.TaskQuery{After: -1, Limit: maxLimit, Begun: true}
	for {
		tasks, err := r.jobs.Tasks(ctx, j.ID, q)
		if err != nil {
			return nil, about(in.ID, err)
		}
		for i := range tasks {
			d.Sums = d.Plus(sumsOf(&tasks[i], j.Spec.Resources, now))
		}
		if len(tasks) < q.Limit {
			return &jobUsageOutput{d}, nil
		}
		q.After = tasks[len(tasks)-1].Index
	}
}

// sumsOf returns what one task has held and used.
func sumsOf(t *job.Task, need job.Resources, now time.Time) (s Sums) {
	if t.Started.IsZero() {
		return s
	}
	end := now
	if !t.Ended.IsZero() {
		end = t.Ended
	}
	gpus := float64(need.GPUs)
	if need.GPUShare > 0 {
		gpus = need.GPUShare
	}
	s.Tasks, s.Seconds = 1, max(0, end.Sub(t.Started).Seconds())
	s.HeldCPU, s.HeldGPU = s.Seconds*float64(need.CPUs), s.Seconds*gpus
	if t.Exit == nil {
		return s
	}
	u, _ := usedOf(t.Exit.Usage)
	if u == nil {
		return s
	}
	s.Measured, s.MemoryPeak, s.Read, s.Written = 1, u.MemoryPeak, u.ReadBytes, u.WrittenBytes
	if u.CPUSeconds != nil {
		s.UsedCPU, s.KnownCPU = u.CPUSeconds, s.HeldCPU
	}
	if u.GPU != nil {
		busy := *u.GPU / 100 * s.HeldGPU
		s.UsedGPU, s.KnownGPU = &busy, s.HeldGPU
	}
	return s
}
