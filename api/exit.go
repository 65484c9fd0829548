package api

// What `run` and `wait` exit with, read off a job's document.

import "github.com/musterhq/muster/job"

// Exit is the code for the end of the job: its own, 128+N when a signal ended
// it, 124 for the time limit, 125 where no process of it came to an end of its
// own; of several tasks the highest. It is false while the job has not ended.
func (j Job) Exit() (code int, ended bool) {
	if !j.State.Ended() {
		return 0, false
	}
	if len(j.Tasks) == 0 {
		return job.ExitMuster, true
	}
	for _, t := range j.Tasks {
		code = max(code, t.exit())
	}
	return code, true
}

func (t Task) exit() int {
	switch t.State {
	case job.Succeeded:
		return 0
	case job.Timeout:
		return job.ExitTimeLimit
	case job.Failed, job.OutOfMemory, job.Cancelled, job.Preempted, job.NodeFail:
		switch {
		case t.Signal > 0:
			return job.ExitSignal + t.Signal
		case t.ExitCode != nil && *t.ExitCode != 0:
			return *t.ExitCode
		}
		return job.ExitMuster
	case job.Pending, job.Held, job.Reserved, job.Starting, job.Running, job.Unreachable, job.Completing:
		return 0
	}
	return job.ExitMuster
}
