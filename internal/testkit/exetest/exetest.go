// Package exetest writes programs that tests execute.
package exetest

import (
	"os"
	"syscall"
)

// Write writes a program. No process is started meanwhile: it would keep the file open for writing until it executes its own
// program, and the kernel executes no file that is open for writing ("text file busy").
func Write(path string, text []byte, perm os.FileMode) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, text, perm)
}
