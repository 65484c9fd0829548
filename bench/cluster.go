package main

// Three daemons on loopback, and what is measured on them.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// cluster is `muster dev` and clients of its daemons.
type cluster struct {
	program string
	cmd     *exec.Cmd
	clients []*api.Client
}

const devNodes = 3

func withCluster(ctx context.Context, program string, measure func(*cluster) error) error {
	program, err := filepath.Abs(program)
	if err != nil {
		return err
	}
	c := &cluster{program: program}
	c.cmd = exec.CommandContext(ctx, program, "dev", "--nodes", fmt.Sprint(devNodes), "--gpus", "none")
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
	for i := range devNodes {
		socket := filepath.Join(filepath.Dir(first), fmt.Sprintf("dev%d.sock", i+1))
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
func (c *cluster) rate(ctx context.Context) error {
	const jobs, flight = 1000, 32
	bare, bareCPU, err := timed(func() error {
		return parallel(jobs, flight, func(int) error { return exec.CommandContext(ctx, "/bin/true").Run() })
	})
	if err != nil {
		return err
	}
	took, used, err := timed(func() error {
		return parallel(jobs, flight, func(i int) error {
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
	fmt.Printf("## %d jobs of /bin/true, %d in flight, durable, over %d daemons (each waited for by its submitter)\n", jobs, flight, devNodes)
	fmt.Printf("   muster: %.0f jobs/s, %.2f ms CPU a job (whole machine)\n", jobs/took.Seconds(), ms(used)/jobs)
	fmt.Printf("   bare fork-exec-wait: %.0f a second, %.2f ms CPU each\n\n", jobs/bare.Seconds(), ms(bareCPU)/jobs)
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

// timed is how long f took, and how much CPU the whole machine used meanwhile.
func timed(f func() error) (took, used time.Duration, err error) {
	before, err := busy()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := f(); err != nil {
		return 0, 0, err
	}
	took = time.Since(start)
	after, err := busy()
	return took, after - before, err
}

func busy() (time.Duration, error) {
	t, err := cpu.Times(false)
	if err != nil {
		return 0, err
	}
	return time.Duration((t[0].User + t[0].System + t[0].Nice + t[0].Irq + t[0].Softirq) * float64(time.Second)), nil
}

// idle: what a daemon costs when nothing happens, and how fast the program
// starts.
func (c *cluster) idle(ctx context.Context) error {
	const settle, watch = 10 * time.Second, 30 * time.Second
	wait(ctx, settle)
	children, err := daemons(ctx, c.cmd.Process.Pid)
	if err != nil {
		return err
	}
	var before []float64
	for _, p := range children {
		before = append(before, cpuSeconds(ctx, p))
	}
	wait(ctx, watch)
	fmt.Printf("## a daemon of %d, idle for %s\n", len(children), watch)
	for i, p := range children {
		mem, err := p.MemoryInfoWithContext(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("   RSS %.0f MB, CPU %.2f %% of a core\n", float64(mem.RSS)/1e6, 100*(cpuSeconds(ctx, p)-before[i])/watch.Seconds())
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

func daemons(ctx context.Context, dev int) ([]*process.Process, error) {
	p, err := process.NewProcessWithContext(ctx, int32(dev))
	if err != nil {
		return nil, err
	}
	return p.ChildrenWithContext(ctx)
}

func cpuSeconds(ctx context.Context, p *process.Process) float64 {
	t, err := p.TimesWithContext(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 0
	}
	return t.User + t.System
}

func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
