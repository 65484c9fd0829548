package main

// The flags of submit, run and offers, and how they become a spec.

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/jobfile"
)

// specFlag is a flag that says something about the job.
type specFlag struct {
	names []string // without dashes; the first is the long one
	value string   // what help calls the value; empty for a switch
	usage string
	set   func(*job.Spec, string) error // of one value; a switch gets "true"
	// later marks what this version refuses.
	later bool
}

// specFlags is every flag of surface about a job, in the order of help.
var specFlags = []specFlag{
	{names: []string{"name", "J"}, value: "NAME", usage: "name of the job", set: func(s *job.Spec, v string) error { s.Name = v; return nil }},
	{names: []string{"cpus", "c"}, value: "N", usage: "CPUs of a task", set: func(s *job.Spec, v string) error { return number(v, &s.Resources.CPUs) }},
	{names: []string{"mem"}, value: "SIZE", usage: "memory of a task, such as 8GiB", set: func(s *job.Spec, v string) error { return s.Resources.Memory.UnmarshalText([]byte(v)) }},
	{names: []string{"gpus", "G"}, value: "[MODEL:]N", usage: "GPUs of a task, such as 2 or H100:2", set: setGPUs},
	{names: []string{"gpu-mem"}, value: "SIZE", usage: "memory that each GPU has at least", set: func(s *job.Spec, v string) error { return s.Resources.GPUMemory.UnmarshalText([]byte(v)) }},
	{names: []string{"gpu-share"}, value: "X", usage: "share of one GPU, such as 0.5", set: setShare},
	{names: []string{"time", "t"}, value: "D", usage: "time limit, such as 90m", set: func(s *job.Spec, v string) error { return s.TimeLimit.UnmarshalText([]byte(v)) }},
	{names: []string{"priority"}, value: "N", usage: "0 to 100", set: func(s *job.Spec, v string) error { return number(v, &s.Priority) }},
	{names: []string{"retries"}, value: "N", usage: "more runs after one that failed", set: func(s *job.Spec, v string) error { return number(v, &s.Retries) }},
	{names: []string{"requeue"}, usage: "run again after the node was lost (default)", set: func(s *job.Spec, _ string) error { s.Requeue = true; return nil }},
	{names: []string{"no-requeue"}, usage: "do not", set: func(s *job.Spec, _ string) error { s.Requeue = false; return nil }},
	{names: []string{"grace"}, value: "D", usage: "between TERM and KILL", set: func(s *job.Spec, v string) error { return s.Grace.UnmarshalText([]byte(v)) }},
	{names: []string{"constraint", "C"}, value: "EXPR", usage: "labels of the node, such as 'rack=r1&nvlink'", set: func(s *job.Spec, v string) error { s.Constraint = v; return nil }},
	{names: []string{"nodelist", "w"}, value: "NAMES", usage: "only these nodes", set: func(s *job.Spec, v string) error { s.NodeList = append(s.NodeList, list(v)...); return nil }},
	{names: []string{"exclude", "x"}, value: "NAMES", usage: "not these nodes", set: func(s *job.Spec, v string) error { s.Exclude = append(s.Exclude, list(v)...); return nil }},
	{names: []string{"policy"}, value: "NAME", usage: "placement policy: simple", set: func(s *job.Spec, v string) error { s.Policy = v; return nil }},
	{names: []string{"env"}, value: "K=V|K", usage: "variable of the task; K alone takes it from here", set: setEnv},
	{names: []string{"env-file"}, value: "F", usage: "variables, one K=V a line", set: setEnvFile},
	{names: []string{"workdir", "D"}, value: "DIR", usage: "directory on the node that the task starts in", set: func(s *job.Spec, v string) error { s.Workdir = v; return nil }},
	{names: []string{"param"}, value: "K=V", usage: "parameter: {K} in the command, MUSTER_PARAM_K in the environment", set: setParam},
	{names: []string{"hold"}, usage: "accept it, but start it only after release", set: func(s *job.Spec, _ string) error { s.Hold = true; return nil }},
	{names: []string{"nodes", "N"}, value: "N", usage: "tasks at once on N nodes", later: true},
	{names: []string{"gpus-per-node"}, value: "[MODEL:]N", usage: "GPUs on each node", later: true},
	{names: []string{"array", "a"}, value: "0-99%8", usage: "array of tasks", later: true},
	{names: []string{"each-line"}, value: "FILE", usage: "a task for each line", later: true},
	{names: []string{"dependency", "d"}, value: "afterok:ID", usage: "start after other jobs", later: true},
	{names: []string{"preemptible"}, usage: "may be stopped for others", later: true},
	{names: []string{"signal"}, value: "USR1@120s", usage: "signal before the time limit", later: true},
	{names: []string{"checkpoint-exit-code"}, value: "N", usage: "code that means: saved, go on", later: true},
	{names: []string{"prefer"}, value: "EXPR", usage: "labels that are liked", later: true},
	{names: []string{"upload"}, value: "PATH", usage: "files to take along", later: true},
	{names: []string{"download"}, value: "GLOB", usage: "files to bring back", later: true},
	{names: []string{"output", "o"}, value: "F", usage: "file for the output", later: true},
	{names: []string{"error", "e"}, value: "F", usage: "file for the errors", later: true},
	{names: []string{"image"}, value: "REF", usage: "container image", later: true},
	{names: []string{"mount"}, value: "SRC:DST[:ro]", usage: "mount into the container", later: true},
}

