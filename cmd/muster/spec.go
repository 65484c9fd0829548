package main

// The flags of submit, run and offers, and how they become a spec.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/jobfile"
	"github.com/musterhq/muster/node"
)

// specFlag is a flag that sets a field of the job.
type specFlag struct {
	names []string                      // without dashes; the long name first
	usage string                        // with the value's name in back quotes; a switch has none
	many  bool                          // values add up; otherwise the last one counts
	set   func(*job.Spec, string) error // applies one value; nil: not supported by this version
}

// toggle reports whether the flag takes no value.
func (f specFlag) toggle() bool { return !strings.Contains(f.usage, "`") }

// specFlags lists every documented flag of a job, in the order of help. They are applied in this order.
var specFlags = []specFlag{
	{names: []string{"name", "J"}, usage: "`NAME` of the job; default: the name of its program or script", set: func(s *job.Spec, v string) error { s.Name = v; return nil }},
	{names: []string{"cpus", "c"}, usage: "`N` CPUs for each task", set: func(s *job.Spec, v string) error { return number(v, &s.Resources.CPUs) }},
	{names: []string{"mem"}, usage: "memory for each task: a `SIZE` such as 8GiB", set: func(s *job.Spec, v string) error { return s.Resources.Memory.UnmarshalText([]byte(v)) }},
	{names: []string{"gpus", "G"}, usage: "GPUs for each task: `[MODEL:]N` such as 2, H100:2 or A100|H100:2", set: setGPUs},
	{names: []string{"gpu-mem"}, usage: "minimum memory of each GPU: a `SIZE`", set: func(s *job.Spec, v string) error { return s.Resources.GPUMemory.UnmarshalText([]byte(v)) }},
	{names: []string{"gpu-share"}, usage: "a share of one GPU: `X` such as 0.5", set: setShare},
	{names: []string{"time", "t"}, usage: "time limit: `D` such as 90m", set: func(s *job.Spec, v string) error { return s.TimeLimit.UnmarshalText([]byte(v)) }},
	{names: []string{"priority"}, usage: "`N` from 0 to 100, default 50", set: func(s *job.Spec, v string) error { return number(v, &s.Priority) }},
	{names: []string{"retries"}, usage: "run a failed task again, up to `N` times", set: func(s *job.Spec, v string) error { return number(v, &s.Retries) }},
	{names: []string{"requeue"}, usage: "run again after the node was lost, the default", set: func(s *job.Spec, _ string) error { s.Requeue = true; return nil }},
	{names: []string{"no-requeue"}, usage: "do not run again after the node was lost", set: func(s *job.Spec, _ string) error { s.Requeue = false; return nil }},
	{names: []string{"grace"}, usage: "time between TERM and KILL: `D` such as 30s, default 10s", set: func(s *job.Spec, v string) error { return s.Grace.UnmarshalText([]byte(v)) }},
	{names: []string{"signal"}, usage: "signal before the time limit: `[SIG@]D` such as USR1@120s", set: func(s *job.Spec, v string) error { s.Signal = v; return nil }},
	{names: []string{"constraint", "C"}, usage: "labels of the node: `EXPR` such as 'rack=r1&nvlink'", set: func(s *job.Spec, v string) error { s.Constraint = v; return nil }},
	{names: []string{"nodelist", "w"}, usage: "only these nodes: `NODE,...`", set: func(s *job.Spec, v string) error { s.NodeList = list(v); return nil }},
	{names: []string{"exclude", "x"}, usage: "not these nodes: `NODE,...`", set: func(s *job.Spec, v string) error { s.Exclude = list(v); return nil }},
	{names: []string{"policy"}, usage: "placement policy `NAME`: " + strings.Join(node.Policies(), ", "), set: func(s *job.Spec, v string) error { s.Policy = v; return nil }},
	{names: []string{"env-file"}, usage: "`FILE` with variables of the task, one K=V a line", many: true, set: setEnvFile},
	{names: []string{"env"}, usage: "variable of the task: `K=V`, or K alone to take it from here", many: true, set: setEnv},
	{names: []string{"workdir", "D"}, usage: "working directory `DIR` on the node; default: a scratch directory", set: setWorkdir},
	{names: []string{"output", "o"}, usage: "also write the output to `FILE` on the node; %j job, %t task, %x name, %n node, %u user", set: func(s *job.Spec, v string) error { s.Output = v; return nil }},
	{names: []string{"error", "e"}, usage: "also write stderr to `FILE` on the node; default: the file of --output", set: func(s *job.Spec, v string) error { s.Error = v; return nil }},
	{names: []string{"param"}, usage: "parameter `K=V`: {K} in the command, MUSTER_PARAM_K in the environment", many: true, set: setParam},
	{names: []string{"upload"}, usage: "upload `PATH`; the task starts in a copy of it; .musterignore excludes files", many: true, set: func(s *job.Spec, v string) error { s.Upload = append(s.Upload, v); return nil }},
	{names: []string{"download"}, usage: "keep files that match `GLOB` when the task ends; run, submit -W and submit -f also copy them here", many: true, set: func(s *job.Spec, v string) error { s.Download = append(s.Download, v); return nil }},
	{names: []string{"image"}, usage: "container image `REF` that the task runs in, such as registry/name:tag", set: setImage},
	{names: []string{"mount"}, usage: "mount a directory of the node: `SRC:DST[:ro]`", many: true, set: func(s *job.Spec, v string) error { s.Mounts = append(s.Mounts, v); return nil }},
	{names: []string{"hold"}, usage: "accept the job, but start it only after muster release", set: func(s *job.Spec, _ string) error { s.Hold = true; return nil }},
	{names: []string{"nodes", "N"}, usage: "`VALUE`"},
	{names: []string{"gpus-per-node"}, usage: "`VALUE`"},
	{names: []string{"array", "a"}, usage: "`VALUE`"},
	{names: []string{"each-line"}, usage: "`VALUE`"},
	{names: []string{"dependency", "d"}, usage: "`VALUE`"},
	{names: []string{"preemptible"}},
	{names: []string{"checkpoint-exit-code"}, usage: "`VALUE`"},
	{names: []string{"prefer"}, usage: "`VALUE`"},
}

