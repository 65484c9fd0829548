package main

// Options of sbatch with a meaning here, in #SBATCH lines.

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/job"
)

// slurmOption is an option of sbatch with Slurm's meaning.
type slurmOption struct {
	names  []string
	toggle bool // takes no value
	set    func(*job.Spec, string) error
}

var slurm = []slurmOption{
	{names: []string{"job-name", "J"}, set: func(s *job.Spec, v string) error { s.Name = v; return nil }},
	{names: []string{"cpus-per-task", "c"}, set: func(s *job.Spec, v string) error { return number(v, &s.Resources.CPUs) }},
	{names: []string{"time", "t"}, set: slurmTime},
	{names: []string{"mem"}, set: slurmMem},
	{names: []string{"gpus", "G"}, set: setGPUs},
	{names: []string{"gpus-per-node"}, set: setGPUs}, // a job has one node and one task
	{names: []string{"gpus-per-task"}, set: setGPUs},
	{names: []string{"gres"}, set: slurmGres},
	{names: []string{"constraint", "C"}, set: func(s *job.Spec, v string) error { s.Constraint = v; return slurmFeatures(v) }},
	{names: []string{"prefer"}, set: func(s *job.Spec, v string) error { s.Prefer = v; return slurmFeatures(v) }},
	{names: []string{"nodelist", "w"}, set: func(s *job.Spec, v string) error { s.NodeList = nodeList(v); return nil }},
	{names: []string{"exclude", "x"}, set: func(s *job.Spec, v string) error { s.Exclude = nodeList(v); return nil }},
	{names: []string{"exclusive"}, toggle: true, set: slurmExclusive},
	{names: []string{"begin", "b"}, set: slurmBegin},
	{names: []string{"chdir", "D"}, set: setWorkdir},
	{names: []string{"requeue"}, toggle: true, set: func(s *job.Spec, _ string) error { s.Requeue = true; return nil }},
	{names: []string{"no-requeue"}, toggle: true, set: func(s *job.Spec, _ string) error { s.Requeue = false; return nil }},
	{names: []string{"hold", "H"}, toggle: true, set: func(s *job.Spec, _ string) error { s.Hold = true; return nil }},
	{names: []string{"nodes", "N"}, set: slurmOne},
	{names: []string{"ntasks", "n"}, set: slurmOne},
	{names: []string{"ntasks-per-node"}, set: slurmOne},
	{names: []string{"signal"}, set: slurmSignal},
	{names: []string{"array", "a"}, set: func(s *job.Spec, v string) error { s.Array = v; return nil }},
	{names: []string{"dependency", "d"}, set: func(s *job.Spec, v string) error { s.Dependency = []string{v}; return nil }},
	{names: []string{"kill-on-invalid-dep"}, set: slurmKill},
}

// errUnknownSlurm is an option of sbatch without a meaning here. Print a warning and go on.
var errUnknownSlurm = errors.New("has no meaning here and is ignored")

// slurmDirective applies the first option of words.
func slurmDirective(words []string, s *job.Spec) (rest []string, err error) {
	var o *slurmOption
	flag, v, rest, err := option(words, func(flag string) (takes, known bool) {
		i := slices.IndexFunc(slurm, func(o slurmOption) bool { return slices.Contains(o.names, flag) })
		if i < 0 {
			return false, false
		}
		o = &slurm[i]
		return !o.toggle, true
	})
	if err != nil {
		return rest, err
	}
	if o == nil {
		n := slices.IndexFunc(rest, isFlag) // a word before the next option may be its value
		if n < 0 {
			n = len(rest)
		}
		return rest[n:], fmt.Errorf("#SBATCH %.200s: %w", strings.Join(words[:1+n], " "), errUnknownSlurm)
	}
	switch err := o.set(s, v); {
	case err == nil || errors.Is(err, errUnknownSlurm):
		return rest, err
	default:
		return rest, fmt.Errorf("%s: %w", dashed(flag), err)
	}
}

// slurmFeatures refuses the forms of sbatch that are about the several nodes of a job.
func slurmFeatures(v string) error {
	switch {
	case strings.Contains(v, "["):
		return fmt.Errorf("%.60q: [a|b], the same feature on all nodes of a job, is not supported; each task has one node: write a|b", v)
	case strings.Contains(v, "*"):
		return fmt.Errorf("%.60q: numbers of nodes (a*2) are not supported; each task has one node", v)
	}
	return nil
}

// slurmExclusive accepts --exclusive. With a value the node may be shared with some jobs, which has no meaning here.
func slurmExclusive(s *job.Spec, v string) error {
	if v != "" {
		return fmt.Errorf("#SBATCH --exclusive=%.40s: %w; --exclusive alone is a whole node for each task", v, errUnknownSlurm)
	}
	s.Exclusive = true
	return nil
}

// slurmOne accepts only one node or one task.
func slurmOne(_ *job.Spec, v string) error {
	if v != "1" {
		return fmt.Errorf("%.20q: %w", v, job.ErrNotYet)
	}
	return nil
}

// slurmGres accepts gpu, gpu:N and gpu:MODEL:N.
func slurmGres(s *job.Spec, v string) error {
	kind, count, some := strings.Cut(v, ":")
	if kind != "gpu" {
		return fmt.Errorf("%.40q: only gpu is supported", v)
	}
	if !some {
		count = "1"
	}
	return setGPUs(s, count)
}

// slurmTime accepts minutes, M:S, H:M:S, D-H, D-H:M and D-H:M:S.
func slurmTime(s *job.Spec, v string) error {
	days, clock, withDays := strings.Cut(v, "-")
	if !withDays {
		days, clock = "0", v
	}
	parts := strings.Split(clock, ":")
	unit := [][]int{{60}, {60, 1}, {3600, 60, 1}} // seconds of each part
	if withDays {
		unit = [][]int{{3600}, {3600, 60}, {3600, 60, 1}}
	}
	d, err := strconv.Atoi(days)
	if err != nil || len(parts) > len(unit) || d < 0 || d > 366 {
		return fmt.Errorf("%.40q: want minutes, H:M:S or D-H:M:S", v)
	}
	total := d * 24 * 3600
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > 1e6 {
			return fmt.Errorf("%.40q: want minutes, H:M:S or D-H:M:S", v)
		}
		total += n * unit[len(parts)-1][i]
	}
	return s.TimeLimit.UnmarshalText([]byte(strconv.Itoa(total) + "s"))
}

// slurmKill accepts yes and no.
func slurmKill(s *job.Spec, v string) error {
	if v != "yes" && v != "no" {
		return fmt.Errorf("%.20q: want yes or no", v)
	}
	s.KillOnInvalidDep = v == "yes"
	return nil
}

// slurmSignal accepts [R:|B:]SIG[@SECONDS]; the default is a minute before the limit. R and B are ignored: the signal
// goes to every process that handles it.
func slurmSignal(s *job.Spec, v string) error {
	if who, rest, ok := strings.Cut(v, ":"); ok && (who == "R" || who == "B") {
		v = rest
	}
	name, seconds, ok := strings.Cut(v, "@")
	if !ok {
		seconds = "60"
	}
	s.Signal = name + "@" + seconds + "s"
	return nil
}

// slurmMem accepts megabytes, or a number with K, M, G or T.
func slurmMem(s *job.Spec, v string) error {
	if v != "" && strings.Trim(v, "0123456789") == "" {
		v += "M"
	}
	return s.Resources.Memory.UnmarshalText([]byte(v))
}
