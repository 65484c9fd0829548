package main

// The page of a job with much output.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/api"
)

const (
	pageLogBytes = 1 << 30
	pageLogBlock = 1 << 20 // numbered lines of 16 bytes, again and again
	pageLogJumps = 20
)

// jumpIn clicks at a place of the output, and returns how long it takes until the line there is drawn.
const jumpIn = `(async (to) => { const el = document.querySelector('.seek'), want = String(Math.floor(to / 16) %% %d).padStart(15, '0'), began = performance.now();
el.value = to; el.dispatchEvent(new Event('change', {bubbles: true}));
for (;;) { await new Promise(requestAnimationFrame); const took = performance.now() - began;
  if ([...document.querySelectorAll('.lrow')].some((r) => r.textContent.startsWith(want))) return took; if (took > 10000) return -1; } })(%d)`

// pageLog follows the output of a job in its page, and jumps around in it.
func pageLog(ctx context.Context, program string, r *report) error {
	socket, client, stop, err := oneDaemon(ctx, program, "--output-limit", "2GiB")
	if err != nil {
		return err
	}
	defer stop()
	return browse(ctx, program, socket, func(t *tab) error {
		if err := t.follow(ctx, client, filepath.Join(filepath.Dir(socket), "go"), r); err != nil {
			return err
		}
		memory, err := t.memory()
		if err != nil {
			return err
		}
		r.value("page-log-memory", "", memory)
		var took []time.Duration
		for i := range pageLogJumps {
			to := (i*7 + 3) % pageLogJumps * (pageLogBytes / pageLogJumps)
			one, err := eval[float64](t, fmt.Sprintf(jumpIn, pageLogBlock, to))
			if err != nil {
				return err
			}
			if one < 0 {
				return fmt.Errorf("the line at %d was not drawn in 10 s", to)
			}
			took = append(took, time.Duration(one*float64(time.Millisecond)))
		}
		times(r.value, "page-log-jump", took, 0.5, 1)
		return nil
	})
}

// follow follows a job that writes as fast as it can once there is the file begin.
func (t *tab) follow(ctx context.Context, client *api.Client, begin string, r *report) error {
	j, err := client.Submit(ctx, command("sh", "-c", fmt.Sprintf(`seq -f %%015.0f 0 %d > block; until [ -e %s ]; do sleep 0.1; done; for i in $(seq %d); do cat block; done`,
		pageLogBlock-1, begin, pageLogBytes/pageLogBlock/16)), "")
	if err != nil {
		return err
	}
	if err := t.open(t.address); err != nil { // trades the code
		return err
	}
	if err := t.until("bench.first > 0"); err != nil {
		return err
	}
	if _, err := eval[bool](t, fmt.Sprintf("location.pathname = '/jobs/%s/log', true", j.ID)); err != nil {
		return err
	}
	if err := t.until("document.querySelector('.logtools')?.innerText.includes('following') || false"); err != nil {
		return err
	}
	if err := os.WriteFile(begin, nil, 0o600); err != nil {
		return err
	}
	if err := t.until("Number(document.querySelector('.seek')?.max || 0) > 1"); err != nil {
		return err
	}
	began := time.Now()
	if err := t.until(fmt.Sprintf("Number(document.querySelector('.seek')?.max || 0) === %d", pageLogBytes)); err != nil {
		return err
	}
	r.value("page-log", "", mbPerSecond(pageLogBytes, time.Since(began)))
	return nil
}
