//go:build !linux

package nvml

// Elsewhere the child sees that its input ended.

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
