package main

// The flags of submit, run and offers, and how they become a spec.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/internal/daemon"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/jobfile"
	"github.com/urfave/cli/v2"
)

// specFlag is a flag that sets a field of the job.
type specFlag struct {
	names []string                      // without dashes; the long name first
	usage string                        // with the value's name in back quotes; a switch has none
	many  bool                          // values add up; otherwise the last one counts
	set   func(*job.Spec, string) error // applies one value; nil: see late and read
	late  func(*lateOptions, *job.Spec, string) error
	read  func(context.Context, specReader, *job.Spec, string) error // applies a value that may name standard input
}

// apply applies a value that does not need standard input.
func (f specFlag) apply(s *job.Spec, late *lateOptions, v string) error {
	if f.late != nil {
		return f.late(late, s, v)
	}
	return f.set(s, v)
}

// toggle reports whether the flag takes no value.
func (f specFlag) toggle() bool { return !strings.Contains(f.usage, "`") }

// specFlags lists every documented flag of a job, in the order of help. They are applied in this order.
var specFlags = []specFlag{
	{names: []string{"name", "J"}, usage: "`NAME` of the job; default: the name of its program or script", set: func(s *job.Spec, v string) error { s.Name = v; return nil }},
	{names: []string{"cpus", "c"}, usage: "`N` CPUs for each task", set: func(s *job.Spec, v string) error { return number(v, &s.Resources.CPUs) }},
	{names: []string{"mem"}, usage: "memory for each task: a `SIZE` such as 8GiB", set: setMemory},
	{names: []string{"gpus", "G"}, usage: "GPUs for each task, or with --nodes for all tasks of a gang together: `[MODEL:]N` such as 2, H100:2 or A100|H100:2", late: (*lateOptions).setGPUs},
	{names: []string{"gpus-per-node"}, usage: "GPUs for each task of a gang: `[MODEL:]N`", late: (*lateOptions).setGPUsPerNode},
	{names: []string{"gpu-mem"}, usage: "minimum memory of each GPU: a `SIZE`", set: func(s *job.Spec, v string) error { return s.Resources.GPUMemory.UnmarshalText([]byte(v)) }},
	{names: []string{"gpu-share"}, usage: "a share of one GPU: `X` such as 0.5", set: setShare},
	{names: []string{"time", "t"}, usage: "time limit: `D` such as 90m", set: setTime},
	{names: []string{"priority"}, usage: "`N` from 0 to 100, default 50", set: func(s *job.Spec, v string) error { return number(v, &s.Priority) }},
	{names: []string{"retries"}, usage: "run a failed task again, up to `N` times", set: func(s *job.Spec, v string) error { return number(v, &s.Retries) }},
	{names: []string{"retry-on"}, usage: "retry only after these exit codes: `CODE,...` such as 75,137", set: setRetryOn},
	{names: []string{"max-failures"}, usage: "cancel the job, and what runs of it, once `N` tasks have failed, with their retries", set: setMaxFailures},
	{names: []string{"checkpoint-exit-code"}, usage: "a task that exits with `N` has saved its state; it runs again, without a retry", set: setCheckpoint},
	{names: []string{"preemptible"}, usage: "tasks of a higher priority may end it; it then runs again, unless --no-requeue", set: func(s *job.Spec, _ string) error { s.Preemptible = true; return nil }},
	{names: []string{"requeue"}, usage: "run again after the node was lost, the default", set: func(s *job.Spec, _ string) error { s.Requeue = true; return nil }},
	{names: []string{"no-requeue"}, usage: "do not run again after the node was lost", set: func(s *job.Spec, _ string) error { s.Requeue = false; return nil }},
	{names: []string{"on-partition"}, usage: "if a node loses contact: `hold`, the default: its tasks go on; fence: they end when the lease is over, and run elsewhere", set: setPartition},
	{names: []string{"lease"}, usage: "with fence, which it implies: how long a task goes on without contact: `D` from 30s to 24h, default 5m", set: func(s *job.Spec, v string) error { return s.Lease.UnmarshalText([]byte(v)) }},
	{names: []string{"grace"}, usage: "time between TERM and KILL for all processes of the task: `D` such as 30s, default 10s; if it is preempted at most preempt-grace of its node", set: func(s *job.Spec, v string) error { return s.Grace.UnmarshalText([]byte(v)) }},
	{names: []string{"signal"}, usage: "signal before the time limit: `[SIG@]D` such as USR1@120s", set: func(s *job.Spec, v string) error { s.Signal = v; return nil }},
	{names: []string{"constraint", "C"}, usage: "what the node must have: `EXPR` such as 'rack=r1&gpu.memory>=40GB'", set: func(s *job.Spec, v string) error { s.Constraint = v; return nil }},
	{names: []string{"prefer"}, usage: "what the node should have: `EXPR[:WEIGHT],...` such as 'rack=r1:2,nvlink'", many: true, set: addPrefer},
	{names: []string{"trusted-labels"}, usage: "labels in --constraint and --prefer are only those that an inviter has signed for the node", set: func(s *job.Spec, _ string) error { s.TrustedLabels = true; return nil }},
	{names: []string{"nodelist", "w"}, usage: "only these nodes: `NODE,...` such as n1,gpu*,n[4-7]", set: setNodeList},
	{names: []string{"exclude", "x"}, usage: "not these nodes: `NODE,...`", set: func(s *job.Spec, v string) error { s.Exclude = nodeList(v); return nil }},
	{names: []string{"share-output"}, usage: "let all users read the output of its tasks", set: func(s *job.Spec, _ string) error { s.ShareOutput = true; return nil }},
	{names: []string{"exclusive"}, usage: "each task gets a whole node, with all its CPUs and GPUs", set: func(s *job.Spec, _ string) error { s.Exclusive = true; return nil }},
	{names: []string{"begin"}, usage: "start at `T` or later, such as 16:00, tomorrow, now+1h or 2026-12-01T08:00", set: setBegin},
	{names: []string{"project"}, usage: "count the use for project `P` too; see muster users", set: func(s *job.Spec, v string) error { s.Project = v; return nil }},
	{names: []string{"policy"}, usage: "placement policy `NAME`: " + strings.Join(daemon.Policies(), ", "), set: func(s *job.Spec, v string) error { s.Policy = v; return nil }},
	{names: []string{"env-file"}, usage: "`FILE` with variables of the task, one K=V a line", many: true, set: setEnvFile},
	{names: []string{"env"}, usage: "variable of the task: `K=V`, or K alone to take it from here", many: true, set: setEnv},
	{names: []string{"workdir", "D"}, usage: "working directory `DIR` on the node, or in the image; default: a scratch directory, or that of the image", set: setWorkdir},
	{names: []string{"output", "o"}, usage: "also write the output to `FILE` on the node; %j job, %t task, %a index in the array, %x name, %n node, %u user", set: func(s *job.Spec, v string) error { s.Output = v; return nil }},
	{names: []string{"error", "e"}, usage: "also write stderr to `FILE` on the node; default: the file of --output", set: setError},
	{names: []string{"param"}, usage: "parameter `K=V`: {K} in the command, MUSTER_PARAM_K in the environment", many: true, set: setParam},
	{names: []string{"upload"}, usage: "upload `PATH`; the task starts in a copy of it; .musterignore excludes files", many: true, set: func(s *job.Spec, v string) error { s.Upload = append(s.Upload, v); return nil }},
	{names: []string{"download"}, usage: "keep files that match `GLOB` when the task ends; run, submit -W and submit -f also copy them here", many: true, set: func(s *job.Spec, v string) error { s.Download = append(s.Download, v); return nil }},
	{names: []string{"image"}, usage: "container image `REF` that the task runs in, such as registry/name:tag", set: setImage},
	{names: []string{"mount"}, usage: "mount a directory of the node: `SRC:DST[:ro]`", many: true, set: addMount},
	{names: []string{"array", "a"}, usage: "an array of tasks: `INDICES` such as 0-99%8, 1,3,5 or 0-30:10; %8: at most 8 at once", set: setArray},
	{names: []string{"each-line"}, usage: "one task for each line of `FILE`, which is its MUSTER_ENTRY; - for standard input", read: readEachLine},
	{names: []string{"hold"}, usage: "accept the job, but start it only after muster release", set: func(s *job.Spec, _ string) error { s.Hold = true; return nil }},
	{names: []string{"dependency", "d"}, usage: "start after other jobs: `LIST` such as afterok:ID,after:ID+10; , all, ? any of them", set: setDependency},
	{names: []string{"kill-on-invalid-dep"}, usage: "cancel the job if a dependency can never be met", set: func(s *job.Spec, _ string) error { s.KillOnInvalidDep = true; return nil }},
	{names: []string{"nodes", "N"}, usage: "a gang: `N` tasks on as many nodes, which start together; if one fails, all end", late: (*lateOptions).setNodes},
	{names: []string{"ntasks-per-node"}, usage: "`N` processes that torchrun or MPI is to start on each node; default: one for each GPU, or one", set: setTasksPerNode},
	{names: []string{"slurm-output"}, usage: "also write the output to slurm-ID.out, or slurm-ID_INDEX.out, in the directory of the submit, on nodes that have it", late: func(l *lateOptions, _ *job.Spec, _ string) error { l.slurm.usual = true; return nil }},
	{names: []string{"no-slurm-env"}, usage: "no variables SLURM_... for a script with #SBATCH lines", late: func(l *lateOptions, _ *job.Spec, _ string) error { l.slurm.noEnv = true; return nil }},
	{names: []string{"kill-on-bad-exit"}, usage: "`no`: if a task of a gang fails, the others go on; default: yes, they end", set: setKillOnBadExit},
}

