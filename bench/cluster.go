package main

// Three daemons on loopback, and what is measured on them.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	cpus    int // of each daemon
	cmd     *exec.Cmd
	dir     string // of the daemons; on the command line of each and of its runner
	clients []*api.Client
}

const (
	devNodes = 3
	inFlight = 32
)

// withCluster starts daemons that give away so many CPUs each, 0 for those of the
// machine, and has them measured.
func withCluster(ctx context.Context, program string, nodes, cpus int, measure func(*cluster) error) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	c := &cluster{program: program, cpus: cpus}
	c.cmd = exec.CommandContext(ctx, program, "dev", "--nodes", fmt.Sprint(nodes), "--gpus", "none", "--cpus", fmt.Sprint(cpus))
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	defer func() {
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		_ = c.cmd.Wait()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("muster dev did not start: %w", err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	first := strings.TrimSpace(strings.TrimPrefix(line, "export MUSTER_SOCKET="))
	c.dir = filepath.Dir(first)
	for i := range nodes {
		socket := filepath.Join(c.dir, fmt.Sprintf("dev%d.sock", i+1))
		client, err := api.NewClient(api.ClientConfig{Socket: socket})
		if err != nil {
			return err
		}
		c.clients = append(c.clients, client)
	}
	return measure(c)
}

func command(args ...string) job.Spec {
	s := job.DefaultSpec()
	s.Command = args
	return s
}

// startLatency: from the call of submit to the start of the process, one job at
// a time on an idle cluster.
func (c *cluster) startLatency(ctx context.Context) error {
	const jobs = 300
	var took []time.Duration
	for range jobs {
		began := time.Now()
		j, err := c.clients[0].Submit(ctx, command("/bin/true"), "")
		if err != nil {
			return err
		}
		done, err := c.clients[0].Wait(ctx, []job.ID{j.ID}, nil)
		if err != nil {
			return err
		}
		if done[0].State != job.Succeeded || done[0].StartedAt == nil {
			return fmt.Errorf("job %s: %s %s", j.ID, done[0].State, done[0].Reason)
		}
		took = append(took, done[0].StartedAt.Sub(began))
	}
	fmt.Printf("## submit to process started, idle, %d daemons, %d jobs one at a time\n", devNodes, jobs)
	fmt.Printf("   p50 %.1f ms, p99 %.1f ms, max %.1f ms\n\n", ms(quantile(took, 0.5)), ms(quantile(took, 0.99)), ms(quantile(took, 1)))
	return nil
}

func quantile(d []time.Duration, q float64) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[min(len(d)-1, int(q*float64(len(d))))]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// rate: 1,000 jobs, 32 in flight, to the last one's end, beside a loop that only
// forks, executes and waits.
func (c *cluster) rate(ctx context.Context, jobs int) error {
	bare, bareCPU, err := c.timed(func() error {
		return parallel(jobs, inFlight, func(int) error { return exec.CommandContext(ctx, "/bin/true").Run() })
	})
	if err != nil {
		return err
	}
	took, used, err := c.timed(func() error {
		return parallel(jobs, inFlight, func(i int) error {
			client := c.clients[i%len(c.clients)]
			j, err := client.Submit(ctx, command("/bin/true"), "")
			if err != nil {
				return err
			}
			done, err := client.Wait(ctx, []job.ID{j.ID}, nil)
			if err == nil && done[0].State != job.Succeeded {
				err = fmt.Errorf("job %s: %s %s", j.ID, done[0].State, done[0].Reason)
			}
			return err
		})
	})
	if err != nil {
		return err
	}
	room := "with room for all"
	if c.cpus == 0 && devNodes*runtime.NumCPU() < inFlight {
		room = "most queue for a CPU"
	}
	fmt.Printf("## %d jobs of /bin/true, %d in flight, %s, durable, over %d daemons (each waited for by its submitter)\n", jobs, inFlight, room, devNodes)
	fmt.Printf("   muster: %.0f jobs/s, %.2f ms CPU a job over all processes (%s)\n", float64(jobs)/took.Seconds(), ms(used.sum())/float64(jobs), used.per(jobs))
	fmt.Printf("   bare fork-exec-wait: %.0f a second, %.2f ms CPU each\n\n", float64(jobs)/bare.Seconds(), ms(bareCPU.sum())/float64(jobs))
	return nil
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

// idle: what a daemon costs when nothing happens, and how fast the program
// starts.
func (c *cluster) idle(ctx context.Context) error {
	const calm, watch = 10 * time.Second, 30 * time.Second
	wait(ctx, calm)
	before, err := c.usage()
	if err != nil {
		return err
	}
	wait(ctx, watch)
	after, err := c.usage()
	if err != nil {
		return err
	}
	fmt.Printf("## idle for %s: %d daemons and their runners\n", watch, devNodes)
	for _, p := range after {
		fmt.Printf("   %s: RSS %.0f MB, CPU %.2f %% of a core\n", p.what, float64(p.rss)/1e6, 100*(p.cpu-before.of(p.pid)).Seconds()/watch.Seconds())
	}
	var took []time.Duration
	for range 20 {
		start := time.Now()
		if err := exec.CommandContext(ctx, c.program, "version").Run(); err != nil {
			return err
		}
		took = append(took, time.Since(start))
	}
	fmt.Printf("   muster version: p50 %.0f ms, max %.0f ms\n\n", ms(quantile(took, 0.5)), ms(quantile(took, 1)))
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
