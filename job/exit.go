package job

// Exit codes of muster. They agree with those of shells, timeout(1) and `docker run`.

const (
	// ExitTimeLimit means that the time limit ended the job.
	ExitTimeLimit = 124
	// ExitMuster means that muster or the host failed, not the program.
	ExitMuster = 125
	// ExitNotExecutable means that the program was found but could not be executed.
	ExitNotExecutable = 126
	// ExitNotFound means that the program was not found.
	ExitNotFound = 127
	// ExitSignal plus a signal number means that the signal ended the process.
	ExitSignal = 128
)
