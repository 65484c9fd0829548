package main

// The verb alloc: a job that keeps its nodes while a shell runs here; and run --in, which runs steps in it.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// holder is the command of a job that only keeps its nodes. It ends when its input does.
const holder = "cat"

// shellVariables are the variables of the job's tasks that a shell of muster alloc gets too. The others are those of
// one task.
var shellVariables = []string{"MUSTER_JOB_ID", "MUSTER_JOB_NAME", "MUSTER_NUM_NODES", "MUSTER_NODE_IPS", "MUSTER_GPUS_PER_NODE"}

func (v submitVerbs) allocCommand() *cli.Command {
	return &cli.Command{
		Name: "alloc", Usage: "hold the resources of a job, and open a shell here to use them", ArgsUsage: "[--] [COMMAND...]", Args: true,
		Description: "Opens a shell on this host, or runs COMMAND here, once the job runs. `muster run --in $MUSTER_JOB_ID -- COMMAND` runs a step on each node of the job, as the job's user, within its limits and with its GPUs. The job ends with the shell.",
		Flags:       clientFlags(jobFlags()...),
		Action:      v.alloc,
	}
}

func (v submitVerbs) alloc(c *cli.Context) error {
	spec := job.DefaultSpec()
	spec.Command, spec.Name = []string{holder}, "alloc"
	if c.IsSet("file") {
		return usagef("alloc: --file: not for a job that only holds its place; use flags")
	}
	spec.Stdin, spec.Requeue = true, false
	if err := v.specs.finishSpec(c, &spec, nil); err != nil {
		return err
	}
	command := c.Args().Slice()
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		command = []string{userShell()}
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	if err := resolveParents(c.Context, client, &spec); err != nil {
		return ours(err)
	}
	if err := v.sendFiles(c, client, &spec); err != nil {
		return ours(err)
	}
	j, err := client.Submit(c.Context, spec, "")
	if err != nil {
		return ours(refused(err))
	}
	v.warnOf(j)
	a := &allocation{streams: v.streams, client: client, job: j}
	for name, flag := range map[string]string{"MUSTER_SOCKET": "socket", "MUSTER_ADDR": "addr", "MUSTER_API_TOKEN_FILE": "api-token"} {
		if c.IsSet(flag) {
			a.daemon = append(a.daemon, name+"="+c.String(flag))
		}
	}
	return a.use(c.Context, command)
}

func userShell() string {
	if s := os.Getenv("SHELL"); s != "" {
		return s
	}
	return "/bin/sh"
}

// allocation is a job that keeps its nodes as long as its tasks have input.
type allocation struct {
	streams

	client *api.Client
	job    api.Job
	daemon []string // variables that name the daemon
}

// use runs a command on this host while the job runs, ends the job, and exits with the code of the command.
func (a *allocation) use(ctx context.Context, command []string) error {
	ctx, stop := untilCutOff(ctx)
	defer stop()
	f := follower{a.streams, a.client}
	feeding, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	held, err := a.hold(ctx, feeding)
	if err != nil {
		return f.cutOff(ctx, a.job, err)
	}
	env, err := a.environment(ctx)
	if err != nil {
		return f.cutOff(ctx, a.job, err)
	}
	fmt.Fprintf(a.err, "muster: job %s holds %s; it ends with this shell\n", a.job.ID, a.nodes())
	go a.tellEnd(feeding)
	code, err := a.local(command, env)
	held()
	over()
	waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
	defer cancel()
	if _, lost := a.client.Wait(waiting, []job.ID{a.job.ID}, nil); lost != nil {
		fmt.Fprintf(a.err, "muster: job %s: its end is not known yet: %s\n", a.job.ID, printable(lost.Error()))
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return exitError{code: code}
	}
	return nil
}

