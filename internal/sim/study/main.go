// Command study simulates what partial and late knowledge costs, and what failures of the network cost, and prints it
// as tables of Markdown. It needs no files: clusters and loads are synthetic, from seeds. The same version prints the
// same tables on every machine.
//
// With -write, the tables of docs/study.md are replaced. Each stands between the lines
//
//	<!-- study NAME -->
//	<!-- end -->
//
// If the variable MUSTER_TRACES names a directory with the public openb traces, the tables whose names end in -traces
// are made as well. A run whose records break a rule of report.Referee ends the study with an error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	o := options{size: full, traces: os.Getenv("MUSTER_TRACES")}
	flag.StringVar(&o.only, "only", "", "make one table: "+strings.Join(names(), ", "))
	flag.StringVar(&o.write, "write", "", "replace the tables of this Markdown file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "study:", err)
		os.Exit(1)
	}
}

type options struct {
	only, write, traces string
	size                size
}

// size is how large the simulated clusters and loads are.
type size struct {
	leaves, hosts int // of the network
	wide          int // leaves of the network on which numbers of candidates are compared
	jobs          int // for each machine
	seeds         int
	requests      int // in the table of the placement experiment
	groups        int // of 16 machines in it
}

// full is the size of the tables in the documentation.
var full = size{leaves: 8, hosts: 8, wide: 64, jobs: 60, seeds: 3, requests: 4000, groups: 32}

// table is one table.
type table struct {
	name   string
	title  string
	traces bool // it is made from the public traces
	make   func(context.Context, *lab) (*rows, error)
}

var tables = []table{
	{"candidates-placement", "Candidates, requests that never leave: percent of the GPUs allocated when all have been asked for", false, candidatesPlacement},
	{"candidates-queueing", "Candidates, jobs that come and go", false, candidatesQueueing},
	{"candidates-traces", "Candidates, the public tables of requests", true, candidatesTraces},
	{"stale", "What is believed is late", false, staleViews},
	{"ways", "Ways to hear of what is free", false, waysToHear},
	{"silent", "Hosts that pass nothing on", false, silentHosts},
	{"failures", "Failures of 10 minutes", false, failures},
}

func names() []string {
	var out []string
	for _, t := range tables {
		out = append(out, t.name)
	}
	return out
}

// run makes the tables, and prints each as soon as it is ready.
func run(ctx context.Context, o options, out, log io.Writer) error {
	if o.only != "" && !slices.Contains(names(), o.only) {
		return fmt.Errorf("no table is called %q; there are %s", o.only, strings.Join(names(), ", "))
	}
	made := map[string]string{}
	l := &lab{size: o.size, traces: o.traces}
	for _, t := range tables {
		switch {
		case o.only != "" && o.only != t.name:
			continue
		case t.traces && o.traces == "" && o.only == "":
			continue
		case t.traces && o.traces == "":
			return fmt.Errorf("%s: MUSTER_TRACES is not set: it names the directory with the public traces", t.name)
		}
		fmt.Fprintln(log, "simulating", t.name)
		r, err := t.make(ctx, l)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		made[t.name] = r.markdown()
		if _, err := fmt.Fprintf(out, "%s (%s)\n\n%s\n", t.title, t.name, made[t.name]); err != nil {
			return err
		}
	}
	if o.write == "" {
		return nil
	}
	old, err := os.ReadFile(o.write)
	if err != nil {
		return err
	}
	text, err := document(string(old), made)
	if err == nil {
		err = os.WriteFile(o.write, []byte(text), 0o644)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.write, err)
	}
	return nil
}

// The lines around a table. The name of the table stands between begin and beginEnd.
const (
	begin    = "<!-- study "
	beginEnd = " -->\n"
	end      = "<!-- end -->\n"
)

var errMarks = errors.New("want a line \"" + begin + "NAME -->\" and after the table a line \"<!-- end -->\"")

// document replaces tables of a text. It must have a place for each of them.
func document(text string, made map[string]string) (string, error) {
	for _, t := range tables {
		table, there := made[t.name]
		if !there {
			continue
		}
		before, rest, found := strings.Cut(text, begin+t.name+beginEnd)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			return "", fmt.Errorf("table %s: %w", t.name, errMarks)
		}
		text = before + begin + t.name + beginEnd + table + end + after
	}
	return text, nil
}