// flags are the same as the library wants them.
func jobFlags() []cli.Flag {
	flags := []cli.Flag{&cli.StringFlag{Name: "file", Aliases: []string{"F"}, Usage: "job file, YAML or JSON; - for standard input", TakesFile: true}}
	for _, f := range specFlags {
		usage := f.usage
		if f.later {
			usage += " (not yet in this version)"
		}
		if f.value == "" {
			flags = append(flags, &cli.BoolFlag{Name: f.names[0], Aliases: f.names[1:], Usage: usage})
		} else {
			flags = append(flags, &cli.StringSliceFlag{Name: f.names[0], Aliases: f.names[1:], Usage: strings.TrimSpace("`" + f.value + "` " + usage)})
		}
	}
	return flags
}

// applyFlags lays what the command line says over the spec.
func applyFlags(c *cli.Context, s *job.Spec) error {
	for _, f := range specFlags {
		if !c.IsSet(f.names[0]) {
			continue
		}
		if f.later {
			return usagef("--%s: %w", f.names[0], job.ErrNotYet)
		}
		values := []string{"true"}
		if f.value != "" {
			values = c.StringSlice(f.names[0])
		}
		for _, v := range values {
			if err := f.set(s, v); err != nil {
				return usagef("--%s: %w", f.names[0], err)
			}
		}
	}
	return nil
}

// specOf is the spec that a command line asks for: job file or script, then its
// directives, then flags. Warnings go to e.err.
func (e env) specOf(c *cli.Context) (job.Spec, error) {
	spec, err := e.baseSpec(c)
	if err != nil {
		return job.Spec{}, err
	}
	if err := applyFlags(c, &spec); err != nil {
		return job.Spec{}, err
	}
	if err := spec.Validate(); err != nil {
		return job.Spec{}, usagef("%s: %w", c.Command.Name, err)
	}
	return spec, nil
}

func (e env) baseSpec(c *cli.Context) (job.Spec, error) {
	spec := job.DefaultSpec()
	args := c.Args().Slice()
	switch file := c.String("file"); {
	case file == "-":
		return usage(jobfile.Read("standard input", e.in))
	case file != "":
		if len(args) > 0 {
			return spec, usagef("%s: a job file or a command, not both", c.Command.Name)
		}
		f, err := os.Open(file)
		if err != nil {
			return spec, usageError{err}
		}
		defer f.Close()
		return usage(jobfile.Read(file, f))
	}
	if len(args) == 1 {
		text, err := e.scriptText(args[0])
		if err != nil {
			return spec, err
		}
		if text != "" {
			spec.Script = text
			return spec, e.directives(args[0], text, &spec)
		}
	}
	spec.Command = args
	return spec, nil
}

func usage(s job.Spec, err error) (job.Spec, error) {
	if err != nil {
		return s, usageError{err}
	}
	return s, nil
}

func number(v string, into *int) error {
	n, err := strconv.Atoi(v)
	if err != nil {
		return fmt.Errorf("%.40q: want a number", v)
	}
	*into = n
	return nil
}

func setGPUs(s *job.Spec, v string) error {
	model, n, two := strings.Cut(v, ":")
	if !two {
		model, n = "", v
	}
	s.Resources.GPUModel = model
	return number(n, &s.Resources.GPUs)
}

func setShare(s *job.Spec, v string) error {
	x, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return fmt.Errorf("%.40q: want a number between 0 and 1", v)
	}
	s.Resources.GPUShare = x
	return nil
}

func list(v string) []string {
	var names []string
	for _, n := range strings.Split(v, ",") {
		if n = strings.TrimSpace(n); n != "" {
			names = append(names, n)
		}
	}
	return names
}

func setEnv(s *job.Spec, v string) error {
	k, val, given := strings.Cut(v, "=")
	if !given {
		var here bool
		if val, here = os.LookupEnv(k); !here {
			return fmt.Errorf("%.40q is not set here", k)
		}
	}
	return put(&s.Env, k, val)
}

func setParam(s *job.Spec, v string) error {
	k, val, given := strings.Cut(v, "=")
	if !given {
		return fmt.Errorf("%.40q: want K=V", v)
	}
	return put(&s.Params, k, val)
}

func put(m *map[string]string, k, v string) error {
	if k == "" {
		return errors.New("a name is missing")
	}
	next := maps.Clone(*m)
	if next == nil {
		next = map[string]string{}
	}
	next[k] = v
	*m = next
	return nil
}

func setEnvFile(s *job.Spec, path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := setEnv(s, line); err != nil {
			return fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	return nil
}
