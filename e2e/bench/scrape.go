package main

// Metrics of a daemon on which tasks run, as Prometheus reads them.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

const (
	scrapedTasks = 100
	scrapedGPUs  = 8
	scrapes      = 200
	twoSamples   = 12 * time.Second // after which the daemon knows what each task uses
)

// scrape measures how long /metrics takes at a daemon on which tasks run, and counts its series.
func (c *cluster) scrape(ctx context.Context, r *report) error {
	spec := command("/bin/sleep", "1000")
	spec.Array = fmt.Sprintf("0-%d", scrapedTasks-1)
	j, err := c.clients[0].Submit(ctx, spec, "")
	if err != nil {
		return err
	}
	if err := c.untilRunning(ctx, j.ID, scrapedTasks); err != nil {
		return err
	}
	wait(ctx, twoSamples)
	web := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.socket(1))
	}}}
	defer web.CloseIdleConnections()
	var took []time.Duration
	series := 0
	for range scrapes {
		wait(ctx, 50*time.Millisecond)
		start := time.Now()
		if series, err = seriesOf(ctx, web, "http://muster/metrics"); err != nil {
			return err
		}
		took = append(took, time.Since(start))
	}
	times(r.value, "metrics", took, 0.5, 0.99)
	r.value("metrics-series", "", float64(series))
	return nil
}

// untilRunning waits until so many tasks of a job run.
func (c *cluster) untilRunning(ctx context.Context, id job.ID, tasks int) error {
	ctx, enough := context.WithCancelCause(ctx)
	defer enough(nil)
	_, err := c.clients[0].Wait(ctx, []job.ID{id}, func(j api.Job) {
		if j.Counts[job.Running] == tasks {
			enough(errRunning)
		}
	})
	if context.Cause(ctx) == errRunning { //nolint:errorlint // it is this one, and nothing wraps it
		return nil
	}
	return errors.Join(err, fmt.Errorf("job %s has ended", id))
}

var errRunning = errors.New("all tasks run")

// seriesOf reads metrics and counts their series.
func seriesOf(ctx context.Context, web *http.Client, url string) (series int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := web.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", url, resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "#") {
			series++
		}
	}
	return series, lines.Err()
}
