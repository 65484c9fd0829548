package main

// What the processes of a cluster use. The CPU time of a process includes the children that it has reaped.

import (
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
	rss  int // bytes
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

// kindOf recognises a daemon and a runner by their command lines.
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

// only lists the processes of one kind.
func (u usages) only(what string) (out usages) {
	for _, p := range u {
		if p.what == what {
			out = append(out, p)
		}
	}
	return out
}

// cpu is what the processes used together.
func (u usages) cpu() (total time.Duration) {
	for _, p := range u {
		total += p.cpu
	}
	return total
}

// rss is the resident memory of the processes together, in bytes.
func (u usages) rss() (total int) {
	for _, p := range u {
		total += p.rss
	}
	return total
}

// timed is how long f took, and what each process used in that time. Their memory is that at its end.
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
