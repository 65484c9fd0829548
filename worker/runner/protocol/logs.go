package protocol

// The logs of runners: their size, and how long they are kept.

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxLog is the size in bytes at which a runner's log is rotated: it becomes the OlderLog and replaces the
	// previous one.
	MaxLog = 4 << 20
	// KeptLogs is how many logs of dead runners are kept, to find out why they died.
	KeptLogs = 3
)

// OlderLog is the path to which a full log is renamed.
func OlderLog(path string) string { return path + ".1" }

// ClearLogs removes the logs of dead runners except the newest few. A runner that is just starting has no lock file
// either, but its log is among the newest.
func (d Dir) ClearLogs() error {
	logs, err := left(d, "log")
	for _, n := range logs[:max(0, len(logs)-KeptLogs)] {
		err = errors.Join(err, gone(os.Remove(OlderLog(d.Log(n)))), gone(os.Remove(d.Log(n))))
	}
	return err
}

// LeftTmps lists the directories Tmps of dead runners.
func LeftTmps(d Dir) ([]string, error) {
	var all []string
	runners, err := left(d, "tmp")
	for _, n := range runners {
		all = append(all, Tmps(d, n))
	}
	return all, err
}

// left lists the runners that have a file with this extension but no lock file, oldest first.
func left(d Dir, ext string) ([]int, error) {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return nil, fmt.Errorf("runner: list %s: %w", d, err)
	}
	var all []int
	for _, e := range entries {
		name, isOne := strings.CutSuffix(e.Name(), "."+ext)
		name, isRunner := strings.CutPrefix(name, "runner-")
		n, err := strconv.Atoi(name)
		if err != nil || !isOne || !isRunner {
			continue
		}
		if _, err := os.Lstat(d.Lock(n)); errors.Is(err, os.ErrNotExist) {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}
