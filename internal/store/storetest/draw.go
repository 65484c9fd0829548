package storetest

// Generators of random values that are stored on disk.

import (
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
)

// Text draws output of processes. Not all of it is UTF-8.
var Text = rapid.Custom(func(t *rapid.T) string {
	if rapid.Bool().Draw(t, "binary") {
		return string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes"))
	}
	return rapid.String().Draw(t, "text")
})

// Time draws a time that can be stored, or the zero time.
var Time = rapid.Custom(func(t *rapid.T) time.Time {
	return storepb.Time(rapid.Int64Range(0, 1<<62).Draw(t, "ns"))
})

// ID draws a job ID.
var ID = rapid.Custom(func(t *rapid.T) job.ID {
	return job.NewID(job.Group(rapid.Uint64().Draw(t, "group")), rapid.Uint64().Draw(t, "drawn"))
})

// Attempt draws a valid attempt.
var Attempt = rapid.Custom(func(t *rapid.T) job.Attempt {
	return job.Attempt{
		Job: ID.Draw(t, "job"), Task: rapid.IntRange(0, job.MaxTasks-1).Draw(t, "task"),
		N: rapid.IntRange(1, job.MaxAttempts).Draw(t, "n"),
	}
})

// Epoch draws an epoch.
var Epoch = rapid.Custom(func(t *rapid.T) job.Epoch {
	return job.Epoch{Generation: rapid.Uint64().Draw(t, "generation"), Term: rapid.Uint64().Draw(t, "term")}
})

// Words draws a list of strings. It is nil, never an empty slice, if there are none.
var Words = rapid.Custom(func(t *rapid.T) []string {
	return append([]string(nil), rapid.SliceOfN(rapid.String(), 0, 3).Draw(t, "words")...)
})

// Resources draws the resources of a task.
var Resources = rapid.Custom(func(t *rapid.T) job.Resources {
	return job.Resources{
		CPUs: rapid.IntRange(0, job.MaxCPUs).Draw(t, "cpus"), Memory: job.Size(rapid.Int64Range(0, 1<<50).Draw(t, "memory")),
		GPUs: rapid.IntRange(0, job.MaxGPUs).Draw(t, "gpus"), GPUModel: rapid.String().Draw(t, "model"),
		GPUMemory: job.Size(rapid.Int64Range(0, 1<<50).Draw(t, "gpu_memory")), GPUShare: rapid.Float64Range(0, 1).Draw(t, "share"),
	}
})

// Spec draws a job file, which may not be valid.
var Spec = rapid.Custom(func(t *rapid.T) job.Spec {
	s := job.Spec{
		Name: rapid.String().Draw(t, "name"), Command: Words.Draw(t, "command"), Script: rapid.String().Draw(t, "script"),
		Resources: Resources.Draw(t, "resources"), Priority: rapid.IntRange(0, 100).Draw(t, "priority"),
		Requeue: rapid.Bool().Draw(t, "requeue"), TimeLimit: job.Duration(rapid.Int64Range(0, 1<<55).Draw(t, "limit")),
		NodeList: Words.Draw(t, "nodes"), Hold: rapid.Bool().Draw(t, "hold"), Retries: rapid.IntRange(0, 9).Draw(t, "retries"),
	}
	if rapid.Bool().Draw(t, "env") {
		s.Env = map[string]string{"A": rapid.String().Draw(t, "value")}
	}
	return s
})

// Exit draws the exit of an attempt.
var Exit = rapid.Custom(func(t *rapid.T) job.Exit {
	return job.Exit{
		State: rapid.SampledFrom([]job.State{job.Succeeded, job.Failed, job.Timeout}).Draw(t, "state"),
		Code:  rapid.IntRange(-1, 255).Draw(t, "code"), Signal: rapid.IntRange(0, 64).Draw(t, "signal"),
		Reason: Text.Draw(t, "reason"), Started: rapid.Bool().Draw(t, "started"),
		Began: Time.Draw(t, "began"), Ended: Time.Draw(t, "ended"), Tail: Text.Draw(t, "tail"), Isolation: Text.Draw(t, "isolation"), Usage: Text.Draw(t, "usage"),
	}
})
