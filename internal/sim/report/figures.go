package report

// Figures are all numbers of one run.

// Figures describe a run. Spreads are over the jobs that have finished.
type Figures struct {
	Jobs     Jobs    `json:"jobs"`
	End      float64 `json:"end_s"`      // of what was simulated
	Makespan float64 `json:"makespan_s"` // from the first submission to the last finish
	// Wait is the time from the submission to the finish, less the run time of the job. It includes what preemption and
	// faults cost.
	Wait       Spread `json:"wait_s"`
	Delay      Spread `json:"start_delay_s"` // from the submission to the first start, also of jobs that have not finished
	Completion Spread `json:"completion_s"`  // from the submission to the finish
	Slowdown   Spread `json:"slowdown"`      // completion over run time; short jobs count as 10 s, and it is at least 1
	Use        Use    `json:"use"`
	// Classes, Sizes and Users group the same jobs. Users are listed by the GPU time that they used, at most MaxUsers.
	Classes []Group `json:"classes,omitempty"`
	Sizes   []Group `json:"sizes,omitempty"` // by GPUs of the whole job
	Users   []Group `json:"users,omitempty"`
	// Fairness is Jain's index of the mean slowdowns of the users: 1 if all are equal, 1/n at worst.
	Fairness  float64     `json:"fairness_jain"`
	UserCount int         `json:"user_count"`
	Again     Again       `json:"again"`
	Remote    Remote      `json:"remote"`
	Gangs     Gangs       `json:"gangs"`
	Faults    []FaultCost `json:"faults,omitempty"`
	Curve     []Point     `json:"curve,omitempty"` // by the GPUs that waiting and running jobs ask for, as a part of all; the last point is for this much or more
	Series    Series      `json:"series"`
}

// Jobs counts the jobs by their state at the end.
type Jobs struct {
	Submitted int `json:"submitted"`
	Finished  int `json:"finished"`
	Running   int `json:"running"` // at the end
	Waiting   int `json:"waiting"` // at the end, also those that will run again
	Never     int `json:"never_started"`
	Rejected  int `json:"rejected"`
	// for how long the oldest job that never started had waited at the end
	Oldest float64 `json:"oldest_waiting_s"`
}

// Spread describes a set of values. Quantiles are exact: P95 is the smallest value that 95 % of all do not exceed.
type Spread struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Use is the mean part of the cluster that was allocated, from the first submission to the end. Hosts that are down
// count as free.
type Use struct {
	GPUs   float64 `json:"gpus"`
	CPUs   float64 `json:"cpus"`
	Memory float64 `json:"memory"`
	// part of all GPUs that is free and of no use to the usual requests, see space.go; and part of the free GPUs
	Fragments     float64 `json:"fragments"`
	FragmentRatio float64 `json:"fragment_ratio"`
}

// Group is a part of the jobs.
type Group struct {
	Name       string  `json:"name"`
	Jobs       int     `json:"jobs"` // submitted
	GPUSeconds float64 `json:"gpu_s"`
	Wait       Spread  `json:"wait_s"`
	Completion Spread  `json:"completion_s"`
	Slowdown   Spread  `json:"slowdown"`
}

// Again counts how often jobs had to run again, and what that cost.
type Again struct {
	Preemptions int     `json:"preemptions"`
	Lost        int     `json:"lost"` // runs that a fault has ended
	Restarts    int     `json:"restarts"`
	LostGPU     float64 `json:"lost_gpu_s"` // GPU-seconds of work that faults have undone
	Recovery    Spread  `json:"recovery_s"` // from such an end to the next start
}

// Remote says where jobs started, seen from the daemon that accepted them.
type Remote struct {
	Starts      int     `json:"starts"`
	Away        int     `json:"away"`           // those of them with at least one task on another host
	Hops        float64 `json:"hops_mean"`      // links between the daemon and the task, mean over tasks
	ByHops      []int   `json:"by_hops"`        // ByHops[i] counts the tasks that were i links away
	Bytes       int64   `json:"bytes"`          // files that the jobs brought to other hosts
	LocalDelay  float64 `json:"local_delay_s"`  // mean time from the submission to the first start of jobs that stayed
	RemoteDelay float64 `json:"remote_delay_s"` // the same of jobs that did not stay
	// What a task on another host costs, as means over these tasks: how long a message takes on the way to it, and how
	// long it waits for its files.
	Latency  float64 `json:"path_s"`
	FileWait float64 `json:"file_wait_s"`
}

// Gangs says how close the members of gangs were, over all starts. Starts and Racks are 0 if machines have no label "rack".
type Gangs struct {
	Starts int `json:"starts"`
	// Racks is the mean number of racks that a gang took beyond the fewest that have enough machines.
	Racks float64 `json:"extra_racks_mean"`
	// Hops is the mean number of links between a member and the next one; 0 if it is not known.
	Hops float64 `json:"hops_mean"`
}

// Series are means over equal steps of time, from 0 on. The last step may be shorter.
type Series struct {
	Step      float64   `json:"step_s"`
	GPUs      []float64 `json:"gpus"` // part of all that is allocated
	CPUs      []float64 `json:"cpus"`
	Memory    []float64 `json:"memory"`
	Fragments []float64 `json:"fragments"`    // part of all GPUs
	Waiting   []float64 `json:"waiting"`      // jobs
	Running   []float64 `json:"running"`      // jobs
	Asked     []float64 `json:"waiting_gpus"` // GPUs that waiting jobs ask for, as a part of all
}

// Point says which part of all GPUs was allocated while a certain part of them was asked for; the latter may be above
// 1.
type Point struct {
	Asked     float64 `json:"asked"`
	Allocated float64 `json:"allocated"`
	For       float64 `json:"for_s,omitempty"` // how long that was so; not known of a placement
}
