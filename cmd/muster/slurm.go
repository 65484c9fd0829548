package main

// Options of sbatch with a meaning here, in #SBATCH lines.

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/jobfile"
)

// slurmOption is an option of sbatch with Slurm's meaning.
type slurmOption struct {
	names  []string
	toggle bool // takes no value
	set    func(*job.Spec, string) error
	// late is called instead of set, for an option whose meaning depends on others
	late func(*lateOptions, *job.Spec, string) error
}

var slurm = []slurmOption{
	{names: []string{"job-name", "J"}, set: func(s *job.Spec, v string) error { s.Name = v; return nil }},
	{names: []string{"cpus-per-task", "c"}, set: func(s *job.Spec, v string) error { return number(v, &s.Resources.CPUs) }},
	{names: []string{"time", "t"}, set: slurmTime},
	{names: []string{"mem"}, set: func(s *job.Spec, v string) error { return slurmMem(&s.Resources.Memory, v) }},
	{names: []string{"mem-per-cpu"}, late: func(l *lateOptions, _ *job.Spec, v string) error { return slurmMem(&l.slurm.memPerCPU, v) }},
	{names: []string{"mem-per-gpu"}, late: func(l *lateOptions, _ *job.Spec, v string) error { return slurmMem(&l.slurm.memPerGPU, v) }},
	{names: []string{"cpus-per-gpu"}, late: func(l *lateOptions, _ *job.Spec, v string) error { return number(v, &l.slurm.cpusPerGPU) }},
	{names: []string{"gpus", "G"}, late: func(l *lateOptions, s *job.Spec, v string) error { return addGPUs(&l.gpus.whole, s, v) }},
	{names: []string{"gpus-per-node"}, late: func(l *lateOptions, s *job.Spec, v string) error { return addGPUs(&l.gpus.perNode, s, v) }},
	{names: []string{"gpus-per-task"}, late: func(l *lateOptions, s *job.Spec, v string) error { return addGPUs(&l.gpus.perProcess, s, v) }},
	{names: []string{"gres"}, late: slurmGres},
	{names: []string{"constraint", "C"}, set: func(s *job.Spec, v string) error { s.Constraint = v; return slurmFeatures(v) }},
	{names: []string{"prefer"}, set: func(s *job.Spec, v string) error { s.Prefer = v; return slurmFeatures(v) }},
	{names: []string{"nodelist", "w"}, set: func(s *job.Spec, v string) error { s.NodeList = nodeList(v); return nil }},
	{names: []string{"exclude", "x"}, set: func(s *job.Spec, v string) error { s.Exclude = nodeList(v); return nil }},
	{names: []string{"exclusive"}, toggle: true, set: slurmExclusive},
	{names: []string{"begin", "b"}, set: slurmBegin},
	{names: []string{"chdir", "D"}, set: setWorkdir},
	{names: []string{"output", "o"}, late: func(l *lateOptions, _ *job.Spec, v string) error { return slurmOutput(&l.slurm.output, v) }},
	{names: []string{"error", "e"}, late: func(l *lateOptions, _ *job.Spec, v string) error { return slurmOutput(&l.slurm.stderr, v) }},
	{names: []string{"export"}, set: slurmExport},
	{names: []string{"account", "A"}, set: slurmAccount},
	{names: []string{"requeue"}, toggle: true, set: func(s *job.Spec, _ string) error { s.Requeue = true; return nil }},
	{names: []string{"no-requeue"}, toggle: true, set: func(s *job.Spec, _ string) error { s.Requeue = false; return nil }},
	{names: []string{"hold", "H"}, toggle: true, set: func(s *job.Spec, _ string) error { s.Hold = true; return nil }},
	{names: []string{"nodes", "N"}, late: slurmNodes},
	{names: []string{"ntasks", "tasks", "n"}, late: func(l *lateOptions, _ *job.Spec, v string) error { return slurmCount(v, &l.slurm.processes) }},
	{names: []string{"ntasks-per-node", "tasks-per-node"}, late: func(l *lateOptions, _ *job.Spec, v string) error { return slurmCount(v, &l.slurm.perNode) }},
	{names: []string{"kill-on-bad-exit"}, toggle: true, set: setKillOnBadExit},
	{names: []string{"signal"}, set: slurmSignal},
	{names: []string{"array", "a"}, set: setArray},
	{names: []string{"dependency", "d"}, set: func(s *job.Spec, v string) error { s.Dependency = []string{v}; return nil }},
	{names: []string{"kill-on-invalid-dep"}, set: slurmKill},
	// refused, because without it the job would do something else
	{names: []string{"input", "i"}, set: slurmLater},
	{names: []string{"het-job", "hetjob"}, toggle: true, set: slurmLater},
	// a warning for all of them together
	{names: []string{"mail-type", "mail-user"}, late: func(l *lateOptions, _ *job.Spec, _ string) error { return l.slurm.mail() }},
}

