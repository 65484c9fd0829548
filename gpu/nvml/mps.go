package nvml

// Detection of NVIDIA's multi-process service (MPS).

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const (
	mpsPipes   = "/tmp/nvidia-mps" // the default directory
	mpsPIDFile = "nvidia-cuda-mps-control.pid"
)

// mpsPipe returns the pipe directory of the control daemon of MPS, or "" if none runs there. The directory is that of the
// environment variable CUDA_MPS_PIPE_DIRECTORY, else NVIDIA's default.
func mpsPipe() string {
	dir := os.Getenv("CUDA_MPS_PIPE_DIRECTORY")
	if dir == "" {
		dir = mpsPipes
	}
	if !mpsRunsAt(dir) {
		return ""
	}
	return dir
}

// mpsServer reports whether a process is a server of MPS. A server holds GPUs for its clients, and stays when they
// are gone.
func mpsServer(pid int) bool {
	name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
	return err == nil && strings.HasPrefix(string(name), "nvidia-cuda-mps")
}

// mpsRunsAt reports whether a control daemon with its pipes in dir runs. The file with its process ID remains even if
// it was killed.
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
