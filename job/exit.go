package job

// The exit codes that muster gives, as shells, timeout(1) and `docker run` do.

const (
	// ExitTimeLimit says that the time limit ended the job.
	ExitTimeLimit = 124
	// ExitMuster says that muster or the host failed, not the program.
	ExitMuster = 125
	// ExitNotExecutable says that the program was found and could not be executed.
	ExitNotExecutable = 126
	// ExitNotFound says that the program was not found.
	ExitNotFound = 127
	// ExitSignal plus the number of a signal says that the signal ended the process.
	ExitSignal = 128
)
