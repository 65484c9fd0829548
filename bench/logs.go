package main

// Output: how fast a log is followed through two daemons, and what 1 GiB of it
// costs those who keep it.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

// logBytes is written to each log that is measured: below the default bound, so
// that nothing is cut while it is read.
const logBytes = 200 << 20

// logs follows a log from a daemon that has to ask another for it, beside the
// same bytes through two plain copies over loopback.
func (c *cluster) logs(ctx context.Context) error {
	raw, err := rawCopies(ctx, logBytes)
	if err != nil {
		return err
	}
	fmt.Printf("## logs of %d MiB: worker's daemon, asked daemon, client\n", logBytes>>20)
	fmt.Printf("   two plain copies over loopback TCP: %.0f MB/s\n", mbPerSecond(logBytes, raw))
	for _, from := range []struct {
		what   string
		client *api.Client
	}{{"at the worker's own daemon", c.clients[0]}, {"through a second daemon", c.clients[1]}} {
		j, err := c.written(ctx, logBytes)
		if err != nil {
			return err
		}
		whole, err := c.read(ctx, from.client, api.LogRequest{Job: j, Follow: true}, logBytes)
		if err != nil {
			return err
		}
		fmt.Printf("   %s: %.0f MB/s\n", from.what, mbPerSecond(logBytes, whole))
	}
	return c.gibibyte(ctx)
}

// written runs a job at the first daemon that writes so many bytes.
func (c *cluster) written(ctx context.Context, n int) (job.ID, error) {
	s := command("head", "-c", fmt.Sprint(n), "/dev/zero")
	s.NodeList = []string{"dev1"}
	j, err := c.clients[0].Submit(ctx, s, "")
	if err != nil {
		return "", err
	}
	done, err := c.clients[0].Wait(ctx, []job.ID{j.ID}, nil)
	if err == nil && done[0].State != job.Succeeded {
		err = fmt.Errorf("job %s: %s %s", j.ID, done[0].State, done[0].Reason)
	}
	return j.ID, err
}

func (c *cluster) read(ctx context.Context, client *api.Client, r api.LogRequest, n int64) (time.Duration, error) {
	began := time.Now()
	end, err := client.Logs(ctx, r, io.Discard)
	if err == nil && end.Next != n {
		err = fmt.Errorf("log of job %s: %d bytes, want %d", r.Job, end.Next, n)
	}
	return time.Since(began), err
}

// gibibyte has a job write 1 GiB and watches the memory of the daemons.
func (c *cluster) gibibyte(ctx context.Context) error {
	const n = 1 << 30
	before, err := c.usage()
	if err != nil {
		return err
	}
	began := time.Now()
	j, err := c.written(ctx, n)
	if err != nil {
		return err
	}
	took := time.Since(began)
	written, err := c.usage()
	if err != nil {
		return err
	}
	if _, err := c.read(ctx, c.clients[1], api.LogRequest{Job: j, Follow: true}, n); err != nil {
		return err
	}
	after, err := c.usage()
	if err != nil {
		return err
	}
	fmt.Printf("   a job that writes 1 GiB: %.1f s (%.0f MB/s), which took runner and task %.2f s of CPU\n", took.Seconds(), mbPerSecond(n, took), written.cpuOf("runner").Seconds()-before.cpuOf("runner").Seconds())
	fmt.Printf("   resident memory before, after writing and after reading: daemons %d, %d, %d MiB; runners %d, %d, %d MiB\n\n",
		before.mib("daemon"), written.mib("daemon"), after.mib("daemon"), before.mib("runner"), written.mib("runner"), after.mib("runner"))
	return nil
}

// mib is the resident memory of one kind of process.
func (u usages) mib(what string) int {
	n := 0
	for _, p := range u {
		if p.what == what {
			n += p.rss
		}
	}
	return n >> 20
}

// cpuOf is what one kind of process used, with the children that it reaped.
func (u usages) cpuOf(what string) (total time.Duration) {
	for _, p := range u {
		if p.what == what {
			total += p.cpu
		}
	}
	return total
}

func mbPerSecond(n int64, d time.Duration) float64 { return float64(n) / 1e6 / d.Seconds() }

// rawCopies sends n bytes over loopback to a copier that sends them on over
// loopback, as two daemons do.
func rawCopies(ctx context.Context, n int64) (time.Duration, error) {
	var lc net.ListenConfig
	last, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer last.Close()
	first, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer first.Close()
	errs := make(chan error, 2)
	began := time.Now()
	go func() { errs <- send(ctx, first.Addr(), io.LimitReader(zeros{}, n)) }()
	go func() {
		conn, err := first.Accept()
		if err != nil {
			errs <- err
			return
		}
		defer conn.Close()
		errs <- send(ctx, last.Addr(), struct{ io.Reader }{conn}) // no splice: a daemon encrypts
	}()
	conn, err := last.Accept()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	got, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, 256<<10))
	if err == nil && got != n {
		err = fmt.Errorf("%d bytes of %d arrived", got, n)
	}
	return time.Since(began), errors.Join(err, <-errs, <-errs)
}

func send(ctx context.Context, to net.Addr, r io.Reader) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, to.Network(), to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{conn}, r, make([]byte, 256<<10))
	return err
}

// zeros is an endless source.
type zeros struct{}

// Read gives zeros.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
