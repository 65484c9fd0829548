// Command bench measures what docs/benchmarks.md reports, on the built program:
// three daemons on loopback, each figure beside the raw limit of this machine in
// the same run. `make bench` runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/host"
)

func main() {
	program := flag.String("muster", "bin/muster", "the built program")
	jobs := flag.Int("jobs", 1000, "how many jobs the rate is measured with")
	only := flag.String("only", "", "one of start, rate, idle, upload, flat, runner, docker, session, journal, tasks, logs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *program, *only, *jobs)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, program, only string, jobs int) error {
	if err := describe(ctx); err != nil {
		return err
	}
	want := func(name string) bool { return only == "" || only == name }
	var errs []error
	if want("start") || want("rate") || want("idle") {
		errs = append(errs, withCluster(ctx, program, devNodes, inFlight, func(c *cluster) error {
			if want("idle") {
				if err := c.idle(ctx); err != nil {
					return err
				}
			}
			if want("start") {
				if err := c.startLatency(ctx); err != nil {
					return err
				}
			}
			if want("rate") {
				return c.rate(ctx, jobs)
			}
			return nil
		}))
	}
	if want("rate") {
		errs = append(errs, withCluster(ctx, program, devNodes, 0, func(c *cluster) error { return c.rate(ctx, jobs) }))
	}
	if want("upload") {
		for _, files := range []int{10_000, 50} { // many small ones, some large ones
			errs = append(errs, withCluster(ctx, program, devNodes, inFlight, func(c *cluster) error { return c.upload(ctx, files) }))
		}
	}
	if want("flat") {
		errs = append(errs, withCluster(ctx, program, 1, inFlight, func(c *cluster) error { return c.flat(ctx) }))
	}
	if want("runner") {
		errs = append(errs, withCluster(ctx, program, 1, inFlight, func(c *cluster) error { return c.runner(ctx) }))
	}
	if want("docker") {
		errs = append(errs, docker(ctx, program))
	}
	if want("logs") {
		errs = append(errs, withCluster(ctx, program, devNodes, inFlight, func(c *cluster) error { return c.logs(ctx) }))
	}
	for _, b := range []struct{ name, pkg, pattern, what string }{
		{"session", "./p2p/session", "OfferCommit|Raw", "session messages between two daemons' protocol layers"},
		{"journal", "./journal", ".", "journal commits beside raw append and fdatasync"},
		{"tasks", "./worker/supervisor", ".", "tasks started and reaped beside a bare fork-exec-wait loop"},
	} {
		if want(b.name) {
			errs = append(errs, goBench(ctx, b.pkg, b.pattern, b.what))
		}
	}
	return errors.Join(errs...)
}

// describe says on what, and when, the figures were measured.
func describe(ctx context.Context) error {
	info, err := host.InfoWithContext(ctx)
	if err != nil {
		return err
	}
	model := "unknown processor"
	if cpus, err := cpu.InfoWithContext(ctx); err == nil && len(cpus) > 0 {
		model = cpus[0].ModelName
	}
	fmt.Printf("%s, %d cores (%s), %s %s, %s\n\n", time.Now().UTC().Format(time.RFC3339), runtime.NumCPU(), model, info.OS, info.KernelVersion, runtime.Version())
	return nil
}

func goBench(ctx context.Context, pkg, pattern, what string) error {
	fmt.Printf("## %s\n", what)
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "-benchtime", "2s", pkg)
	out, err := cmd.CombinedOutput()
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.HasPrefix(line, "Benchmark") {
			fmt.Println("  ", line)
		}
	}
	fmt.Println()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", pkg, err, out)
	}
	return nil
}