var (
	// errSlurmWarning is an option of sbatch that is ignored, or has another meaning here. Print a warning and go on.
	errSlurmWarning = errors.New("warning")
	errUnknownSlurm = slurmWarning("has no meaning here and is ignored")
)

// slurmHints says what to use instead of some options of sbatch.
var slurmHints = map[string]string{
	"partition": "a --constraint with labels of the nodes", "p": "a --constraint with labels of the nodes",
	"qos": "--priority", "q": "--priority", "nice": "--priority", "priority": "#MUSTER --priority", "reservation": "--nodelist",
}

// slurmRefused has the options of sbatch that cannot be ignored, because the job would do something else, and says what
// to write instead.
var slurmRefused = map[string]string{
	"wait": "muster submit -W", "W": "muster submit -W", "test-only": "muster submit --dry-run", "wrap": "muster submit COMMAND",
	"licenses": "a --constraint with labels of the nodes", "L": "a --constraint with labels of the nodes", "tmp": "a --constraint with labels of the nodes",
	"deadline": "--time", "clusters": "muster --addr", "M": "muster --addr", "nodefile": "--nodelist", "F": "--nodelist", "export-file": "muster submit --env-file",
	"container": "#MUSTER --image", "ntasks-per-gpu": "--ntasks-per-node", "ntasks-per-core": "--ntasks-per-node", "ntasks-per-socket": "--ntasks-per-node", "gpus-per-socket": "--gpus-per-node",
	"mincpus": "--cpus-per-task", "bb": "#MUSTER --upload", "bbf": "#MUSTER --upload", "uid": "sudo -u USER muster submit", "gid": "newgrp GROUP before muster submit",
}

// slurmIgnored are options of sbatch without a meaning here that resemble others.
var slurmIgnored = map[string]bool{"mem-bind": true, "cpu-bind": true, "gpu-bind": true, "gpu-freq": true, "cpu-freq": true, "no-kill": true, "sockets-per-node": true, "cores-per-socket": true, "threads-per-core": true, "time-min": true, "gres-flags": true, "core-spec": true, "comment": true}

// slurmNames returns the long names of the options of sbatch with a meaning here.
func slurmNames() (names []string) {
	for _, o := range slurm {
		names = append(names, slices.DeleteFunc(slices.Clone(o.names), func(n string) bool { return len(n) == 1 })...)
	}
	return names
}

func slurmWarning(text string) error { return warningError{text} }

// warningError is an errSlurmWarning with a text of its own.
type warningError struct{ text string }

func (e warningError) Error() string        { return e.text }
func (e warningError) Is(target error) bool { return target == errSlurmWarning }

// slurmDirective applies the first option of words.
func slurmDirective(words []string, s *job.Spec, late *lateOptions) (rest []string, err error) {
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
	if instead := slurmRefused[flag]; o == nil && instead != "" {
		return rest, fmt.Errorf("%s: of sbatch, not of muster; use %s", dashed(flag), instead)
	}
	if o == nil {
		n := slices.IndexFunc(rest, isFlag) // a word before the next option may be its value
		if n < 0 {
			n = len(rest)
		}
		err := fmt.Errorf("#SBATCH %.200s: %w", strings.Join(words[:1+n], " "), errUnknownSlurm)
		if hint := slurmHints[flag]; hint != "" {
			err = fmt.Errorf("%w; use %s", err, hint)
		} else if near := jobfile.Nearest(slurmNames(), flag); near != "" && !slurmIgnored[flag] {
			err = fmt.Errorf("%w; did you mean %s?", err, dashed(near))
		}
		return rest[n:], err
	}
	if o.late != nil {
		err = o.late(late, s, v)
	} else {
		err = o.set(s, v)
	}
	switch {
	case errors.Is(err, errSlurmWarning):
		err = fmt.Errorf("#SBATCH %s: %w", dashed(flag), err)
	case err != nil:
		err = fmt.Errorf("%s: %w", dashed(flag), err)
	}
	return rest, err
}

