package spawn

// The fork: each process of a task, and of a command in a task, begins here.

import "syscall"

// forkExec starts the program of a launch, with the OOM score that tasks have, and returns the pid of its process.
func (l *launch) forkExec(score *oomScore) (int, error) {
	path, argv := l.program()
	defer score.ofTasks()()
	return syscall.ForkExec(path, argv, &l.attr)
}
