package main

// Variables of Slurm that a script reads: a task has none of them.

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// slurmVariable finds the variables of Slurm that a line of a script reads.
var slurmVariable = regexp.MustCompile(`\$\{?#?(SLURM_[A-Z0-9_]+)`)

// slurmVariables maps variables of Slurm to ours.
var slurmVariables = map[string]string{
	"SLURM_ARRAY_TASK_ID": "MUSTER_ARRAY_INDEX", "SLURM_ARRAY_JOB_ID": "MUSTER_JOB_ID", "SLURM_JOB_ID": "MUSTER_JOB_ID", "SLURM_JOBID": "MUSTER_JOB_ID",
	"SLURM_JOB_NAME": "MUSTER_JOB_NAME", "SLURM_RESTART_COUNT": "MUSTER_ATTEMPT, which is 1 at first",
}

// warnSlurmVariables warns once for each variable of Slurm that a script with #SBATCH lines reads. It would be empty,
// so that for example all tasks of an array would write to one file.
func (r specReader) warnSlurmVariables(name, text string) {
	told := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, found := range slurmVariable.FindAllStringSubmatch(line, -1) {
			if v := found[1]; !told[v] {
				told[v] = true
				use := cmp.Or(slurmVariables[v], "the variables named MUSTER_")
				fmt.Fprintf(r.err, "muster: %s:%d: warning: %s is not set here; use %s\n", name, i+1, v, use)
			}
		}
	}
}
