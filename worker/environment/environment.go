// Package environment computes what a task finds on its host: its environment variables, its number, and the hosts of its gang.
package environment

// The environment variables of a task.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

// inherited are the only variables that a task inherits from the daemon.
var inherited = []string{"HOME", "LANG", "PATH", "USER"}

// Number returns the number of the task that people see, as job.Layout defines it. The record must be of an attempt that
// has not ended.
func Number(rec *contract.Record) int {
	if !rec.Element.Array {
		return rec.Attempt.Task
	}
	if rec.Gang != nil {
		return rec.Element.Index*len(rec.Gang.Members) + rec.Element.Rank
	}
	return rec.Element.Index
}

// Index returns the index of the task in its array. A task of no array has its number as index.
func Index(rec *contract.Record) int {
	if !rec.Element.Array {
		return rec.Attempt.Task
	}
	return rec.Element.Index
}

// Of returns the environment of an attempt as sorted NAME=VALUE words. inherit is the environment of the daemon, and ip the
// address of this host as its tasks see it. The driver adds further variables, among
// them those by which a program finds its GPUs. The user's variables override inherited ones. Muster's own variables
// override both, because fencing depends on them.
func Of(inherit map[string]string, ip string, rec contract.Record) []string {
	env := map[string]string{}
	spec := rec.File.Spec()
	for _, name := range inherited {
		if v, ok := inherit[name]; ok && spec.Image == "" { // an image has its own
			env[name] = v
		}
	}
	maps.Copy(env, spec.Env)
	for k, v := range spec.Params {
		env["MUSTER_PARAM_"+strings.ToUpper(k)] = v
	}
	nodes := addresses(ip, &rec)
	maps.Copy(env, map[string]string{
		"MUSTER_JOB_ID":        string(rec.Attempt.Job),
		"MUSTER_JOB_NAME":      spec.Name,
		"MUSTER_TASK":          strconv.Itoa(Number(&rec)),
		"MUSTER_ATTEMPT":       strconv.Itoa(rec.Attempt.N),
		"MUSTER_EPOCH":         rec.Epoch.String(),
		"MUSTER_NODE_RANK":     strconv.Itoa(rec.Element.Rank),
		"MUSTER_NUM_NODES":     strconv.Itoa(len(nodes)),
		"MUSTER_NODE_IPS":      strings.Join(nodes, "\n"),
		"MUSTER_GPUS_PER_NODE": strconv.Itoa(gpu.Count(rec.Need)),
	})
	if rec.Element.Array {
		env["MUSTER_ARRAY_INDEX"], env["MUSTER_ENTRY"] = strconv.Itoa(rec.Element.Index), rec.Element.Entry
	}
	if rec.Element.Preempted {
		env["MUSTER_PREEMPTED"] = "1"
	}
	if rec.Gang != nil {
		maps.Copy(env, meeting(&rec, nodes))
	}
	if spec.SlurmEnv {
		spec.Project = rec.Project // the job file of a task does not contain it
		for k, v := range job.SlurmEnv(spec, env) {
			if _, given := spec.Env[k]; !given {
				env[k] = v
			}
		}
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}

// addresses returns the IP address of each host on which a member of the gang runs, by rank. Outside a gang it is that of
// this host.
func addresses(ip string, rec *contract.Record) []string {
	if rec.Gang == nil {
		return []string{ip}
	}
	out := make([]string, len(rec.Gang.Members))
	for i, m := range rec.Gang.Members {
		out[i] = m.Address
	}
	return out
}

// meeting returns the variables with which the members of a gang find each other: those of PyTorch, and those in which
// torchrun looks for its flags. The latter would make torchrun wait for other nodes, so only gangs have them. An IPv6
// address has no brackets, because the port is in a variable of its own.
func meeting(rec *contract.Record, nodes []string) map[string]string {
	n, rank, port := strconv.Itoa(len(nodes)), strconv.Itoa(rec.Element.Rank), strconv.Itoa(rec.Gang.Port)
	processes := rec.File.Spec().TasksPerNode
	if processes == 0 {
		processes = max(1, gpu.Count(rec.Need)) // torchrun starts one for each GPU
	}
	return map[string]string{
		"MASTER_ADDR": nodes[0], "MASTER_PORT": port, "NNODES": n, "NODE_RANK": rank,
		"PET_NNODES": n, "PET_NODE_RANK": rank, "PET_NPROC_PER_NODE": strconv.Itoa(processes),
		"PET_MASTER_ADDR": nodes[0], "PET_MASTER_PORT": port,
	}
}

// Hostfile lists the hosts of a task for mpirun: one a line, with the number of processes that it may start there.
func Hostfile(ip string, rec *contract.Record) string {
	var out strings.Builder
	for _, addr := range addresses(ip, rec) {
		fmt.Fprintf(&out, "%s slots=%d\n", addr, max(1, rec.File.Spec().TasksPerNode))
	}
	return out.String()
}
