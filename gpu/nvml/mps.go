package nvml

// MPS: whether NVIDIA's multi-process service runs on this host.

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	mpsPipes   = "/tmp/nvidia-mps" // unless its owner says otherwise
	mpsPIDFile = "nvidia-cuda-mps-control.pid"
)

// MPS is the directory of the pipes of the multi-process service's control
// daemon, or empty if none runs there: the one that CUDA_MPS_PIPE_DIRECTORY
// names to this process, else NVIDIA's default.
func MPS() string {
	dir := os.Getenv("CUDA_MPS_PIPE_DIRECTORY")
	if dir == "" {
		dir = mpsPipes
	}
	if !mpsRunsAt(dir) {
		return ""
	}
	return dir
}

// mpsServer says whether a process is a server of the multi-process service: it
// holds GPUs for its clients, and stays when they are gone.
func mpsServer(pid int) bool {
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return err == nil && strings.HasPrefix(string(name), "nvidia-cuda-mps")
}

// mpsRunsAt says whether a control daemon lives that has its pipes there: it
// leaves its process id, also when it is killed.
func mpsRunsAt(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, mpsPIDFile))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid <= 0 {
		return false
	}
	err = syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}
