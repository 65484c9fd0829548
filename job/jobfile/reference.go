package jobfile

// The reference of the job file: each field, its bounds and an example. The manual, the man page and the description of
// the HTTP API are made from it.

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/job"
)

// Field describes one field of a job file.
type Field struct {
	Name    string // with a dot for a field of resources
	Flag    string // of submit, without dashes; empty: there is none
	Text    string // one or more sentences
	Example string // a value as YAML has it
	Bounds  string // what Least and Most do not say
	Least   float64
	Most    float64  // of a number, and of the elements of a list of numbers; 0: no bound
	Words   []string // the only values of a text
}

// size writes a bound.
func size(n int64) string { return job.Size(n).String() }

// Fields returns the fields of a job file, in the order in which a reader wants them.
func Fields() []Field {
	text, words := "at most "+strconv.Itoa(job.MaxName)+" printable characters", "at most "+strconv.Itoa(job.MaxArgs)+" words"
	variables := fmt.Sprintf("with env and params together at most %d; names of letters, digits and _", job.MaxEnv)
	return []Field{
		{Name: "name", Flag: "name", Text: "Name of the job, for people and as a selector.", Example: "finetune", Bounds: text},
		{Name: "command", Text: "Program and arguments, without a shell. With an image: arguments of its entry point.", Example: "[python, train.py, --lr, '{lr}']", Bounds: words},
		{Name: "script", Text: "A script instead of a command. Its `#!` line runs it, or else /bin/sh.", Example: `"#!/bin/sh\nhostname\n"`, Bounds: "with the whole job at most " + size(job.MaxSpecBytes)},
		{Name: "args", Text: "Arguments of the script.", Example: "[a, b]", Bounds: words},
		{Name: "params", Flag: "param", Text: "Parameters: {K} in the command becomes the value, and the task has it as MUSTER_PARAM_K.", Example: "{lr: '0.001'}", Bounds: variables},
		{Name: "env", Flag: "env", Text: "Variables of the task.", Example: "{NCCL_DEBUG: INFO}", Bounds: variables},
		{Name: "workdir", Flag: "workdir", Text: "Working directory on the node or in the image. Without it: a new scratch directory, or that of the image.", Example: "/data/me", Bounds: "an absolute path"},
		{Name: "submit_dir", Text: "Working directory on nodes that have it, if workdir is empty. Scripts of Slurm get the directory of the submit.", Example: "/home/me", Bounds: "an absolute path"},
		{Name: "resources", Text: "What each task gets.", Example: "{cpus: 8, memory: 64GiB, gpus: 4}"},
		{Name: "resources.cpus", Flag: "cpus", Text: "CPUs of each task.", Example: "8", Most: job.MaxCPUs},
		{Name: "resources.memory", Flag: "mem", Text: "Memory of each task. Without it the task has no limit, and none is set aside for it.", Example: "64GiB", Bounds: "a size with its unit, at least " + job.MinMemory.String()},
		{Name: "resources.gpus", Flag: "gpus", Text: "Whole GPUs of each task. In a job file this is the number for one task of a gang too.", Example: "4", Most: job.MaxGPUs},
		{Name: "resources.gpu_model", Flag: "gpus", Text: "Model of the GPUs; several are separated by " + job.ModelOr + ".", Example: "A100|H100", Bounds: text},
		{Name: "resources.gpu_memory", Flag: "gpu-mem", Text: "Least memory of each GPU.", Example: "40GB", Bounds: "a size with its unit"},
		{Name: "resources.gpu_share", Flag: "gpu-share", Text: "Share of one GPU, instead of whole ones.", Example: "0.5", Bounds: "at least 0, below 1", Most: 1},
		{Name: "nodes", Flag: "nodes", Text: "A gang: so many tasks, each on a node of its own, that start together.", Example: "4", Most: job.MaxNodes},
		{Name: "ntasks_per_node", Flag: "ntasks-per-node", Text: "Processes that torchrun or MPI is to start on each node. 0: one for each GPU, or one.", Example: "8", Most: job.MaxCPUs},
		{Name: "keep_on_bad_exit", Flag: "kill-on-bad-exit", Text: "If a task of a gang fails, the others go on.", Example: "true"},
		{Name: "array", Flag: "array", Text: "Indices of an array of tasks, and after % how many may be active at once.", Example: "0-99%8", Bounds: fmt.Sprintf("indices to %d, at most %d tasks", job.MaxIndex, job.MaxTasks)},
		{Name: "each_line", Flag: "each-line", Text: "One task for each element, which it has as MUSTER_ENTRY.", Example: "[a.wav, b.wav]", Bounds: "an element is at most 128KiB"},
		{Name: "time_limit", Flag: "time", Text: "How long each attempt may run. 0s: without a limit.", Example: "4h", Bounds: "0s to " + job.Duration(job.MaxTimeLimit).String()},
		{Name: "default_time", Text: "time_limit is the setting default-time of the daemon that accepted the job, or the longest that its user may have there (limits: max_time). That daemon sets it.", Example: "true"},
		{Name: "begin", Flag: "begin", Text: "Not before this time.", Example: "2026-12-01T08:00:00Z", Bounds: "RFC 3339; at most " + job.Duration(job.MaxBegin).String() + " from the submit"},
		{Name: "grace", Flag: "grace", Text: "Time between SIGTERM and SIGKILL, for all processes of the task. 0s: " + job.Duration(job.DefaultGrace).String() + ".", Example: "30s", Bounds: "0s to 1h"},
		{Name: "signal", Flag: "signal", Text: "A signal, and how long before the time limit it is sent.", Example: "USR1@120s", Bounds: "shorter than time_limit"},
		{Name: "priority", Flag: "priority", Text: "Jobs of a higher priority go first.", Example: "60", Most: job.MaxPriority},
		{Name: "preemptible", Flag: "preemptible", Text: "Tasks of a higher priority may end it. It then runs again, unless requeue is false.", Example: "true"},
		{Name: "retries", Flag: "retries", Text: "How often a task that has failed runs again.", Example: "2", Most: job.MaxRetries},
		{Name: "retry_on", Flag: "retry-on", Text: "Only after these exit codes a task that has failed runs again.", Example: "[75, 137]", Least: 1, Most: 255, Bounds: "needs retries"},
		{Name: "checkpoint_exit_code", Flag: "checkpoint-exit-code", Text: "A task that exits with this code has saved its state. It runs again, and this is no retry. 0: there is none.", Example: "85", Most: 255},
		{Name: "max_failures", Flag: "max-failures", Text: "Once so many tasks have failed, with their retries, the job is cancelled: tasks that wait, and those that run. 0: never.", Example: "10", Most: job.MaxTasks},
		{Name: "requeue", Flag: "no-requeue", Text: "Run again if the node was lost.", Example: "false"},
		{Name: "partition", Flag: "on-partition", Text: "What a task does if its node loses contact with the daemon that owns the job. hold, the default: it goes on, and runs elsewhere only after its node has said that it is gone or has restarted, or was declared dead. fence: when the lease is over it ends, and then it runs elsewhere.", Example: "fence", Words: []string{"", "hold", "fence"}},
		{Name: "lease", Flag: "lease", Text: "How long a task goes on without contact, with partition fence, which it implies. 0s: " + job.Duration(job.DefaultLease).String() + ".", Example: "10m", Bounds: job.Duration(job.MinLease).String() + " to " + job.Duration(job.MaxLease).String()},
		{Name: "dependency", Flag: "dependency", Text: "Start after other jobs, by id or by the name of another job of the same file. All of a list must be met.", Example: "['afterok:prepare']"},
		{Name: "kill_on_invalid_dep", Flag: "kill-on-invalid-dep", Text: "Cancel the job if a dependency can never be met.", Example: "true"},
		{Name: "hold", Flag: "hold", Text: "Accept the job, but start it only after `muster release`.", Example: "true"},
		{Name: "constraint", Flag: "constraint", Text: "What the node must have, in labels and facts.", Example: "rack=r1&gpu.memory>=40GB", Bounds: "at most 1024 bytes"},
		{Name: "prefer", Flag: "prefer", Text: "What the node should have, with weights.", Example: "'rack=r1:2,nvlink'", Bounds: fmt.Sprintf("at most %d expressions, weights 1 to 100", job.MaxPreferences)},
		{Name: "trusted_labels", Flag: "trusted-labels", Text: "In constraint and prefer only labels count that an inviter has signed.", Example: "true"},
		{Name: "nodelist", Flag: "nodelist", Text: "Only these nodes, by name, pattern or id.", Example: "[n1, 'gpu*', 'n[4-7]']"},
		{Name: "exclude", Flag: "exclude", Text: "Not these nodes.", Example: "[n3]"},
		{Name: "exclusive", Flag: "exclusive", Text: "Each task gets a whole node.", Example: "true"},
		{Name: "policy", Flag: "policy", Text: "Placement policy. Empty: that of the daemon.", Example: "pack", Bounds: text},
		{Name: "project", Flag: "project", Text: "Count the use for this project too.", Example: "vision", Bounds: fmt.Sprintf("at most %d letters, digits and ._-/:", job.MaxProject)},
		{Name: "image", Flag: "image", Text: "Container image in which the task runs.", Example: "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"},
		{Name: "mounts", Flag: "mount", Text: "Directories of the node for the container. The daemon's docker-mount says which are allowed.", Example: "['/data:/data:ro']"},
		{Name: "upload", Flag: "upload", Text: "Paths that the client uploads. The task starts in a copy of them.", Example: "[.]", Bounds: fmt.Sprintf("at most %d paths", job.MaxUploads)},
		{Name: "tree", Text: "Hash of files that are uploaded already. The client sets it in place of upload.", Example: strings.Repeat("0123456789abcdef", 4), Bounds: "64 hexadecimal digits"},
		{Name: "download", Flag: "download", Text: "Keep files that match when the task ends.", Example: "['ckpt/*']", Bounds: fmt.Sprintf("at most %d globs below the working directory", job.MaxDownloads)},
		{Name: "output", Flag: "output", Text: "Also write the output to this file of the node, with an image too; then a relative path is in the directory of the submit. %j job, %t task, %a index, %x name, %n node, %u user.", Example: "/data/me/%j.out"},
		{Name: "error", Flag: "error", Text: "Also write stderr to this file. Without it: to that of output.", Example: "/data/me/%j.err"},
		{Name: "share_output", Flag: "share-output", Text: "All users may read the output of its tasks.", Example: "true"},
		{Name: "stdin", Text: "The task gets its input from a client. `muster run` sets it.", Example: "true"},
		{Name: "tty", Text: "The task gets a terminal of ROWSxCOLS. `muster run -t` sets it.", Example: "24x80"},
		{Name: "slurm_env", Text: "The task also has variables SLURM_*. Scripts with #SBATCH lines set it.", Example: "true"},
	}
}

