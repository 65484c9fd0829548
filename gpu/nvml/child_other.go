//go:build !linux

package nvml

// On other systems the child notices the end of its input.

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
