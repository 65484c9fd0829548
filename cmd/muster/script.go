package main

// Scripts and the directives in their leading comments: #MUSTER with our flags,
// and the #SBATCH lines that mean something here.

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/musterhq/muster/job"
)

// scriptText returns the text of a script if the only argument names one:
// standard input, or a readable file that begins with #!.
func (e env) scriptText(arg string) (string, error) {
	var text []byte
	var err error
	if arg == "-" {
		text, err = io.ReadAll(io.LimitReader(e.in, job.MaxSpecBytes+1))
	} else {
		f, openErr := os.Open(arg)
		if openErr != nil {
			return "", nil //nolint:nilerr // not a file here: a command that the node knows
		}
		defer f.Close()
		text, err = io.ReadAll(io.LimitReader(f, job.MaxSpecBytes+1))
		if err != nil || !strings.HasPrefix(string(text), "#!") {
			return "", nil //nolint:nilerr // a directory or a program: the node says what is wrong with it
		}
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("script %s: %w", arg, err)
	case len(text) > job.MaxSpecBytes/2:
		return "", usagef("script %s: larger than %s", arg, job.Size(job.MaxSpecBytes/2))
	case len(strings.TrimSpace(string(text))) == 0:
		return "", usagef("script %s: it is empty", arg)
	}
	return string(text), nil
}

// directives lays the leading comment block of a script over the spec.
func (e env) directives(name, text string, s *job.Spec) error {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#!"):
		case strings.HasPrefix(line, "#MUSTER "):
			if err := ourDirective(strings.Fields(line)[1:], s); err != nil {
				return usagef("%s:%d: %w", name, i+1, err)
			}
		case strings.HasPrefix(line, "#SBATCH "):
			known, err := slurmDirective(strings.Fields(line)[1:], s)
			if err != nil {
				return usagef("%s:%d: %w", name, i+1, err)
			}
			if !known {
				fmt.Fprintf(e.err, "muster: %s:%d: warning: %s means nothing here and is left out\n", name, i+1, line)
			}
		case strings.HasPrefix(line, "#"):
		default:
			return nil // the leading block ends with the first command
		}
	}
	return nil
}

// split turns the words of a directive into flag and value: --time=5, --time 5, -t 5, -t5.
func split(words []string) (flag, value string) {
	if len(words) == 0 {
		return "", ""
	}
	flag, value, given := strings.Cut(words[0], "=")
	short := strings.HasPrefix(flag, "-") && !strings.HasPrefix(flag, "--")
	flag = strings.TrimLeft(flag, "-")
	if !given && len(words) > 1 && !strings.HasPrefix(words[1], "#") {
		value, given = words[1], true
	}
	if !given && short && len(flag) > 1 {
		flag, value = flag[:1], flag[1:]
	}
	return flag, value
}

func ourDirective(words []string, s *job.Spec) error {
	flag, value := split(words)
	for _, f := range specFlags {
		for _, n := range f.names {
			if n != flag {
				continue
			}
			if f.later {
				return fmt.Errorf("--%s: %w", flag, job.ErrNotYet)
			}
			if err := f.set(s, value); err != nil {
				return fmt.Errorf("--%s: %w", flag, err)
			}
			return nil
		}
	}
	return fmt.Errorf("no such flag: --%s", flag)
}

// slurm maps the options of sbatch that mean the same here.
var slurm = map[string]func(*job.Spec, string) error{
	"job-name":      func(s *job.Spec, v string) error { s.Name = v; return nil },
	"cpus-per-task": func(s *job.Spec, v string) error { return number(v, &s.Resources.CPUs) },
	"time":          slurmTime,
	"mem":           slurmMem,
	"gpus":          setGPUs,
	"gres":          slurmGres,
	"constraint":    func(s *job.Spec, v string) error { s.Constraint = v; return nil },
	"nodelist":      func(s *job.Spec, v string) error { s.NodeList = list(v); return nil },
	"exclude":       func(s *job.Spec, v string) error { s.Exclude = list(v); return nil },
	"chdir":         func(s *job.Spec, v string) error { s.Workdir = v; return nil },
	"requeue":       func(s *job.Spec, _ string) error { s.Requeue = true; return nil },
	"no-requeue":    func(s *job.Spec, _ string) error { s.Requeue = false; return nil },
	"hold":          func(s *job.Spec, _ string) error { s.Hold = true; return nil },
	"nodes":         slurmOne,
	"ntasks":        slurmOne,
}

var slurmShort = map[string]string{
	"J": "job-name", "c": "cpus-per-task", "t": "time", "G": "gpus", "C": "constraint", "w": "nodelist", "x": "exclude",
	"D": "chdir", "H": "hold", "N": "nodes", "n": "ntasks",
}

func slurmDirective(words []string, s *job.Spec) (known bool, err error) {
	flag, value := split(words)
	if long, ok := slurmShort[flag]; ok {
		flag = long
	}
	set, known := slurm[flag]
	if !known {
		return false, nil
	}
	if err := set(s, value); err != nil {
		return true, fmt.Errorf("--%s: %w", flag, err)
	}
	return true, nil
}

// slurmOne takes one node or one task; more is a gang.
func slurmOne(_ *job.Spec, v string) error {
	if v != "1" {
		return fmt.Errorf("%.20q: %w", v, job.ErrNotYet)
	}
	return nil
}

// slurmGres takes gpu:N and gpu:MODEL:N.
func slurmGres(s *job.Spec, v string) error {
	rest, ok := strings.CutPrefix(v, "gpu")
	if !ok {
		return fmt.Errorf("%.40q: only gpu means something here", v)
	}
	if rest == "" {
		rest = ":1"
	}
	return setGPUs(s, strings.TrimPrefix(rest, ":"))
}

// slurmTime takes minutes, M:S, H:M:S, D-H, D-H:M and D-H:M:S.
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

// slurmMem takes megabytes, or a number with K, M, G or T.
func slurmMem(s *job.Spec, v string) error {
	if strings.Trim(v, "0123456789") == "" {
		v += "M"
	}
	return s.Resources.Memory.UnmarshalText([]byte(v))
}