// Kind returns what the value of a field is, for people.
func (f Field) Kind() string {
	_, t := f.find()
	switch {
	case t == reflect.TypeFor[job.Size]():
		return "size"
	case t == reflect.TypeFor[job.Duration]():
		return "duration"
	case t == reflect.TypeFor[*time.Time]():
		return "time"
	}
	return map[reflect.Kind]string{
		reflect.Int: "whole number", reflect.Float64: "number", reflect.String: "text", reflect.Bool: "true or false",
		reflect.Slice: "list", reflect.Map: "mapping", reflect.Struct: "mapping",
	}[t.Kind()]
}

// Default returns the value of a field that a job file leaves out; empty if that is nothing.
func (f Field) Default() string {
	v, t := f.find()
	if t.Kind() == reflect.Struct || v.IsZero() && t.Kind() != reflect.Bool {
		return ""
	}
	text, err := json.Marshal(v.Interface())
	if err != nil {
		return err.Error()
	}
	return strings.Trim(string(text), `"`)
}

// Range returns the bounds of a field for people.
func (f Field) Range() string {
	var all []string
	if f.Most > 0 && !strings.HasPrefix(f.Bounds, "at least") {
		all = append(all, fmt.Sprintf("%.0f to %.0f", f.Least, f.Most))
	}
	var words []string
	for _, w := range f.Words {
		if w != "" {
			words = append(words, w)
		}
	}
	if len(words) > 0 {
		all = append(all, strings.Join(words, " or "))
	}
	if f.Bounds != "" {
		all = append(all, f.Bounds)
	}
	return strings.Join(all, "; ")
}

// find returns the value of the field in job.DefaultSpec, and its type.
func (f Field) find() (reflect.Value, reflect.Type) {
	v := reflect.ValueOf(job.DefaultSpec())
	for name := range strings.SplitSeq(f.Name, ".") {
		of, known := fieldNamed(v.Type(), name)
		if !known {
			return v, v.Type()
		}
		v = v.FieldByIndex(of.Index)
	}
	return v, v.Type()
}
