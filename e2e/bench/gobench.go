package main

// The benchmarks that are Go tests of one package.

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
)

// reading says where to find a value of a figure in the output of `go test -bench`.
type reading struct {
	figure, label string
	raw           bool
	bench         string // without "Benchmark" and the number of CPUs
	metric        string // its unit there; ns/op is reported in microseconds
}

// goBench runs the benchmarks of a package that match the pattern. Benchtime is that of go test: 2s, 2000x.
func goBench(pkg, pattern, benchtime string, readings ...reading) func(context.Context, string, *report) error {
	return goBenchWith(nil, pkg, pattern, benchtime, readings...)
}

// goBenchWith also gives the tests of the package these flags. They may take two hours.
func goBenchWith(flags []string, pkg, pattern, benchtime string, readings ...reading) func(context.Context, string, *report) error {
	return func(ctx context.Context, _ string, r *report) error {
		timeout := "10m"
		if len(flags) > 0 {
			timeout = "2h"
		}
		args := append([]string{"test", pkg, "-run", "^$", "-bench", pattern, "-benchtime", benchtime, "-timeout", timeout}, flags...)
		out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", pkg, err, out)
		}
		measured, err := parse(string(out))
		if err != nil {
			return fmt.Errorf("%s: %w", pkg, err)
		}
		var errs []error // this machine may lack what one of them needs
		for _, want := range readings {
			v, ok := measured[want.bench][want.metric]
			if !ok {
				errs = append(errs, fmt.Errorf("%s: no %s of Benchmark%s", pkg, want.metric, want.bench))
				continue
			}
			if want.metric == "ns/op" {
				v /= 1000
			}
			if want.raw {
				r.raw(want.figure, want.label, v)
			} else {
				r.value(want.figure, want.label, v)
			}
		}
		return errors.Join(errs...)
	}
}

// parse returns the metrics of each benchmark by its name and their units.
func parse(out string) (map[string]map[string]float64, error) {
	all := map[string]map[string]float64{}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		metrics := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", line, err)
			}
			metrics[fields[i+1]] = v
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		all[strings.TrimSuffix(name, fmt.Sprintf("-%d", runtime.GOMAXPROCS(0)))] = metrics
	}
	return all, nil
}