// hold waits until every task of the job runs, and keeps their inputs open until release is called. It returns an error
// if the job ends before.
func (a *allocation) hold(ctx, feeding context.Context) (release func(), err error) {
	var ends []io.Closer
	var inputs sync.WaitGroup
	ready := make(chan struct{}, a.job.TaskCount)
	for t, err := range a.client.AllTasks(ctx, a.job.ID, api.TaskFilter{}) {
		if err != nil {
			return nil, err
		}
		r, w := io.Pipe()
		ends = append(ends, w)
		inputs.Go(func() {
			began := sync.OnceFunc(func() { ready <- struct{}{} })
			_, _ = a.client.SendInput(feeding, a.job.ID, t.Task, api.Input{From: r, Began: began}) // the end is reported elsewhere
			began()
		})
	}
	stop := follower{a.streams, a.client}.tellWait(ctx, a.job.ID)
	defer stop()
	for range ends {
		select {
		case <-ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if a.job, err = a.client.Job(ctx, a.job.ID); err != nil {
		return nil, err
	}
	if a.job.Ended() {
		return nil, fmt.Errorf("it is %s: %s", a.job.State, withDetail(a.job.Reason, a.job.ReasonDetail))
	}
	return func() {
		for _, e := range ends {
			_ = e.Close() // a pipe in memory
		}
		all := make(chan struct{})
		go func() { inputs.Wait(); close(all) }()
		select {
		case <-all:
		case <-time.After(cancelWait): // a node that is not reachable ends its task by itself, later
		}
	}, nil
}

// environment returns the variables of the job for the shell: those of its first task that are the same in all.
func (a *allocation) environment(ctx context.Context) ([]string, error) {
	var out, errs bytes.Buffer
	code, err := a.client.Exec(ctx, a.job.ID, firstTask(a.job), api.ExecRequest{Command: []string{"env", "-0"}}, api.ExecStreams{Out: &out, Err: &errs})
	if err == nil && code != 0 {
		err = fmt.Errorf("env: exit code %d: %.200s", code, errs.String())
	}
	if err != nil {
		return nil, fmt.Errorf("variables of job %s: %w", a.job.ID, err)
	}
	var env []string
	for word := range strings.SplitSeq(out.String(), "\x00") {
		name, _, _ := strings.Cut(word, "=")
		for _, known := range shellVariables {
			if name == known {
				env = append(env, word)
			}
		}
	}
	return env, nil
}

// nodes returns the names of the job's nodes.
func (a *allocation) nodes() string {
	var names []string
	for _, t := range a.job.Tasks {
		if !slices.Contains(names, t.Node) {
			names = append(names, t.Node)
		}
	}
	return printable(nodeNames(names))
}

// tellEnd prints when the job ends before its shell does.
func (a *allocation) tellEnd(ctx context.Context) {
	jobs, err := a.client.Wait(ctx, []job.ID{a.job.ID}, nil)
	if err == nil && ctx.Err() == nil && len(jobs) == 1 && jobs[0].State != job.Succeeded {
		fmt.Fprintf(a.err, "\nmuster: job %s has ended: %s (%s); the shell holds nothing any more\n", a.job.ID, jobs[0].State, printable(withDetail(jobs[0].Reason, jobs[0].ReasonDetail)))
	}
}

// local runs a command on this host with the streams of this program. Keys such as Ctrl-C reach only the command. If
// this program is told to end, the command gets SIGHUP.
func (a *allocation) local(command, env []string) (code int, err error) {
	keys, ends, done := make(chan os.Signal, 1), make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(keys, unix.SIGINT, unix.SIGQUIT) // ignores them; unlike signal.Ignore, the command does not inherit it
	signal.Notify(ends, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(keys)
	defer signal.Stop(ends)
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // it ends when its user ends it
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.in, a.out, a.err
	cmd.Env = slices.Concat(os.Environ(), a.daemon, env)
	if err = cmd.Start(); err == nil {
		go func() {
			for {
				select {
				case <-ends:
					_ = cmd.Process.Signal(unix.SIGHUP) // it may have ended
				case <-done:
					return
				}
			}
		}()
		err = cmd.Wait()
		close(done)
	}
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		if s, ok := exit.Sys().(unix.WaitStatus); ok && s.Signaled() {
			return job.ExitSignal + int(s.Signal()), nil
		}
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 0, exitError{job.ExitNotFound, fmt.Errorf("alloc: %w", err)}
	}
	return 0, nil
}

// step is run --in: it runs a command in each task of a job that runs, and exits with the highest code.
func (v submitVerbs) step(c *cli.Context) error {
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		if c.IsSet(name) && !slices.Contains([]string{"in", "it", "socket", "addr", "api-token"}, name) {
			return usagef("run: %s: not together with --in; the job has its resources already", dashed(name))
		}
	}
	command := c.Args().Slice()
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 || command[0] == "" {
		return usagef("run: --in: want COMMAND...; see `%s --help`", c.Command.HelpName)
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	jobs, sel, err := client.Resolve(c.Context, c.String("in"))
	if err != nil {
		return ours(asUsage(err))
	}
	if len(jobs) != 1 {
		return usagef("run: --in %s means %d jobs; name one", c.String("in"), len(jobs))
	}
	var tasks []int
	for t, err := range client.AllTasks(c.Context, jobs[0].ID, api.TaskFilter{Tasks: sel.Tasks}) {
		if err != nil {
			return ours(err)
		}
		tasks = append(tasks, t.Task)
	}
	s := steps{v.streams, client, jobs[0].ID, api.ExecRequest{Command: command, TTY: c.Bool("it")}}
	streams := api.ExecStreams{Out: v.out, Err: v.err}
	if file, ok := v.in.(*os.File); ok && (s.request.TTY || gives(int(file.Fd()))) { //nolint:gosec // a descriptor is small
		streams.In = v.in
	}
	if len(tasks) != 1 {
		return s.inAll(c.Context, tasks, streams.In)
	}
	return v.execIn(c.Context, client, s.job, tasks[0], s.request, streams)
}

// steps runs one command in several tasks of a job.
type steps struct {
	streams

	client  *api.Client
	job     job.ID
	request api.ExecRequest
}

// inAll runs the command in all tasks at once. Each line of output begins with the number of its task. Only the first
// task gets the input; if it is nil, no task gets any.
func (s steps) inAll(ctx context.Context, tasks []int, in io.Reader) error {
	if s.request.TTY {
		return usagef("run: -it: job %s has %d tasks; name one, such as --in %s.%d", s.job, len(tasks), s.job, tasks[0])
	}
	var mu sync.Mutex // of the outputs and of highest
	highest := 0
	var all sync.WaitGroup
	free := make(chan struct{}, maxCopied)
	for i, t := range tasks {
		free <- struct{}{}
		streams := api.ExecStreams{}
		if i == 0 {
			streams.In = in
		}
		all.Go(func() {
			defer func() { <-free }()
			out := &prefixWriter{mu: &mu, w: s.out, prefix: fmt.Sprintf("%d| ", t)}
			errs := &prefixWriter{mu: &mu, w: s.err, prefix: fmt.Sprintf("%d| ", t)}
			streams.Out, streams.Err = out, errs
			code, err := s.client.Exec(ctx, s.job, t, s.request, streams)
			err = errors.Join(err, out.flush(), errs.flush())
			mu.Lock()
			defer mu.Unlock()
			if refused := (&api.ExecError{}); errors.As(err, &refused) {
				code = refused.Code
			} else if err != nil {
				code = job.ExitMuster
			}
			if err != nil {
				say(s.err, fmt.Errorf("task %s.%d: %w", s.job, t, err))
			}
			highest = max(highest, code)
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if highest != 0 {
		return exitError{code: highest}
	}
	return nil
}
