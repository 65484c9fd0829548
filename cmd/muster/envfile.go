package main

// The flag --env-file: a file with variables of the task.

import (
	"fmt"
	"maps"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/job/jobfile"
)

// setEnvFile adds the variables of a file. An error names the file, the line and the word.
func setEnvFile(s *job.Spec, path string) error {
	text, err := readFile(path)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case len(text) > job.MaxSpecBytes:
		return fmt.Errorf("%s: %w; let the tasks read the file themselves", path, jobfile.ErrTooLarge)
	}
	env := maps.Clone(s.Env)
	if env == nil {
		env = map[string]string{}
	}
	n := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, err := variableOf(line)
		if err != nil {
			return fmt.Errorf("%s:%d: %w", path, n, err)
		}
		if env[name] = value; len(env) > job.MaxEnv {
			return fmt.Errorf("%s:%d: more than %d variables", path, n, job.MaxEnv)
		}
	}
	s.Env = env
	return nil
}

// variableOf reads a line: K=V, or K alone for the value that the variable has here.
func variableOf(line string) (name, value string, err error) {
	name, value, given := strings.Cut(line, "=")
	if name == "" {
		return "", "", fmt.Errorf("%.40q: the name before = is missing", line)
	}
	if err := job.CheckVariable(name, value); err != nil {
		switch bare, exported := strings.CutPrefix(name, "export "); {
		case exported && job.CheckVariable(bare, value) == nil:
			return "", "", fmt.Errorf("%.40q: leave out the word export", name)
		case !given:
			return "", "", fmt.Errorf("%.40q: want K=V, or K alone to take it from here", line)
		}
		return "", "", err
	}
	if !given {
		if value, given = os.LookupEnv(name); !given {
			return "", "", fmt.Errorf("%.40q is not set here; want K=V, or K alone to take it from here", name)
		}
	}
	if !utf8.ValidString(value) {
		return "", "", fmt.Errorf("%.40q: its value is not UTF-8 text", name)
	}
	return name, value, nil
}