// jobFlags returns specFlags as flags of the library. Unsupported ones are hidden from help.
func jobFlags() []cli.Flag {
	flags := []cli.Flag{&cli.StringFlag{Name: "file", Aliases: []string{"F"}, Usage: "job `FILE`, YAML or JSON; - for standard input"}}
	for _, f := range specFlags {
		switch name, short, hidden := f.names[0], f.names[1:], f.set == nil; {
		case f.toggle():
			flags = append(flags, &cli.BoolFlag{Name: name, Aliases: short, Usage: f.usage, Hidden: hidden, DisableDefaultText: true})
		case f.many:
			flags = append(flags, &cli.StringSliceFlag{Name: name, Aliases: short, Usage: f.usage, Hidden: hidden})
		default:
			flags = append(flags, &cli.StringFlag{Name: name, Aliases: short, Usage: f.usage, Hidden: hidden})
		}
	}
	return append(flags, uploadLimitFlag())
}

// applyFlags applies the flags of the command line to the spec.
func applyFlags(c *cli.Context, s *job.Spec) error {
	for _, f := range specFlags {
		name := f.names[0]
		if !c.IsSet(name) {
			continue
		}
		values := []string{c.String(name)}
		switch {
		case f.set == nil:
			return usagef("--%s: %w", name, job.ErrNotYet)
		case f.toggle() && !c.Bool(name):
			continue // --hold=false
		case f.many:
			values = c.StringSlice(name)
		}
		for _, v := range values {
			if err := f.set(s, v); err != nil {
				return usagef("--%s: %w", name, err)
			}
		}
	}
	return nil
}

// specReader makes specs from command lines, and reads the scripts and job files that they name.
type specReader struct{ streams }

// specOf returns the spec of a command line: first the job file or script, then the directives, then the flags. It
// writes warnings to r.err.
func (r specReader) specOf(c *cli.Context) (job.Spec, error) {
	spec, err := r.baseSpec(c)
	if err != nil {
		return spec, err
	}
	if err = finishSpec(c, &spec); err == nil {
		r.warnNotSent(spec)
	}
	return spec, err
}

// finishSpec applies the flags to the spec and validates it.
func finishSpec(c *cli.Context, spec *job.Spec) error {
	if err := applyFlags(c, spec); err != nil {
		return err
	}
	if _, err := uploadLimit(c); err != nil {
		return err
	}
	err := errors.Join(checkUTF8(*spec), spec.Validate())
	if err == nil {
		err = node.CheckPolicy(spec.Policy)
	}
	if err != nil {
		return usagef("%s: %w", c.Command.Name, err)
	}
	return nil
}

