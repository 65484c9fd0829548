package main

// Options of a job whose meaning depends on other options, also on flags of the command line. They are evaluated last.

import (
	"cmp"
	"fmt"

	"github.com/musterhq/muster/job"
)

// lateOptions holds such options of one job.
type lateOptions struct {
	gpus  gpuCounts
	slurm slurmLate
}

// finish evaluates the options. given reports whether the command line has a flag.
func (l *lateOptions) finish(given func(flag string) bool, s *job.Spec) (warnings []string, err error) {
	placed, err := l.slurm.place(given, s)
	if err == nil {
		err = l.gpus.share(s)
	}
	if err == nil {
		err = l.slurm.resources(given, &s.Resources, s.TasksPerNode)
	}
	if err != nil {
		return nil, err
	}
	if err := l.slurm.setting(s); err != nil {
		return nil, err
	}
	files, err := l.slurm.files(given, s)
	for _, w := range []string{placed, files} {
		if w != "" {
			warnings = append(warnings, w)
		}
	}
	return warnings, err
}

// gpuCounts holds how many GPUs a job asks for: all its nodes together, each node, or each process on a node. Zero
// means that the job does not use this way.
type gpuCounts struct{ whole, perNode, perProcess int }

// setGPUs and setGPUsPerNode override all earlier GPU options, of any kind.
func (l *lateOptions) setGPUs(s *job.Spec, v string) error {
	l.gpus, s.Resources.GPUModel = gpuCounts{}, ""
	return addGPUs(&l.gpus.whole, s, v)
}

func (l *lateOptions) setGPUsPerNode(s *job.Spec, v string) error {
	l.gpus, s.Resources.GPUModel = gpuCounts{}, ""
	return addGPUs(&l.gpus.perNode, s, v)
}

// addGPUs reads [MODEL:]N. Without a model, one that was said before stays.
func addGPUs(into *int, s *job.Spec, v string) error {
	before := s.Resources.GPUModel
	if err := setGPUs(s, v); err != nil {
		return err
	}
	*into = s.Resources.GPUs
	s.Resources.GPUModel = cmp.Or(s.Resources.GPUModel, before)
	return nil
}

// share sets the GPUs of each node. If the job asks in several ways, all must result in the same number.
func (g gpuCounts) share(s *job.Spec) error {
	nodes, processes := max(1, s.Nodes), max(1, s.TasksPerNode)
	if g.perProcess < 0 || g.perProcess > job.MaxGPUs || processes > job.MaxCPUs {
		return fmt.Errorf("--gpus-per-task %d, %d tasks on each node: out of range", g.perProcess, processes)
	}
	if g.whole%nodes != 0 {
		return fmt.Errorf("--gpus %d is for the whole job and must be a multiple of --nodes %d; --gpus-per-node is for each node", g.whole, nodes)
	}
	each := 0
	for _, n := range []int{g.whole / nodes, g.perNode, g.perProcess * processes} {
		if n != 0 && each != 0 && n != each {
			return fmt.Errorf("the options ask for %d and for %d GPUs on each node; with --gpus for the whole job say --nodes too", each, n)
		}
		if n != 0 {
			each = n
		}
	}
	if each != 0 {
		s.Resources.GPUs = each
	}
	return nil
}

// setKillOnBadExit takes yes and no, and as srun does 1 and 0. Without a value it means yes.
func setKillOnBadExit(s *job.Spec, v string) error {
	switch v {
	case "", "yes", "1":
		s.KeepOnBadExit = false
	case "no", "0":
		s.KeepOnBadExit = true
	default:
		return fmt.Errorf("%.20q: want yes or no", v)
	}
	return nil
}

// setNodes refuses 0, which in a job file means not set.
func (l *lateOptions) setNodes(s *job.Spec, v string) error {
	l.slurm.gang = true
	err := number(v, &s.Nodes)
	if err == nil && s.Nodes < 1 {
		err = fmt.Errorf("%.20q: want a number of nodes above 0", v)
	}
	return err
}

// setTasksPerNode refuses 0, as setNodes does.
func setTasksPerNode(s *job.Spec, v string) error {
	err := number(v, &s.TasksPerNode)
	if err == nil && s.TasksPerNode < 1 {
		err = fmt.Errorf("%.20q: want a number of processes above 0", v)
	}
	return err
}
