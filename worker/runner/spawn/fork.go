package spawn

// The fork: each process of a task, and of a command in a task, begins here.

import "syscall"

// forkExec starts the program of a launch and returns the pid of its process.
func (s *Spawner) forkExec(l *launch) (int, error) {
	path, argv := l.program()
	defer s.score.ofTasks()()
	return syscall.ForkExec(path, argv, &l.attr)
}
