package main

// Verbs and flags of Slurm, Docker and HyperQueue: an error says what to write instead.

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// verbsElsewhere maps verbs to ours, several separated by |.
var verbsElsewhere = map[string]string{
	"sbatch": "submit", "srun": "run", "salloc": "alloc", "squeue": "jobs", "sacct": "jobs --all|usage", "scancel": "cancel",
	"sinfo": "nodes", "scontrol": "show|node show|hold|release|requeue", "sattach": "logs -f",
	"seff": "show|usage", "sreport": "usage", "sstat": "show|top", "sprio": "why|users", "sshare": "users", "sacctmgr": "users", "sbcast": "submit --upload",
	"attach": "logs -f", "log": "logs", "rm": "cancel", "create": "submit", "start": "release", "images": "submit --image",
	"job": "jobs", "worker": "nodes", "server": "daemon", "gpu": "gpus", "status": "show", "delete": "cancel",
	"retry": "requeue", "rerun": "requeue", "restart": "requeue",
}

// flagsElsewhere maps flags to ours, for verbs that have those.
var flagsElsewhere = map[string]string{
	"job-name": "name", "cpus-per-task": "cpus", "mem-per-cpu": "mem", "mem-per-gpu": "mem", "gres": "gpus", "gpus-per-task": "gpus", "partition": "constraint",
	"p": "constraint", "chdir": "workdir", "nice": "priority", "qos": "priority", "q": "priority", "license": "constraint", "licenses": "constraint", "L": "constraint", "export": "env",
	"account": "project", "A": "project", "reservation": "nodelist", "nodefile": "nodelist", "export-file": "env-file", "container": "image", "test-only": "dry-run",
	"volume": "mount", "v": "mount", "memory": "mem", "m": "mem", "tail": "lines", "restart": "retries",
	"time-limit": "time", "cwd": "workdir", "stdout": "output", "stderr": "error",
	"long": "wide", "l": "wide", "iterate": "watch", "i": "watch", "starttime": "since", "states": "state", "users": "user", "noheader": "format", "parsable2": "format",
}

// flagHints says what to write instead of flags of Slurm that are no flag here, by the verb.
var flagHints = map[string]map[string]string{
	"submit": {
		"ntasks": noTasks, "n": noTasks, "wrap": "write muster submit -- sh -c 'COMMAND'", "parsable": "leave it out: submit prints only the id",
		"mail-type": noMail, "mail-user": noMail, "input": "write muster run -- COMMAND < FILE", "i": "write muster run -- COMMAND < FILE",
		"comment": "leave it out, or use --name or --project", "clusters": "use --addr, the address of a daemon there", "M": "use --addr, the address of a daemon there",
	},
	"run": {
		"ntasks": noTasks, "n": noTasks, "pty": "use -it", "jobid": "use --in", "overlap": "leave it out: steps of --in share the job's resources",
		"mail-type": noMail, "mail-user": noMail, "label": "leave it out: lines of several tasks begin with the task's number",
	},
	"alloc":  {"ntasks": noTasks, "n": noTasks, "mail-type": noMail, "mail-user": noMail},
	"jobs":   {"jobs": oneJobHint, "job": oneJobHint, "j": oneJobHint, "account": "use muster usage --project", "A": "use muster usage --project"},
	"cancel": {"name": "write muster cancel NAME", "n": "write muster cancel NAME", "user": ownJobs, "u": ownJobs, "me": ownJobs, "state": "write muster cancel $(muster jobs --me -t PD -q)", "t": "write muster cancel $(muster jobs --me -t PD -q)"},
}

const (
	noTasks    = "use --ntasks-per-node for processes on one node, --nodes for several nodes"
	noMail     = "leave it out: no mail is sent; muster wait ID ends with the job"
	oneJobHint = "write muster show ID"
	ownJobs    = "write muster cancel all, which means your own jobs"
)

// noVerb returns the error for a word that is not a verb.
func noVerb(path []string) error {
	if ours, ok := verbsElsewhere[path[0]]; ok {
		return usagef("no such verb: %q; use `muster %s`", path[0], strings.ReplaceAll(ours, "|", "` or `muster "))
	}
	if instead, ok := verbsAbsent[path[0]]; ok {
		return usagef("no such verb: %q; %s", path[0], instead)
	}
	return usagef("no such verb: %.60q; `muster --help` lists them", strings.Join(path, " "))
}

// noFlag returns the error for a word that is not a flag of the verb at path.
func noFlag(path string, flags []cli.Flag, word string) error {
	word, _, _ = strings.Cut(word, "=")
	hint := ""
	_, verb, _ := strings.Cut(path, " ")
	if text := flagHints[verb][nameOf(word)]; text != "" {
		hint = text + "; "
	} else if instead, ok := absentFlag(verb, nameOf(word)); ok {
		hint = instead + "; "
	} else if ours, ok := flagsElsewhere[nameOf(word)]; ok {
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
