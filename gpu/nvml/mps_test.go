package nvml

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestMPSIsFoundByItsDirectory(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CUDA_MPS_PIPE_DIRECTORY", dir)
	says := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, mpsPIDFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := mpsPipe(); got != "" {
		t.Errorf("nothing there, and MPS runs at %q, want none", got)
	}
	says(fmt.Sprintf("%d\n", os.Getpid()))
	if got := mpsPipe(); got != dir {
		t.Errorf("MPS = %q, want %q", got, dir)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(gone.Process.Pid), "", "-1", "0", "many"} {
		says(text)
		if got := mpsPipe(); got != "" {
			t.Errorf("%q: MPS runs at %q, want none", text, got)
		}
	}
}

func TestMPSServerIsNotListed(t *testing.T) {
	const comm = "/proc/self/comm"
	was, err := os.ReadFile(comm)
	if err != nil {
		t.Skipf("no names of processes here: %v", err)
	}
	if mpsServer(os.Getpid()) {
		t.Errorf("%s counts as a server of MPS", was)
	}
	// The name of the main thread is that of the process.
	main := fmt.Sprintf("/proc/self/task/%d/comm", os.Getpid())
	if err := os.WriteFile(main, []byte("nvidia-cuda-mps-server"), 0); err != nil {
		t.Skipf("a process cannot be named here: %v", err)
	}
	defer os.WriteFile(main, was, 0)
	if !mpsServer(os.Getpid()) {
		t.Error("a server of MPS counts as a program")
	}
}
