package main

// Verbs and flags of Slurm, Docker and HyperQueue: an error says what to write instead.

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/job"
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

// flagsElsewhere maps flags of other tools to ours, for verbs that have ours.
var flagsElsewhere = map[string]string{
	"job-name": "name", "cpus-per-task": "cpus", "mem-per-cpu": "mem", "mem-per-gpu": "mem", "gres": "gpus", "gpus-per-task": "gpus", "partition": "constraint",
	"p": "constraint", "chdir": "workdir", "nice": "priority", "qos": "priority", "q": "priority", "license": "constraint", "licenses": "constraint", "L": "constraint", "export": "env",
	"account": "project", "A": "project", "reservation": "nodelist", "nodefile": "nodelist", "export-file": "env-file", "container": "image", "test-only": "dry-run",
	"volume": "mount", "v": "mount", "memory": "mem", "m": "mem", "tail": "lines", "restart": "retries",
	"time-limit": "time", "cwd": "workdir", "stdout": "output", "stderr": "error",
	"long": "wide", "l": "wide", "iterate": "watch", "i": "watch", "starttime": "since", "states": "state", "users": "user", "noheader": "format", "parsable2": "format",
}

// flagHints says what to write instead of flags of Slurm that muster does not have, by verb.
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

// verbsAbsent has the verbs of Docker that muster has no counterpart for, and says what to do instead.
var verbsAbsent = map[string]string{
	"pull": "the Docker engine of a node pulls the image of a job when the job starts", "login": "nodes pull without credentials; pull private images on them beforehand",
	"build": "build and push the image with docker", "push": "build and push the image with docker",
	"stats": "`muster top` and `muster usage` show what tasks use", "port": "a container has a network of its own, and publishes no ports",
	"pause": "`muster hold` keeps a job from starting; one that runs goes on", "rename": "--name names a job when it is submitted",
}

// flagsAbsent has the flags of Docker that a verb lacks, by verb and flag, and says what to do instead.
var flagsAbsent = map[string]map[string]string{
	"run": {
		"rm": "containers are always removed when they end", "publish": noPorts, "P": noPorts, "publish-all": noPorts,
		"p":    "a partition of Slurm is --constraint; " + noPorts,
		"user": ownUser, "u": ownUser, "privileged": ownUser, "cap-add": ownUser,
		"entrypoint": "the command is passed to the image's entry point",
		"shm-size":   "/dev/shm is half of --mem, or of the node's memory", "ipc": "/dev/shm is half of --mem, or of the node's memory",
		"network": "a container has a network of its own, and in a gang that of the node", "net": "a container has a network of its own, and in a gang that of the node",
		"detach": toSubmit, "stop-timeout": "use --grace", "stop-signal": "a task is ended with TERM, then KILL; --signal sends another before the time limit", "runtime": "GPUs come with --gpus",
		"interactive": ownInput, "i": ownInput, "tty": "a terminal is `muster run -it`", "attach": "`muster run` shows the output; `muster logs -f` does later",
		"hostname": "the host name of a container is the name of its task", "domainname": "the host name of a container is the name of its task",
		"dns": ownNetwork, "add-host": ownNetwork, "ip": ownNetwork, "link": ownNetwork, "mac-address": ownNetwork, "network-alias": ownNetwork, "expose": noPorts,
		"security-opt": ownUser, "cap-drop": "a container has no capabilities", "userns": ownUser, "group-add": "a container has the groups of the user who submits",
		"device": "GPUs come with --gpus; a container gets no other devices", "init": "a container has an init process already, where the Docker engine has one",
		"tmpfs": "a task has a scratch directory of its own, MUSTER_SCRATCH", "read-only": "leave it out: what a task writes into its image is lost when it ends",
		"volumes-from": "a directory of the node is --mount", "memory-swap": "a container gets no swap", "cpu-shares": "use --cpus", "cpuset-cpus": "use --cpus",
		"pull": "an image is pulled where the node does not have it", "platform": "pull the image on the node, with `docker pull --platform`",
		"l": "to find a job again, use --name or --project", "log-driver": "`muster logs` shows the output; --output also writes it to a file",
		"cidfile": "`muster submit` prints the id of the job",
	},
	"exec": {
		"e": "write `muster exec ID -- env K=V COMMAND`", "env": "write `muster exec ID -- env K=V COMMAND`",
		"w": "write `muster exec ID -- sh -c 'cd DIR && COMMAND'`", "workdir": "write `muster exec ID -- sh -c 'cd DIR && COMMAND'`",
		"u": "a command runs as the task's user", "user": "a command runs as the task's user",
		"d": "run the verb itself in the background", "detach": "run the verb itself in the background",
	},
	"jobs": {
		"filter": "use --state, --name, --user or --since", "f": "use --state, --name, --user or --since",
		"no-trunc": "use --wide", "last": "use --all --limit",
	},
	"show": {"format": "use --json", "f": "use --json"},
	"logs": {"timestamps": noTimes, "t": noTimes, "since": noTimes, "until": noTimes},
	"cancel": {
		"t": "the time between TERM and KILL is --grace of the job", "time": "the time between TERM and KILL is --grace of the job",
		"s": "write `muster exec ID -- kill -USR1 1` for a container", "signal": "write `muster exec ID -- kill -USR1 1` for a container",
	},
}

