package nvml

// On Linux the kernel kills the child when its parent is gone, even if the child hangs in a call and does not notice
// the end of its input.

import "syscall"

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
