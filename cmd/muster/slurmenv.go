package main

// Variables of Slurm that a script reads and that a task does not have.

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/musterhq/muster/job"
)

// slurmVariable finds the variables of Slurm that a line of a script reads.
var slurmVariable = regexp.MustCompile(`\$\{?#?(SLURM_[A-Z0-9_]+)`)

// slurmNearest maps variables of Slurm to ours that say something like it.
var slurmNearest = map[string]string{
	"SLURM_NODELIST": "MUSTER_NODE_IPS", "SLURM_JOB_NODELIST": "MUSTER_NODE_IPS", "SLURM_PROCID": "MUSTER_NODE_RANK", "SLURM_TMPDIR": "MUSTER_SCRATCH",
}

// warnSlurmVariables warns once for each variable of Slurm that a script with #SBATCH lines reads and that it will not
// have. It would be empty, so that for example all nodes of a gang would write to one file.
func (r specReader) warnSlurmVariables(name, text string) {
	told := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, found := range slurmVariable.FindAllStringSubmatch(line, -1) {
			if v := found[1]; !told[v] && !job.IsSlurmEnv(v) {
				told[v] = true
				use := cmp.Or(slurmNearest[v], "the variables named MUSTER_")
				fmt.Fprintf(r.err, "muster: %s:%d: warning: %s is not set here; use %s\n", name, i+1, v, use)
			}
		}
	}
}
