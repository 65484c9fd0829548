package job

// Variables of Slurm that say the same as ours.

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
)

// slurmSame maps a variable of Slurm to ours of the same value.
var slurmSame = map[string]string{
	"SLURM_JOB_ID": "MUSTER_JOB_ID", "SLURM_JOBID": "MUSTER_JOB_ID", "SLURM_JOB_NAME": "MUSTER_JOB_NAME",
	"SLURM_ARRAY_JOB_ID": "MUSTER_JOB_ID", "SLURM_ARRAY_TASK_ID": "MUSTER_ARRAY_INDEX",
	"SLURM_NODEID": "MUSTER_NODE_RANK", "SLURM_NNODES": "MUSTER_NUM_NODES", "SLURM_JOB_NUM_NODES": "MUSTER_NUM_NODES",
	"SLURM_GPUS_ON_NODE": "MUSTER_GPUS_PER_NODE",
}

// slurmOf maps a variable of Slurm to its value for a job; the value is empty if the job does not say it.
var slurmOf = map[string]func(s *Spec) string{
	"SLURM_SUBMIT_DIR":       func(s *Spec) string { return cmp.Or(s.SubmitDir, s.Workdir) },
	"SLURM_JOB_ACCOUNT":      func(s *Spec) string { return s.Project },
	"SLURM_NTASKS":           func(s *Spec) string { return strconv.Itoa(max(1, s.Nodes) * max(1, s.TasksPerNode)) },
	"SLURM_NPROCS":           func(s *Spec) string { return strconv.Itoa(max(1, s.Nodes) * max(1, s.TasksPerNode)) },
	"SLURM_NTASKS_PER_NODE":  func(s *Spec) string { return positive(s.TasksPerNode) },
	"SLURM_CPUS_PER_TASK":    func(s *Spec) string { return positive(s.Resources.CPUs / max(1, s.TasksPerNode)) },
	"SLURM_CPUS_ON_NODE":     slurmCPUs,
	"SLURM_ARRAY_TASK_COUNT": func(s *Spec) string { return ofArray(s, Array.Len) },
	"SLURM_ARRAY_TASK_MIN":   func(s *Spec) string { return ofArray(s, func(a Array) int { return a.Index(0) }) },
	"SLURM_ARRAY_TASK_MAX":   func(s *Spec) string { return ofArray(s, func(a Array) int { return a.Index(a.Len() - 1) }) },
	"SLURM_MEM_PER_NODE":     func(s *Spec) string { return positive(int(s.Resources.Memory >> 20)) },
}

// slurmCPUs returns "" for a task that has all CPUs of its host.
func slurmCPUs(s *Spec) string {
	if s.Exclusive {
		return ""
	}
	return positive(s.Resources.CPUs)
}

// ofArray returns "" for a job without an array.
func ofArray(s *Spec, of func(Array) int) string {
	l, err := s.Layout()
	if err != nil || !l.isArray {
		return ""
	}
	return strconv.Itoa(of(l.array))
}

func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// SlurmEnv returns the variables of Slurm for a task of the job with these variables of muster. A variable for which
// the job has no value is left out, such as SLURM_ARRAY_TASK_ID outside an array.
func SlurmEnv(s Spec, ours map[string]string) map[string]string {
	env := map[string]string{}
	for name, of := range slurmSame {
		if _, array := ours["MUSTER_ARRAY_INDEX"]; name == "SLURM_ARRAY_JOB_ID" && !array {
			continue
		}
		if v, ok := ours[of]; ok {
			env[name] = v
		}
	}
	for name, of := range slurmOf {
		if v := of(&s); v != "" {
			env[name] = v
		}
	}
	if n, err := strconv.Atoi(ours["MUSTER_ATTEMPT"]); err == nil && n > 1 { // as in Slurm, not at the first start
		env["SLURM_RESTART_COUNT"] = strconv.Itoa(n - 1)
	}
	return env
}

// IsSlurmEnv reports whether SlurmEnv may return the variable.
func IsSlurmEnv(name string) bool {
	return slurmSame[name] != "" || slurmOf[name] != nil || name == "SLURM_RESTART_COUNT"
}

// SlurmNames returns the variables that SlurmEnv may return, sorted.
func SlurmNames() []string {
	names := append(slices.Collect(maps.Keys(slurmSame)), slices.Collect(maps.Keys(slurmOf))...)
	return slices.Sorted(slices.Values(append(names, "SLURM_RESTART_COUNT")))
}
