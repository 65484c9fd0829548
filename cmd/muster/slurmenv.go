package main

// Variables and programs of Slurm that a script uses and that a task does not have.

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/musterhq/muster/job"
)

// slurmVariable finds the variables of Slurm that a line of a script reads.
var slurmVariable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\$\{?#?(SLURMD?_[A-Z0-9_]+)`)
})

// slurmNearest maps variables of Slurm to ours that say something like it.
var slurmNearest = map[string]string{
	"SLURM_NODELIST": "MUSTER_NODE_IPS", "SLURM_JOB_NODELIST": "MUSTER_NODE_IPS", "SLURM_PROCID": "MUSTER_NODE_RANK", "SLURM_TMPDIR": "MUSTER_SCRATCH", "SLURMD_NODENAME": "MUSTER_NODE_IPS or hostname",
}

// warnSlurmVariables warns once for each variable of Slurm that a script with #SBATCH lines reads but that its task
// will not have. The variable would be empty, so that for example all nodes of a gang would write to one file.
func (r specReader) warnSlurmVariables(name, text string) {
	told := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, found := range slurmVariable().FindAllStringSubmatch(line, -1) {
			if v := found[1]; !told[v] && !job.IsSlurmEnv(v) {
				told[v] = true
				use := cmp.Or(slurmNearest[v], "the variables named MUSTER_")
				fmt.Fprintf(r.err, "muster: %s:%d: warning: %s is not set here; use %s\n", name, i+1, v, use)
			}
		}
	}
}

// slurmProgram finds the programs of Slurm that a line of a script starts.
var slurmProgram = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?:^|[;&|(`]|\\b(?:then|do|else|exec|time|if|while|!))\\s*(?:[A-Za-z_][A-Za-z_0-9]*=\\S*\\s+)*(srun|sbatch|sbcast|scontrol|scancel|squeue|sacct|sinfo)(?:\\s|[);|&`]|$)")
})

// slurmInstead says what a script does instead of starting a program of Slurm.
var slurmInstead = map[string]string{
	"srun":   "write its command without srun, or start several processes with mpirun or torchrun",
	"sbatch": "use muster submit", "sbcast": "use --upload", "scontrol": "the manual lists the variables of a task, such as MUSTER_NODE_IPS",
	"scancel": "use muster cancel", "squeue": "use muster jobs", "sacct": "use muster jobs or muster usage", "sinfo": "use muster nodes",
}

// warnSlurmPrograms warns once for each program of Slurm that a script with #SBATCH lines starts: the script would fail on
// a node without Slurm.
func (r specReader) warnSlurmPrograms(name, text string) {
	told := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, found := range slurmProgram().FindAllStringSubmatch(line, -1) {
			if p := found[1]; !told[p] {
				told[p] = true
				fmt.Fprintf(r.err, "muster: %s:%d: warning: %s is a program of Slurm, which nodes may not have; %s\n", name, i+1, p, slurmInstead[p])
			}
		}
	}
}
