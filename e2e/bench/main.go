// Command bench measures the built program on this machine: three daemons on loopback, and the Go benchmarks of the
// packages that do most of the work. Where it can, it measures in the same run what the machine does at best without
// muster.
//
// table.go lists the benchmarks. The figures are printed as a table for people, or with -json as one object:
//
//	date      when they were measured, RFC 3339
//	machine   processor, cores, system and Go version
//	figures   a list of
//	  name      the row of docs/benchmarks.md
//	  what      what is measured
//	  unit      of all numbers of this figure
//	  values    a list of {label, readings}; one reading a run, or more where several processes are alike
//	  raw       the same of what the machine does at best; absent if nothing compares
//	  aim       what the figure should be; absent if there is none
//
// With -write, the rows of docs/benchmarks.md are replaced by what was measured, or by what -from reads from an
// earlier -json.
package main

import (
	"context"
	"encoding/json"
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
	var o options
	flag.StringVar(&o.program, "muster", "bin/muster", "the built program")
	flag.StringVar(&o.only, "only", "", "run one benchmark: "+strings.Join(names(), ", "))
	flag.IntVar(&o.runs, "runs", 1, "how often to run each benchmark")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.StringVar(&o.from, "from", "", "measure nothing; read the figures from this file, which -json has written")
	flag.StringVar(&o.write, "write", "", "replace the measured rows in the table of this Markdown file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type options struct {
	program, only, from, write string
	runs                       int
	json                       bool
}

// run prints the figures that were measured, even if a later benchmark failed.
func run(ctx context.Context, o options, out io.Writer) error {
	if o.only != "" && !slices.Contains(names(), o.only) {
		return fmt.Errorf("no benchmark is called %q; there are %s", o.only, strings.Join(names(), ", "))
	}
	var r *report
	var failed error
	if o.from != "" {
		text, err := os.ReadFile(o.from)
		if err != nil {
			return err
		}
		r = &report{}
		if err := json.Unmarshal(text, r); err != nil {
			return fmt.Errorf("%s: %w", o.from, err)
		}
	} else {
		machine, err := machine(ctx)
		if err != nil {
			return err
		}
		r = newReport(machine)
		failed = measure(ctx, o, r)
	}
	r.dropEmpty()
	if o.json {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		failed = errors.Join(failed, e.Encode(r))
	} else {
		failed = errors.Join(failed, r.print(out))
	}
	if o.write == "" {
		return failed
	}
	old, err := os.ReadFile(o.write)
	if err != nil {
		return errors.Join(failed, err)
	}
	text, err := document(string(old), r)
	if err == nil {
		err = os.WriteFile(o.write, []byte(text), 0o644)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", o.write, err)
	}
	return errors.Join(failed, err)
}

// measure runs the benchmarks and says on standard error which one is running.
func measure(ctx context.Context, o options, r *report) error {
	var errs []error
	for _, b := range table {
		if o.only != "" && o.only != b.name {
			continue
		}
		for n := range o.runs {
			fmt.Fprintf(os.Stderr, "measuring %s, run %d of %d\n", b.name, n+1, o.runs)
			if err := b.how(ctx, o.program, r); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", b.name, err))
				break
			}
		}
	}
	return errors.Join(errs...)
}
