// Command truthtask is a task that takes a given time. If it is told to end, it saves how much of that time has passed, and
// goes on from there when it runs again. It notes when and where each attempt began, and with which
// GPUs.
//
//	truthtask DIR TIME
package main

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// told is the exit code of a program that SIGTERM has ended.
const told = 143

func main() {
	begun := time.Now()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	ended, err := work(begun, term)
	if err != nil {
		fmt.Fprintln(os.Stderr, "work:", err)
		os.Exit(1)
	}
	if !ended {
		os.Exit(told)
	}
}

// work works until all is done, or until a signal comes. It returns whether all is done.
func work(begun time.Time, term <-chan os.Signal) (bool, error) {
	if len(os.Args) != 3 {
		return false, fmt.Errorf("%d arguments: want a directory and a time", len(os.Args)-1)
	}
	need, err := time.ParseDuration(os.Args[2])
	if err != nil {
		return false, err
	}
	at := filepath.Join(os.Args[1], os.Getenv("MUSTER_JOB_ID")+"."+os.Getenv("MUSTER_TASK"))
	note := strings.Join([]string{begun.Format(time.RFC3339Nano), os.Getenv("MUSTER_SCRATCH"), os.Getenv("CUDA_VISIBLE_DEVICES")}, "\n")
	if err := write(at+"."+os.Getenv("MUSTER_ATTEMPT"), note); err != nil {
		return false, err
	}
	var saved time.Duration
	if text, err := os.ReadFile(at + ".saved"); err == nil {
		if saved, err = time.ParseDuration(string(text)); err != nil {
			return false, err
		}
	}
	timer := time.NewTimer(time.Until(begun.Add(need - saved)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-term:
		return false, write(at+".saved", (saved + time.Since(begun)).String())
	}
}

// write writes a file at once: whoever kills the program leaves all of it, or nothing.
func write(path, text string) error {
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
