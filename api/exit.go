package api

// The exit codes of `run` and `wait`, from a job's document.

import "github.com/musterhq/muster/job"

// Exit returns the exit code for the end of the job: the code of its process; 128+N if signal N ended it; 124 for the
// time limit; 125 if no process ran to its own end. Of several tasks it is the highest. It returns false while the
// job has not ended.
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
