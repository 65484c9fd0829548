package main

// Daemons on loopback, measured with single jobs, with many jobs at once, and with none.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// cluster is `muster dev` and clients of its daemons.
type cluster struct {
	program string
	dir     string // of the daemons; on the command line of each and of its runner
	clients []*api.Client
}

const (
	devNodes  = 3
	inFlight  = 32 // jobs at once
	startJobs = 300
	rateJobs  = 1500
)

// onCluster starts daemons and measures them. Each daemon offers the number of CPUs; 0 means those of the machine. The
// further flags are those of muster dev.
func onCluster(nodes, cpus int, measure func(*cluster, context.Context, *report) error, flags ...string) func(context.Context, string, *report) error {
	return func(ctx context.Context, program string, r *report) error {
		args := append([]string{"dev", "--nodes", fmt.Sprint(nodes), "--gpus", "none", "--cpus", fmt.Sprint(cpus)}, flags...)
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		if err := cmd.Start(); err != nil {
			return err
		}
		defer func() {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_ = cmd.Wait()
		}()
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			return fmt.Errorf("muster dev did not start: %w", err)
		}
		go func() { _, _ = io.Copy(io.Discard, out) }()
		c := &cluster{program: program, dir: filepath.Dir(strings.TrimSpace(strings.TrimPrefix(line, "export MUSTER_SOCKET=")))}
		for i := range nodes {
			client, err := api.NewClient(api.ClientConfig{Socket: c.socket(i + 1)})
			if err != nil {
				return err
			}
			c.clients = append(c.clients, client)
		}
		return measure(c, ctx, r)
	}
}

func (c *cluster) socket(n int) string { return filepath.Join(c.dir, fmt.Sprintf("dev%d.sock", n)) }

func command(args ...string) job.Spec {
	s := job.DefaultSpec()
	s.Command = args
	return s
}

// finish submits a job, waits for its end, and returns an error if it did not succeed.
func finish(ctx context.Context, client *api.Client, spec job.Spec) (api.Job, error) {
	j, err := client.Submit(ctx, spec, "")
	if err != nil {
		return api.Job{}, err
	}
	ended, err := client.Wait(ctx, []job.ID{j.ID}, nil)
	if err != nil {
		return api.Job{}, err
	}
	if ended[0].State != job.Succeeded || ended[0].StartedAt == nil {
		return api.Job{}, fmt.Errorf("job %s: %s %s %s", j.ID, ended[0].State, ended[0].Reason, ended[0].ReasonDetail)
	}
	return ended[0], nil
}

// start measures one job at a time on an idle cluster, from the call of submit to the start of the process.
func (c *cluster) start(ctx context.Context, r *report) error {
	var took []time.Duration
	for range startJobs {
		began := time.Now()
		j, err := finish(ctx, c.clients[0], command("/bin/true"))
		if err != nil {
			return err
		}
		took = append(took, j.StartedAt.Sub(began))
	}
	times(r.value, "start", took, 0.5, 0.99, 1)
	return nil
}

// rate measures jobs at every daemon in turn, from the first submit to the end of the last job, and a loop that only
// forks, executes and waits. The figures are NAME and NAME-cpu, and the same beside the bare loop, NAME-share and NAME-cpu-times.
func rate(name string) func(*cluster, context.Context, *report) error {
	return func(c *cluster, ctx context.Context, r *report) error {
		bare, bareCPU, err := c.timed(func() error {
			return parallel(rateJobs, inFlight, func(int) error { return exec.CommandContext(ctx, "/bin/true").Run() })
		})
		if err != nil {
			return err
		}
		took, used, err := c.timed(func() error {
			return parallel(rateJobs, inFlight, func(i int) error {
				_, err := finish(ctx, c.clients[i%len(c.clients)], command("/bin/true"))
				return err
			})
		})
		if err != nil {
			return err
		}
		r.value(name, "", rateJobs/took.Seconds())
		r.value(name+"-share", "", 100*bare.Seconds()/took.Seconds())
		r.value(name+"-cpu-times", "", ms(used.cpu())/ms(bareCPU.cpu()))
		r.raw(name, "fork-exec-wait", rateJobs/bare.Seconds())
		r.value(name+"-cpu", "", ms(used.cpu())/rateJobs)
		r.value(name+"-cpu", "daemons", ms(used.only("daemon").cpu())/rateJobs)
		r.value(name+"-cpu", "runners and tasks", ms(used.only("runner").cpu())/rateJobs)
		r.value(name+"-cpu", "client", ms(used.only("bench").cpu())/rateJobs)
		r.raw(name+"-cpu", "fork-exec-wait", ms(bareCPU.cpu())/rateJobs)
		return nil
	}
}

// parallel calls f for 0 to n-1, some at once, and stops at the first error.
func parallel(n, atOnce int, f func(int) error) error {
	next := make(chan int)
	stop := make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	var errs []error
	var mu sync.Mutex
	for range atOnce {
		wg.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					once.Do(func() { close(stop) })
					return
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
			continue
		case <-stop:
		}
		break
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// idle measures what each daemon and each runner costs when nothing happens.
func (c *cluster) idle(ctx context.Context, r *report) error {
	const calm, watch = 10 * time.Second, 30 * time.Second
	wait(ctx, calm)
	_, used, err := c.timed(func() error { wait(ctx, watch); return ctx.Err() })
	if err != nil {
		return err
	}
	for _, p := range append(used.only("daemon"), used.only("runner")...) {
		r.value("idle-memory", p.what, float64(p.rss)/1e6)
		r.value("idle-cpu", p.what, 100*p.cpu.Seconds()/watch.Seconds())
	}
	return nil
}

// version measures how fast the program starts and ends.
func version(ctx context.Context, program string, r *report) error {
	var took []time.Duration
	for range 20 {
		start := time.Now()
		if err := exec.CommandContext(ctx, program, "version").Run(); err != nil {
			return err
		}
		took = append(took, time.Since(start))
	}
	times(r.value, "version", took, 0.5, 1)
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
