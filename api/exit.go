package api

// The exit codes of `run` and `wait`, from the document of a job or of a task.

import "github.com/musterhq/muster/job"

// Exit returns the exit code for the end of the job: the code of its process; 128+N if signal N ended it; 124 for the
// time limit; 125 if no process ran to its own end. Of several tasks it is the highest. It returns false while the
// job has not ended.
func (j Job) Exit() (code int, ended bool) {
	if !j.State.Ended() {
		return 0, false
	}
	if j.ExitStatus != nil {
		return *j.ExitStatus, true
	}
	x := job.Task{State: j.State, Exit: &job.Exit{}} // its owner has an earlier version, which does not send ExitStatus
	if j.ExitCode != nil {
		x.Exit.Code = *j.ExitCode
	}
	return x.Status(), true
}

// Exit returns the same for a task.
func (t Task) Exit() (code int, ended bool) {
	if !t.State.Ended() {
		return 0, false
	}
	x := job.Task{State: t.State, Exit: &job.Exit{Signal: t.Signal}}
	if t.ExitCode != nil {
		x.Exit.Code = *t.ExitCode
	}
	return x.Status(), true
}
