package main

// Verbs and flags of Slurm, Docker and HyperQueue: an error names the muster equivalent.

import (
	"strings"

	"github.com/urfave/cli/v2"
)

var verbsElsewhere = map[string]string{
	"sbatch": "submit", "srun": "run", "salloc": "run", "squeue": "jobs", "sacct": "jobs --all", "scancel": "cancel",
	"sinfo": "nodes", "scontrol": "show", "sattach": "logs -f",
	"attach": "logs -f", "log": "logs", "rm": "cancel", "create": "submit", "start": "release", "images": "submit --image",
	"job": "jobs", "worker": "nodes", "server": "daemon", "gpu": "gpus", "status": "show", "delete": "cancel",
	"retry": "requeue", "rerun": "requeue", "restart": "requeue",
}

var flagsElsewhere = map[string]string{
	"job-name": "name", "cpus-per-task": "cpus", "mem-per-cpu": "mem", "gres": "gpus", "gpus-per-task": "gpus", "partition": "constraint",
	"p": "constraint", "chdir": "workdir", "nice": "priority", "license": "constraint", "export": "env",
	"volume": "mount", "v": "mount", "memory": "mem", "m": "mem", "tail": "lines", "restart": "retries",
	"time-limit": "time", "cwd": "workdir", "stdout": "output", "stderr": "error",
}

// noVerb returns the error for a word that is not a verb.
func noVerb(path []string) error {
	if ours, ok := verbsElsewhere[path[0]]; ok {
		return usagef("no such verb: %q; use `muster %s`", path[0], ours)
	}
	return usagef("no such verb: %.60q; `muster --help` lists them", strings.Join(path, " "))
}

// noFlag returns the error for a word that is not a flag of the verb at path.
func noFlag(path string, flags []cli.Flag, word string) error {
	word, _, _ = strings.Cut(word, "=")
	hint := ""
	if ours, ok := flagsElsewhere[nameOf(word)]; ok {
		if _, has := known(flags, ours); has {
			hint = "use " + dashed(ours) + "; "
		}
	} else if near := nearFlag(flags, nameOf(word)); near != "" {
		hint = "use " + dashed(near) + "; "
	}
	return usagef("no such flag: %.60s; %s`%s --help` lists them", printable(word), hint, path)
}

// nearFlag returns the flag whose name differs from the word only in a few letters at its end, such as a plural.
func nearFlag(flags []cli.Flag, word string) string {
	const few = 2
	near := strings.TrimLeft(cli.SuggestFlag(flags, word, false), "-")
	if len(word) > few && len(near) > few && (strings.HasPrefix(word, near) && len(word)-len(near) <= few || strings.HasPrefix(near, word) && len(near)-len(word) <= few) {
		return near
	}
	return ""
}
