package spawn

// Where the output of a container goes: to its log, and to files that its user named on this host.

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/worker/output"
	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/pump"
	"github.com/musterhq/muster/worker/userfile"
)

// containerOutput makes the outlet for a container's output, and the writers in b that lead to it.
func (s *Spawner) containerOutput(ctx context.Context, o *Order, b *Container) (*pump.Outlet, error) {
	all, err := s.containerCopies(ctx, o)
	if err != nil {
		return nil, err
	}
	out := s.Pump.Direct(output.NewWriter(s.dir.Task(o.Attempt), int64(o.Start.OutputLimit)), all)
	b.Out, b.Err, b.Cut = out.Stream(output.Stdout), out.Stream(output.Stderr), out.Cut
	return out, nil
}

// containerCopies opens the output files of a container as the task's user, whoever its processes run as. Relative paths
// are in the directory of the submit, if this host has it. It waits at most until ctx ends or s.answer has passed.
func (s *Spawner) containerCopies(ctx context.Context, o *Order) (map[output.Stream]*pump.Copy, error) {
	if o.Start.Stdout == "" && o.Start.Stderr == "" {
		return nil, nil
	}
	who, err := AccountOf(o.Start.User, s.allowRoot)
	if err != nil {
		return nil, err
	}
	return look(ctx, s, UserName(who), func() (all map[output.Stream]*pump.Copy, err error) {
		err = who.As(func(t userfile.Thread) (err error) {
			dir := noWorkdir
			if o.Start.SubmitDir != "" {
				dir, _ = openWorkdir(t, who, o.Start.SubmitDir) // without it, relative paths have no file
			}
			defer dir.close()
			all, err = openCopies(t, o, who, dir)
			return err
		})
		return all, err
	}, pump.CloseCopies,
		Refuse(CodeNotExecutable, "ended while its output files did not answer on this node"),
		RefuseHere("%s did not answer within %s on this node", outputFiles(o.Start), s.answer))
}

// outputFiles names the output files of a task.
func outputFiles(s *protocol.Start) string {
	if s.Stdout == s.Stderr || s.Stderr == "" {
		return "output file " + s.Stdout
	}
	return fmt.Sprintf("output files %s and %s", s.Stdout, s.Stderr)
}
