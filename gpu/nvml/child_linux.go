package nvml

// On Linux the kernel ends the child when its parent is gone, even one that
// hangs in a call and does not see that its input ended.

import "syscall"

func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
