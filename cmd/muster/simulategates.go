package main

// The gates of placement: the policies of muster against the published ones, over several tables of requests.

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/placing"
	"github.com/musterhq/muster/internal/sim/report"
)

// placeGates places the tables that the arguments name, and prints whether each gate is met.
func (v hostVerbs) placeGates(c *cli.Context) error {
	for _, f := range []string{
		"arrivals", "workload", "policy", "candidates", "jobs", "synthetic", "sacct", "topology", "fail", "faults", "load", "out", "report",
	} {
		if c.IsSet(f) {
			return usagef("simulate: --%s: with tables as arguments --gates judges all policies; it takes --machines, --seed, --seeds and --json only", f)
		}
	}
	if c.Int("seeds") < 1 {
		return usagef("simulate: --seeds %d: want at least 1", c.Int("seeds"))
	}
	machines, err := machinesOf(c, nil)
	if err != nil {
		return usageError{fmt.Errorf("simulate: %w", err)}
	}
	tables, err := tablesOf(machines, c.Args().Slice())
	if err != nil {
		return usageError{fmt.Errorf("simulate: %w", err)}
	}
	progress := report.NewProgress(v.err, onTerminal(v.err), time.Now())
	s := placing.Judged(tables)
	s.Workers = runtime.GOMAXPROCS(0)
	s.Progress = func(done, of int) { progress.Show(time.Now(), 0, int64(done), done, of) }
	for i := range c.Int("seeds") {
		s.Seeds = append(s.Seeds, int64(c.Uint64("seed"))+int64(i)) //nolint:gosec // any number will do
	}
	figures, err := s.Run(c.Context)
	progress.Clear()
	switch {
	case c.Err() != nil:
		return exitError{exitCtrlC, errors.New("simulate: interrupted")}
	case err != nil:
		return fmt.Errorf("simulate: %w", err)
	}
	gates := placing.Gates(figures)
	if c.Bool("json") {
		return report.Write(v.out, &report.Document{
			Command: commandLine(os.Args), Seed: c.Uint64("seed"), Cluster: report.ClusterOf(machines), Gates: reportGates(gates),
		})
	}
	if err := placing.WriteTable(v.out, figures); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(v.out); err != nil {
		return err
	}
	return placing.WriteGates(v.out, gates)
}

// tablesOf reads the tables. Two more are made from them, in which a third of the requests for GPUs name models.
func tablesOf(machines []load.Machine, files []string) ([]placing.Table, error) {
	var tables []placing.Table
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		requests, err := load.ReadRequests(file, f)
		_ = f.Close() // it was only read
		if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), "openb_pod_list_")
		tables = append(tables, placing.Table{Name: name, Machines: machines, Requests: requests})
	}
	return placing.WithPinned(tables), nil
}

func reportGates(gates []placing.Gate) []report.Gate {
	var out []report.Gate
	for _, g := range gates {
		got := fmt.Sprintf("%+.3f points", g.Got)
		if g.Where != "" {
			got += ", least on " + g.Where
		}
		out = append(out, report.Gate{Name: g.Name, Want: g.Aim, Got: got, Met: g.Met})
	}
	return out
}
