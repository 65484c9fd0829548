package loop_test

// The host, the scheduler and the messages of the tests.

import (
	"errors"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
)

const amy = job.Peer("amy") // a scheduler

// group is the group of the tests, and proof that amy has founded it.
var proof, group = job.FoundFrom(amy, job.Founding{})

var (
	errDisk = errors.New("no space left on device")
	cpu     = job.Resources{CPUs: 1}
)

func attempt(number uint64, n int) job.Attempt {
	return job.Attempt{Job: job.NewID(group, number), N: n}
}

func epoch(term uint64) contract.Epoch { return contract.Epoch{Generation: 1, Term: term} }

// config describes a host with some GPUs.
func config(gpus int) worker.Config {
	cfg := worker.DefaultConfig()
	cfg.Profile = contract.Profile{Peer: "me", Name: "me", Store: "store-1", CPUs: 8, Memory: 64 << 30, Worker: true}
	for i := range gpus {
		cfg.Profile.GPUs = append(cfg.Profile.GPUs, gpu.Device{UUID: "GPU-" + string(rune('a'+i)), Index: i, Class: "h100-80gb", Memory: 80e9, Simulated: true})
	}
	cfg.Boot, cfg.Seed = "boot-1", 1
	return cfg
}

func answerTo(r contract.Renew, term uint64, keep bool) contract.Renewed {
	m := contract.Renewed{Group: r.Group, Epoch: epoch(term), Clock: r.Clock, Session: r.Session}
	for _, a := range r.Live {
		m.Verdicts = append(m.Verdicts, contract.Verdict{Attempt: a, Keep: keep})
	}
	return m
}

func gpus(n int) job.Resources { return job.Resources{CPUs: 1, GPUs: n} }

func spec(need job.Resources) job.Spec {
	s := job.DefaultSpec()
	s.Command = []string{"true"}
	s.Resources = need
	return s
}

// file returns the job file of a spec that can be encoded.
func file(s job.Spec) *job.File {
	f, err := s.TaskFile()
	if err != nil {
		panic(err)
	}
	return f
}

func offer(id uint64, a job.Attempt, need job.Resources) contract.Offer {
	return contract.Offer{ID: id, Attempt: a, Group: group, Epoch: epoch(1), Need: need, Priority: 50, User: "ada"}
}

func start(id uint64, a job.Attempt, s contract.Session, need job.Resources) contract.Start {
	return contract.Start{Offer: id, Attempt: a, Group: group, Epoch: epoch(1), Session: s, User: "ada", File: file(spec(need))}
}

// exited is the event of a task that has succeeded.
func exited(a job.Attempt) driver.Event {
	return driver.Event{Attempt: a, Kind: driver.Exited, Exit: job.Exit{State: job.Succeeded}}
}
