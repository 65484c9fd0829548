package main

// What the processes of a cluster use, each with the children that it reaped.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// usage is one process at one moment.
type usage struct {
	pid  int
	what string // daemon, runner or bench
	cpu  time.Duration
	rss  int
}

type usages []usage

// usage lists the cluster's processes and this one.
func (c *cluster) usage() (usages, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	var out usages
	for _, p := range all {
		line, err := p.CmdLine()
		if err != nil {
			continue // it has ended
		}
		what := ""
		switch {
		case p.PID == os.Getpid():
			what = "bench"
		case len(line) > 1 && strings.Contains(strings.Join(line, " "), c.dir):
			what = kindOf(line)
		}
		if what == "" {
			continue
		}
		s, err := p.Stat()
		if err != nil {
			continue
		}
		const tick = time.Second / 100 // of the kernel's accounts
		out = append(out, usage{p.PID, what, time.Duration(int(s.UTime+s.STime)+s.CUTime+s.CSTime) * tick, s.ResidentMemory()})
	}
	slices.SortFunc(out, func(a, b usage) int { return strings.Compare(a.what, b.what) })
	return out, nil
}

// kindOf knows a daemon and a runner by their command lines.
func kindOf(line []string) string {
	switch {
	case line[1] == "daemon", line[1] == "runner":
		return line[1]
	case strings.HasPrefix(filepath.Base(line[0]), "muster-runner"):
		return "runner"
	}
	return ""
}

func (u usages) of(pid int) time.Duration {
	for _, p := range u {
		if p.pid == pid {
			return p.cpu
		}
	}
	return 0
}

func (u usages) sum() (total time.Duration) {
	for _, p := range u {
		total += p.cpu
	}
	return total
}

// per is the share of each kind of process in n jobs.
func (u usages) per(n int) string {
	kinds := map[string]time.Duration{}
	for _, p := range u {
		kinds[p.what] += p.cpu
	}
	return fmt.Sprintf("daemons %.2f, runners and tasks %.2f, client %.2f", ms(kinds["daemon"])/float64(n), ms(kinds["runner"])/float64(n), ms(kinds["bench"])/float64(n))
}

// timed is how long f took, and what each process used meanwhile.
func (c *cluster) timed(f func() error) (time.Duration, usages, error) {
	before, err := c.usage()
	if err != nil {
		return 0, nil, err
	}
	start := time.Now()
	if err := f(); err != nil {
		return 0, nil, err
	}
	took := time.Since(start)
	after, err := c.usage()
	for i := range after {
		after[i].cpu -= before.of(after[i].pid)
	}
	return took, after, err
}