// jobFlags returns specFlags as flags of the library.
func jobFlags() []cli.Flag {
	flags := []cli.Flag{&cli.StringFlag{Name: "file", Aliases: []string{"F"}, Usage: "job `FILE`, YAML or JSON; - for standard input"}}
	for _, f := range specFlags {
		switch name, short := f.names[0], f.names[1:]; {
		case f.toggle():
			flags = append(flags, &cli.BoolFlag{Name: name, Aliases: short, Usage: f.usage, DisableDefaultText: true})
		case f.many:
			flags = append(flags, &cli.StringSliceFlag{Name: name, Aliases: short, Usage: f.usage})
		default:
			flags = append(flags, &cli.StringFlag{Name: name, Aliases: short, Usage: f.usage})
		}
	}
	return append(flags, uploadLimitFlag())
}

// applyFlags applies the flags of the command line to the spec.
func (r specReader) applyFlags(c *cli.Context, s *job.Spec, late *lateOptions) error {
	if c.IsSet("gpus") && c.IsSet("gpus-per-node") {
		return usagef("--gpus-per-node: give it or --gpus, not both")
	}
	for _, f := range specFlags {
		name := f.names[0]
		if !c.IsSet(name) {
			continue
		}
		values := []string{c.String(name)}
		switch {
		case f.toggle() && !c.Bool(name):
			continue // --hold=false
		case f.many:
			values = c.StringSlice(name)
		}
		for _, v := range values {
			set := f.apply
			if f.read != nil {
				set = func(s *job.Spec, _ *lateOptions, v string) error { return f.read(c.Context, r, s, v) }
			}
			if err := set(s, late, v); err != nil {
				return usagef("--%s: %w", name, err)
			}
		}
	}
	return nil
}

