package worker

// The environment variables of a task.

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/lease"
)

// inherited are the only variables that a task inherits from the daemon.
var inherited = []string{"HOME", "LANG", "PATH", "USER"}

// number returns the number by which people call the task.
func number(rec *lease.Record) int {
	if rec.Element.Array {
		return rec.Element.Index
	}
	return rec.Attempt.Task
}

// Environment returns the environment of an attempt as sorted NAME=VALUE words, without the variables that the driver
// adds. The user's variables override inherited ones. Muster's own variables override both, because devices and fencing
// depend on them.
func Environment(cfg Config, rec lease.Record) []string {
	env := map[string]string{}
	spec := rec.File.Spec()
	for _, name := range inherited {
		if v, ok := cfg.Inherit[name]; ok && spec.Image == "" { // an image has its own
			env[name] = v
		}
	}
	maps.Copy(env, spec.Env)
	for k, v := range spec.Params {
		env["MUSTER_PARAM_"+strings.ToUpper(k)] = v
	}
	devices := strings.Join(rec.Devices, ",")
	maps.Copy(env, map[string]string{
		"MUSTER_JOB_ID":          string(rec.Attempt.Job),
		"MUSTER_JOB_NAME":        spec.Name,
		"MUSTER_TASK":            strconv.Itoa(number(&rec)),
		"MUSTER_ATTEMPT":         strconv.Itoa(rec.Attempt.N),
		"MUSTER_EPOCH":           rec.Epoch.String(),
		"MUSTER_NODE_RANK":       "0",
		"MUSTER_NUM_NODES":       "1",
		"MUSTER_NODE_IPS":        cfg.IP,
		"MUSTER_GPUS_PER_NODE":   strconv.Itoa(gpu.Count(rec.Need)),
		"CUDA_VISIBLE_DEVICES":   devices,
		"NVIDIA_VISIBLE_DEVICES": devices,
		"CUDA_DEVICE_ORDER":      "PCI_BUS_ID",
	})
	if rec.Element.Array {
		env["MUSTER_ARRAY_INDEX"], env["MUSTER_ENTRY"] = strconv.Itoa(rec.Element.Index), rec.Element.Entry
	}
	if rec.Element.Preempted {
		env["MUSTER_PREEMPTED"] = "1"
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return out
}
