package job

// The exit codes that muster gives, as shells, timeout(1) and `docker run` do.

const (
	// ExitTimeLimit: the time limit ended the job.
	ExitTimeLimit = 124
	// ExitMuster: muster or the host failed, not the program.
	ExitMuster = 125
	// ExitNotExecutable: the program was found and could not be executed.
	ExitNotExecutable = 126
	// ExitNotFound: the program was not found.
	ExitNotFound = 127
	// ExitSignal and the number of a signal: the signal ended the process.
	ExitSignal = 128
)
