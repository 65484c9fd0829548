package main

// How the values of the flags of a job are read.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/jobfile"
)

// readEachLine takes the lines of a file or of standard input.
func readEachLine(ctx context.Context, r specReader, s *job.Spec, path string) (err error) {
	var text []byte
	if path == "-" {
		text, err = r.readInput(ctx)
	} else {
		text, err = readFile(path)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case len(text) > job.MaxSpecBytes:
		return fmt.Errorf("%s: %w; let the tasks read the file themselves, with --array and MUSTER_ARRAY_INDEX", path, jobfile.ErrTooLarge)
	case len(text) == 0:
		return fmt.Errorf("%s: it is empty", path)
	}
	s.EachLine = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for i, line := range s.EachLine {
		s.EachLine[i] = strings.TrimSuffix(line, "\r")
	}
	return nil
}

// setArray takes the indices of an array. It refuses an empty text, because the job would then be a single task.
func setArray(s *job.Spec, v string) error {
	if v == "" {
		return errors.New("it names no index")
	}
	s.Array = v
	return nil
}

// list splits a list with commas, and leaves out empty entries.
func list(v string) []string { return splitList(v, ",") }

func splitList(v, comma string) []string {
	var names []string
	for n := range strings.SplitSeq(v, comma) {
		if n = strings.TrimSpace(n); n != "" {
			names = append(names, n)
		}
	}
	return names
}

// nodeList is like list, for nodes: a comma in brackets separates numbers, as in n[1-3,7].
func nodeList(v string) []string {
	open := false
	return splitList(strings.Map(func(r rune) rune {
		switch {
		case r == '[' || r == ']':
			open = r == '['
		case r == ',' && !open:
			return '\n'
		}
		return r
	}, v), "\n")
}

func addPrefer(s *job.Spec, v string) error {
	if s.Prefer != "" {
		v = s.Prefer + "," + v
	}
	s.Prefer = v
	return nil
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
	if len(*m) > job.MaxEnv { // each further one copies all before it, which is slow for very many
		return fmt.Errorf("more than %d variables", job.MaxEnv)
	}
	next := maps.Clone(*m)
	if next == nil {
		next = map[string]string{}
	}
	next[k] = v
	*m = next
	return nil
}

// setTime takes a time limit. An error says how a clock of Slurm, such as 1-12:00:00, is written here.
func setTime(s *job.Spec, v string) error {
	err := s.TimeLimit.UnmarshalText([]byte(v))
	var theirs job.Spec
	if err != nil && strings.ContainsAny(v, ":-") && slurmTime(&theirs, v) == nil {
		return fmt.Errorf("%w; in Slurm this is %s", err, theirs.TimeLimit)
	}
	if err != nil && strings.HasPrefix(v, "--") { // the next flag
		return fmt.Errorf("%w; %s", err, inDocker["time"])
	}
	return err
}

// setMemory takes a size of memory. An error about a bare number says what it means in Slurm, and how it is written here.
func setMemory(s *job.Spec, v string) error {
	err := s.Resources.Memory.UnmarshalText([]byte(v))
	var theirs job.Size
	if bare := strings.TrimSpace(v); err != nil && bare != "" && strings.Trim(bare, "0123456789") == "" && slurmMem(&theirs, bare) == nil {
		return fmt.Errorf("size %.40q: a number needs a unit: %.20sMiB, which it is in Slurm, or %.20sGiB; sizes are written such as 8GiB or 500MB", v, bare, bare)
	}
	return err
}
