package protocol

// The logs of runners: how large, and for how long they are kept.

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

const (
	// MaxLog bounds the log of a runner, in bytes: at that size it becomes the
	// OlderLog half, in place of the one before.
	MaxLog = 4 << 20
	// KeptLogs is how many dead runners' logs are kept, for whoever wants to know
	// why they died.
	KeptLogs = 3
)

// OlderLog is where the log goes that is full.
func OlderLog(path string) string { return path + ".1" }

// ClearLogs removes the logs of dead runners but the newest few. One that is
// just starting has no lock file either, but is among those.
func (d Dir) ClearLogs() error {
	entries, err := os.ReadDir(string(d))
	if err != nil {
		return fmt.Errorf("runner: list %s: %w", d, err)
	}
	var logs []int
	for _, e := range entries {
		name, isLog := strings.CutSuffix(e.Name(), ".log")
		name, isRunner := strings.CutPrefix(name, "runner-")
		n, err := strconv.Atoi(name)
		if err != nil || !isLog || !isRunner {
			continue
		}
		if _, err := os.Lstat(d.Lock(n)); errors.Is(err, os.ErrNotExist) {
			logs = append(logs, n)
		}
	}
	slices.Sort(logs)
	for _, n := range logs[:max(0, len(logs)-KeptLogs)] {
		err = errors.Join(err, gone(os.Remove(OlderLog(d.Log(n)))), gone(os.Remove(d.Log(n))))
	}
	return err
}
