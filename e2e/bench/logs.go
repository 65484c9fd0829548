package main

// Output: how fast a log is followed, and what 1 GiB of output costs the daemons and runners.

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

// logs follows a log at its own daemon and through a second one, and sends the same bytes through two plain copies
// over loopback.
func (c *cluster) logs(ctx context.Context, r *report) error {
	raw, err := rawCopies(ctx, logBytes)
	if err != nil {
		return err
	}
	r.raw("logs", "two plain copies over loopback TCP", mbPerSecond(logBytes, raw))
	for _, from := range []struct {
		label  string
		client *api.Client
	}{{"through two daemons", c.clients[1]}, {"at its own host", c.clients[0]}} {
		j, err := c.written(ctx, logBytes)
		if err != nil {
			return err
		}
		took, err := c.read(ctx, from.client, api.LogRequest{Job: j, Follow: true}, logBytes)
		if err != nil {
			return err
		}
		r.value("logs", from.label, mbPerSecond(logBytes, took))
	}
	return nil
}

// written runs a job at the first daemon that writes n bytes.
func (c *cluster) written(ctx context.Context, n int) (job.ID, error) {
	s := command("head", "-c", fmt.Sprint(n), "/dev/zero")
	s.NodeList = []string{"dev1"}
	j, err := finish(ctx, c.clients[0], s)
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

// output has a job write 1 GiB, and measures its time and the memory of the daemons and runners.
func (c *cluster) output(ctx context.Context, r *report) error {
	const n = 1 << 30
	memory := func(when string) error {
		all, err := c.usage()
		for _, what := range []string{"daemon", "runner"} {
			r.value("output-memory", what+"s "+when, float64(all.only(what).rss())/(1<<20))
		}
		return err
	}
	if err := memory("before"); err != nil {
		return err
	}
	var j job.ID
	took, used, err := c.timed(func() (err error) {
		j, err = c.written(ctx, n)
		return err
	})
	if err != nil {
		return err
	}
	r.value("output", "", took.Seconds())
	r.value("output", "CPU of runner and task", used.only("runner").cpu().Seconds())
	if err := memory("after writing"); err != nil {
		return err
	}
	if _, err := c.read(ctx, c.clients[1], api.LogRequest{Job: j, Follow: true}, n); err != nil {
		return err
	}
	return memory("after reading")
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

// zeros is a source without an end.
type zeros struct{}

// Read gives zeros.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
