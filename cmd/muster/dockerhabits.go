package main

// Verbs and flags of Docker that muster lacks: what to do instead.

import "slices"

// verbsAbsent are verbs of Docker without an equal one: what to do instead.
var verbsAbsent = map[string]string{
	"pull": "the Docker engine of a node pulls the image of a job when the job starts", "login": "nodes pull without credentials; pull private images on them beforehand",
	"build": "build and push the image with docker", "push": "build and push the image with docker",
	"stats": "`muster top` and `muster usage` show what tasks use", "port": "a container has a network of its own, and publishes no ports",
	"pause": "`muster hold` keeps a job from starting; one that runs goes on", "rename": "--name names a job when it is submitted",
}

// flagsAbsent are flags of Docker that a verb lacks, by the verb and the flag: what to do instead.
var flagsAbsent = map[string]map[string]string{
	"run": {
		"rm": "containers are always removed when they end", "publish": noPorts, "P": noPorts, "publish-all": noPorts,
		"p":    "a partition of Slurm is --constraint; " + noPorts,
		"user": ownUser, "u": ownUser, "privileged": ownUser, "cap-add": ownUser,
		"entrypoint": "the command is passed to the image's entry point",
		"shm-size":   "/dev/shm is half of --mem, or of the node's memory", "ipc": "/dev/shm is half of --mem, or of the node's memory",
		"network": "a container has a network of its own, and in a gang that of the node", "net": "a container has a network of its own, and in a gang that of the node",
		"detach": toSubmit, "stop-timeout": "use --grace", "runtime": "GPUs come with --gpus",
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
	noPorts  = "no ports are published: a container has a network of its own"
	ownUser  = "a container runs as the user who submits, without privileges"
	toSubmit = "use `muster submit`"
	noTimes  = "the times of lines are not kept; use --tail"
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

// otherNames are other names of verbs, as far as flagsAbsent has them, and submit, which has the flags of run.
var otherNames = map[string][]string{
	"run": {"submit"}, "jobs": {"ps", "ls", "list", "queue"}, "show": {"info", "describe", "inspect"}, "logs": {"tail"}, "cancel": {"kill", "stop"},
}
