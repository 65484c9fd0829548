package daemon

// Requests to all owners of this daemon. Most daemons have one owner. A daemon with a data directory of an earlier version
// has two: home accepts new jobs, and the other one keeps the older jobs.

import (
	"context"
	"sync"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler"
	schedulerloop "github.com/musterhq/muster/scheduler/loop"
)

// acceptor returns the owner that accepts a job: home, unless another owner has already accepted it. A client that got no
// answer submits the job again with the same idempotency key.
func (s owners) acceptor(ctx context.Context, user, key string) (*owner, error) {
	if key == "" {
		return s.home, nil
	}
	for _, o := range s.by {
		if o == s.home {
			continue
		}
		if before, err := schedulerloop.HasKey(ctx, o.Loop, user, key); before || err != nil {
			return o, err
		}
	}
	return s.home, nil
}

// list returns the jobs that q selects.
func (s owners) list(ctx context.Context, q job.Query) ([]job.Job, error) {
	var all []job.Job
	for _, o := range s.by {
		some, err := o.list(ctx, q)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = some
		} else {
			all = append(all, some...)
		}
	}
	return q.Pick(all), nil
}

// list returns the jobs of one owner that q selects. It reads them from the scheduler in pages.
func (o *owner) list(ctx context.Context, q job.Query) ([]job.Job, error) {
	f := q
	var all []job.Job
	for {
		page, err := o.Jobs(ctx, f)
		if err != nil {
			return nil, err
		}
		more := len(page) >= scheduler.MaxList
		if more {
			last := page[len(page)-1]
			f.After = last.Position()
		}
		if page = q.Pick(page); all == nil {
			all = page
		} else {
			all = append(all, page...)
		}
		if !more || (q.Limit > 0 && len(all) >= q.Limit) {
			return all, nil
		}
	}
}

// watch watches the jobs of all owners, and merges their channels into one.
func (s owners) watch(ctx context.Context, q job.Query) (<-chan job.Job, error) {
	if len(s.by) == 1 {
		return s.home.Watch(ctx, q)
	}
	ctx, cancel := context.WithCancel(ctx)
	var each []<-chan job.Job
	for _, o := range s.by {
		c, err := o.Watch(ctx, q)
		if err != nil {
			cancel()
			return nil, err
		}
		each = append(each, c)
	}
	out := make(chan job.Job)
	var copying sync.WaitGroup
	for _, c := range each {
		copying.Go(func() {
			defer cancel() // if one channel ends, all end, and the reader begins again
			for j := range c {
				select {
				case out <- j:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		defer cancel()
		copying.Wait()
		close(out)
	}()
	return out, nil
}

// sum adds up what each owner counts.
func (s owners) sum(count func(*owner) (int, error)) (total int, err error) {
	for _, o := range s.by {
		n, err := count(o)
		if total += n; err != nil {
			return total, err
		}
	}
	return total, nil
}