// baseSpec returns the spec before flags. A single argument may name a script, unless it follows "--".
func (r specReader) baseSpec(c *cli.Context) (job.Spec, error) {
	spec := job.DefaultSpec()
	args := c.Args().Slice()
	command := c.Args().First() == "--"
	if command {
		args = args[1:]
	}
	if c.IsSet("file") {
		if len(args) > 0 {
			return spec, usagef("%s: give a job file or a command, not both", c.Command.Name)
		}
		return r.readJobFile(c.Context, c.String("file"))
	}
	if len(args) == 1 && !command {
		text, err := r.scriptText(c.Context, args[0])
		if err != nil {
			return spec, err
		}
		if text != "" {
			spec.Script, spec.Name = text, defaultName(args[0])
			err = r.directives(args[0], text, &spec)
			return spec, err
		}
	}
	if len(args) > 0 {
		spec.Command, spec.Name = args, defaultName(args[0])
	}
	if len(args) == 0 && c.IsSet("image") {
		spec.Name = defaultName(c.String("image"))
	}
	return spec, nil
}

func (r specReader) readJobFile(ctx context.Context, path string) (job.Spec, error) {
	name, text, err := path, []byte(nil), error(nil)
	if path == "-" {
		name = "standard input"
		text, err = r.readInput(ctx)
	} else {
		text, err = readFile(path)
	}
	if err != nil {
		return job.Spec{}, fmt.Errorf("job file %s: %w", name, err)
	}
	spec, err := jobfile.Parse(name, text)
	if err != nil {
		return spec, usageError{err}
	}
	return spec, nil
}

// readFile reads a file up to one byte more than a job may have.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, usageError{cause(err)}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, job.MaxSpecBytes+1))
	if err != nil {
		return nil, usageError{cause(err)}
	}
	return text, nil
}

// cause returns the error without the name of the file, for messages that name it already.
func cause(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// readInput is readFile for standard input. It returns when ctx ends, because a person may be typing.
func (r specReader) readInput(ctx context.Context) ([]byte, error) {
	type input struct {
		text []byte
		err  error
	}
	done := make(chan input, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(r.in, job.MaxSpecBytes+1))
		done <- input{text, err}
	}()
	select {
	case in := <-done:
		return in.text, in.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// defaultName names a job after its program or script.
func defaultName(path string) string {
	name := filepath.Base(path)
	if path == "-" || path == "" || utf8.RuneCountInString(name) > job.MaxName || printable(name) != name {
		return ""
	}
	return name
}

// checkUTF8 refuses text that is not UTF-8, because JSON would change it.
func checkUTF8(s job.Spec) error {
	texts := append([]string{s.Script, s.Workdir, s.Constraint}, s.Command...)
	for _, m := range []map[string]string{s.Env, s.Params} {
		for k, v := range m {
			texts = append(texts, k, v)
		}
	}
	for _, t := range texts {
		if !utf8.ValidString(t) {
			return fmt.Errorf("%.40q: not UTF-8 text", t)
		}
	}
	return nil
}

func number(v string, into *int) error {
	n, err := strconv.Atoi(v)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%.40q: out of range", v)
	case err != nil:
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
	if err := number(n, &s.Resources.GPUs); err != nil || (two && model == "") {
		return fmt.Errorf("%.40q: want N or MODEL:N", v)
	}
	return nil
}

// setImage refuses an empty name: it is most likely an unset shell variable.
func setImage(s *job.Spec, v string) error {
	if v == "" {
		return errors.New("the image's name is empty; leave the flag out to run a process")
	}
	s.Image = v
	return nil
}

func setShare(s *job.Spec, v string) error {
	x, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return fmt.Errorf("%.40q: want a number between 0 and 1", v)
	}
	s.Resources.GPUShare = x
	return nil
}

// setWorkdir resolves a relative directory against the current one, as sbatch does.
func setWorkdir(s *job.Spec, v string) (err error) {
	if s.Workdir = v; v != "" {
		s.Workdir, err = filepath.Abs(v)
	}
	return err
}

func list(v string) []string {
	var names []string
	for n := range strings.SplitSeq(v, ",") {
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
	text, err := readFile(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
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