// specReader makes specs from command lines, and reads the scripts and job files that they name.
type specReader struct{ streams }

// specOf returns the spec of a command line with one job.
func (r specReader) specOf(c *cli.Context) (job.Spec, error) {
	f, err := r.jobsOf(c)
	switch {
	case err != nil:
		return job.Spec{}, err
	case len(f.Jobs) > 1:
		return job.Spec{}, usagef("%s: job file %s has %d jobs; only `muster submit` takes several", c.Command.Name, f.Name, len(f.Jobs))
	}
	return f.Jobs[0].Spec, nil
}

// jobsOf returns the jobs of a command line: first the job file or script, then the directives, then the flags. It
// writes warnings to r.err.
func (r specReader) jobsOf(c *cli.Context) (jobfile.File, error) {
	f, late, err := r.baseJobs(c)
	if err != nil {
		return f, err
	}
	for _, one := range []string{"name", "dependency", "follow"} {
		if len(f.Jobs) > 1 && c.IsSet(one) {
			return f, usagef("--%s: job file %s has %d jobs; say it in the file", one, f.Name, len(f.Jobs))
		}
	}
	for i := range f.Jobs {
		if err := r.finishSpec(c, &f.Jobs[i].Spec, late); err != nil {
			return f, err
		}
	}
	return f, nil
}

// baseJobs returns the jobs before the flags are applied.
func (r specReader) baseJobs(c *cli.Context) (f jobfile.File, late *lateOptions, err error) {
	if c.IsSet("file") {
		args := c.Args().Slice()
		if c.Args().First() == "--" {
			args = args[1:]
		}
		if len(args) > 0 {
			return f, nil, usagef("%s: give a job file or a command, not both", c.Command.Name)
		}
		f, err = r.readJobFile(c.Context, c.String("file"))
		return f, nil, err
	}
	spec, late, err := r.baseSpec(c)
	return jobfile.File{Jobs: []jobfile.Job{{Spec: spec}}}, late, err
}