const (
	ownInput   = "`muster run` passes its input on; a terminal is `muster run -it`"
	ownNetwork = "a container has a network of its own, which the Docker engine sets up"
	noPorts    = "no ports are published: a container has a network of its own"
	ownUser    = "a container runs as the user who submits, without privileges"
	toSubmit   = "use `muster submit`"
	noTimes    = "the times of lines are not kept; use --tail"
)

// absentFlag returns what to do in place of a flag of Docker that the verb lacks.
func absentFlag(verb, flag string) (string, bool) {
	for of, names := range otherNames {
		if slices.Contains(names, verb) {
			verb = of
		}
	}
	instead, ok := flagsAbsent[verb][flag]
	return instead, ok
}

// otherNames are the aliases of the verbs in flagsAbsent. submit counts as one of run, because it has the same flags.
var otherNames = map[string][]string{
	"run": {"submit"}, "jobs": {"ps", "ls", "list", "queue"}, "show": {"info", "describe", "inspect"}, "logs": {"tail"}, "cancel": {"kill", "stop"},
}

// inDocker has the flags of a job that have another meaning or other values in Docker, and says what to write instead.
var inDocker = map[string]string{
	"dependency": "Docker's -d is `muster submit` without -d",
	"error":      "Docker's -e K=V is --env K=V",
	"nodelist":   "Docker's -w DIR is -D DIR, or --workdir",
	"time":       "Docker's -t is `muster run -it`",
	"gpus":       "Docker's --gpus all is the number of GPUs, or --exclusive for all of a node",
	"mount":      "Docker's type=bind,source=SRC,target=DST is SRC:DST",
}

// noValue returns the error for a flag at the end of the line that needs a value.
func noValue(path string, flags []cli.Flag, word string) error {
	hint := ""
	for _, f := range flags {
		if names := f.Names(); slices.Contains(names, nameOf(word)) && inDocker[names[0]] != "" && len(nameOf(word)) == 1 {
			hint = inDocker[names[0]] + "; "
		}
	}
	return usagef("flag %s needs a value; %ssee `%s --help`", word, hint, path)
}

// setDependency refuses a word that is no condition, such as the next flag or an image.
func setDependency(s *job.Spec, v string) error {
	if v != "" && !strings.HasPrefix(v, "after") && v != "singleton" {
		return fmt.Errorf("%.60q: want a condition such as afterok:ID; %s", v, inDocker["dependency"])
	}
	s.Dependency = []string{v}
	return nil
}

// setNodeList refuses a directory. No name of a node has a slash.
func setNodeList(s *job.Spec, v string) error {
	if strings.Contains(v, "/") {
		return fmt.Errorf("%.60q is no list of nodes; %s", v, inDocker["nodelist"])
	}
	s.NodeList = nodeList(v)
	return nil
}

var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)

// setError refuses a variable with its value. A file of such a name can be written as ./K=V.
func setError(s *job.Spec, v string) error {
	if variable.MatchString(v) {
		return fmt.Errorf("%.60q: want a file for stderr; %s", v, inDocker["error"])
	}
	s.Error = v
	return nil
}

// addMount refuses a mount as Docker's --mount has it.
func addMount(s *job.Spec, v string) error {
	if source, _, _ := strings.Cut(v, ":"); strings.Contains(source, "=") && !strings.HasPrefix(source, "/") {
		return fmt.Errorf("%.60q: want SRC:DST or SRC:DST:ro; %s", v, inDocker["mount"])
	}
	s.Mounts = append(s.Mounts, v)
	return nil
}