// slurmAccount takes the account as the project.
func slurmAccount(s *job.Spec, v string) error {
	if err := job.CheckProject(v); err != nil {
		return err
	}
	s.Project = v
	return nil
}

// slurmExport accepts NONE, and variables with or without a value. Without NONE, sbatch hands on all variables.
func slurmExport(s *job.Spec, v string) error {
	all := false
	for _, name := range list(v) {
		switch name {
		case "NONE", "NIL":
		case "ALL":
			all = true
		default:
			if _, here := os.LookupEnv(name); !here && !strings.Contains(name, "=") {
				continue // sbatch ignores it too
			}
			if err := setEnv(s, name); err != nil {
				return err
			}
		}
	}
	if all {
		return slurmWarning("ALL: variables are not handed on; name them with --env")
	}
	return nil
}

func slurmLater(*job.Spec, string) error { return job.ErrNotYet }

// slurmFeatures refuses the forms [a|b] and a*2 of sbatch, which are about all nodes of a job together.
func slurmFeatures(v string) error {
	switch {
	case strings.Contains(v, "["):
		return fmt.Errorf("%.60q: [a|b], the same feature on all nodes of a job, is not supported; the nodes of a job may differ: write a|b", v)
	case strings.Contains(v, "*"):
		return fmt.Errorf("%.60q: numbers of nodes (a*2) are not supported; write the feature alone", v)
	}
	return nil
}

// slurmExclusive accepts --exclusive. With a value the node may be shared with some jobs, which has no meaning here.
func slurmExclusive(s *job.Spec, v string) error {
	if v != "" {
		return fmt.Errorf("=%.40s %w; --exclusive alone is a whole node for each task", v, errUnknownSlurm)
	}
	s.Exclusive = true
	return nil
}

// slurmGres accepts gpu, gpu:N, gpu:MODEL and gpu:MODEL:N, of each node, and none. A count may have "=" before it, and
// gres/ or gres: before the word gpu.
func slurmGres(l *lateOptions, s *job.Spec, v string) error {
	gpus := ""
	for _, entry := range list(v) {
		plain := strings.ReplaceAll(strings.ReplaceAll(entry, "=", ":"), "gres/", "gres:")
		kind, count, _ := strings.Cut(strings.TrimPrefix(plain, "gres:"), ":")
		switch {
		case kind == "none":
			continue
		case kind != "gpu":
			return fmt.Errorf("%.40q: only gpu is supported", entry)
		case gpus != "":
			return fmt.Errorf("%.60q: GPUs of one model only; write gpu:MODEL:N once", v)
		}
		switch gpus = count; {
		case count == "":
			gpus = "1"
		case strings.Trim(count, "0123456789") != "" && !strings.Contains(count, ":"):
			gpus += ":1"
		}
	}
	if gpus == "" {
		return nil
	}
	return addGPUs(&l.gpus.perNode, s, gpus)
}

// slurmTime accepts minutes, M:S, H:M:S, D-H, D-H:M and D-H:M:S. Zero and UNLIMITED are no limit.
func slurmTime(s *job.Spec, v string) error {
	if up := strings.ToUpper(v); up == "UNLIMITED" || up == "INFINITE" {
		v = "0"
	}
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

// slurmMem accepts megabytes, or a number with K, M, G or T. KB, MB, GB and TB mean the same as these: for Slurm all are
// powers of 1024.
func slurmMem(into *job.Size, v string) error {
	if n := len(v); n > 1 && strings.EqualFold(v[n-1:], "B") && strings.ContainsAny(v[n-2:n-1], "KMGTkmgt") {
		v = v[:n-1]
	}
	if v != "" && strings.Trim(v, "0123456789") == "" {
		v += "M"
	}
	if err := into.UnmarshalText([]byte(v)); err != nil {
		return err
	}
	if *into == 0 {
		return slurmWarning("0 does not mean all memory of the node here: the memory is not limited")
	}
	return nil
}