// finishSpec applies the flags to the spec, then the options that depend on others, and validates it. late is nil for a
// job file.
func (r specReader) finishSpec(c *cli.Context, spec *job.Spec, late *lateOptions) error {
	if late == nil {
		late = &lateOptions{}
	}
	if err := r.applyFlags(c, spec, late); err != nil {
		return err
	}
	if dir := c.String("workdir"); spec.Image != "" && dir != "" && !filepath.IsAbs(dir) {
		return usagef("%s: workdir %.80q: with an image it is a directory of the image: want an absolute path", c.Command.Name, dir)
	}
	warnings, err := late.finish(c.IsSet, spec)
	if err != nil {
		return usagef("%s: %w", c.Command.Name, err)
	}
	for _, w := range warnings {
		fmt.Fprintf(r.err, "muster: warning: %s\n", printable(w))
	}
	if _, err := uploadLimit(c); err != nil {
		return err
	}
	err = errors.Join(checkUTF8(*spec), spec.ValidateDraft(), spec.CheckPartition(), spec.CheckMemory())
	if err == nil {
		err = daemon.CheckPolicy(spec.Policy)
	}
	if err != nil {
		return usagef("%s: %w", c.Command.Name, err)
	}
	if isHereOnly(spec) {
		fmt.Fprintf(r.err, "muster: warning: %s is in this directory, but a task starts in a new scratch directory; use --upload . or, if nodes have this directory, -D .\n", printable(spec.Command[0]))
	}
	return nil
}

// isHereOnly reports whether the command is a file below this directory that the task will not find.
func isHereOnly(s *job.Spec) bool {
	if len(s.Command) == 0 || s.Image != "" || s.Workdir != "" || s.SubmitDir != "" || len(s.Upload) > 0 {
		return false
	}
	name := s.Command[0]
	if filepath.IsAbs(name) || !strings.Contains(name, "/") {
		return false
	}
	is, err := os.Stat(name)
	return err == nil && is.Mode().IsRegular()
}

// baseSpec returns the spec of a command or a script. The first argument may name a script, unless it follows "--".
func (r specReader) baseSpec(c *cli.Context) (spec job.Spec, late *lateOptions, err error) {
	spec = job.DefaultSpec()
	args := c.Args().Slice()
	command := c.Args().First() == "--"
	if command {
		args = args[1:]
	}
	if len(args) > 0 && !command {
		text, err := r.scriptText(c, args)
		if err != nil {
			return spec, nil, err
		}
		if text != "" {
			spec.Script, spec.Name = text, defaultName(args[0])
			if len(args) > 1 {
				spec.Args = args[1:]
			}
			late, err = r.directives(args[0], text, &spec)
			return spec, late, err
		}
	}
	if len(args) > 0 {
		spec.Command, spec.Name = args, defaultName(args[0])
	}
	if len(args) == 0 && c.IsSet("image") {
		spec.Name = defaultName(c.String("image"))
	}
	return spec, nil, nil
}

func (r specReader) readJobFile(ctx context.Context, path string) (jobfile.File, error) {
	name, text, err := path, []byte(nil), error(nil)
	if path == "-" {
		name = "standard input"
		text, err = r.readInput(ctx)
	} else {
		text, err = readFile(path)
	}
	if err != nil {
		return jobfile.File{}, fmt.Errorf("job file %s: %w", name, err)
	}
	f, err := jobfile.Parse(name, text)
	if err != nil {
		return f, usageError{err}
	}
	return f, nil
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
	texts := slices.Concat([]string{s.Script, s.Workdir, s.SubmitDir, s.Constraint, s.Prefer}, s.Command, s.Args)
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
		return fmt.Errorf("%.40q: want a whole number", v)
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
		if v == "all" {
			return fmt.Errorf("%.40q: want N or MODEL:N; %s", v, inDocker["gpus"])
		}
		return fmt.Errorf("%.40q: want N or MODEL:N", v)
	}
	return nil
}

func setRetryOn(s *job.Spec, v string) error {
	s.RetryOn = nil
	for word := range strings.SplitSeq(v, ",") {
		var code int
		if number(strings.TrimSpace(word), &code) != nil {
			return fmt.Errorf("%.40q: want exit codes such as 75,137", v)
		}
		s.RetryOn = append(s.RetryOn, code)
	}
	return nil
}

// setCheckpoint refuses 0, which is the code of a success.
func setCheckpoint(s *job.Spec, v string) error {
	err := number(v, &s.CheckpointExitCode)
	if err == nil && s.CheckpointExitCode == 0 {
		err = errors.New("0 is the exit code of a success")
	}
	return err
}

// setPartition refuses an empty word, which would mean the default.
func setPartition(s *job.Spec, v string) error {
	if v != job.PartitionHold && v != job.PartitionFence {
		return fmt.Errorf("%.40q: want hold or fence", v)
	}
	s.Partition = v
	return nil
}

// setMaxFailures refuses 0, which could mean that no failure is allowed, or that failures do not count.
func setMaxFailures(s *job.Spec, v string) error {
	err := number(v, &s.MaxFailures)
	if err == nil && s.MaxFailures <= 0 {
		err = fmt.Errorf("%d: want 1 or more; 1 ends the job at the first failure", s.MaxFailures)
	}
	return err
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
