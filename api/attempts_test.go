package api

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/job"
)

// The node where an earlier attempt ran gives the output of that attempt.
func TestLogsOfAnEarlierAttemptComeFromItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben", "cal")
		amy, ben, cal := c.daemons[0], c.daemons[1], c.daemons[2]
		failed := job.Exit{State: job.Failed, Code: 1}
		j := ended(running(ben.newJob(1), cal), failed)
		j.Tasks[0].Attempt = 3 // no node has started the first two
		j = ben.put(running(ended(running(j, ben), failed), amy))
		for n, d := range map[int]*daemon{3: cal, 4: ben, 5: amy} {
			l := d.log(job.Attempt{Job: j.ID, N: n}, "stdout")
			l.write("attempt " + string(rune('0'+n)) + " on " + d.name)
			if n < 5 {
				l.end()
			}
		}
		read := func(n int, follow bool) (string, error) {
			var out bytes.Buffer
			end, err := amy.client.Logs(t.Context(), LogRequest{Job: j.ID, Attempt: n, Exact: true, Follow: follow}, &out)
			if err == nil && end.Attempt != n {
				t.Errorf("attempt %d: got the end of attempt %d, want its own", n, end.Attempt)
			}
			return out.String(), err
		}
		for n, want := range map[int]string{3: "attempt 3 on cal", 4: "attempt 4 on ben", 5: "attempt 5 on amy"} {
			for _, follow := range []bool{false, n < 5} {
				if got, err := read(n, follow); err != nil || got != want {
					t.Errorf("attempt %d: got %q, %v, want %v", n, got, err, want)
				}
			}
		}
		for n, want := range map[int]string{2: "no node has started it", 6: "the newest attempt of job " + string(j.ID) + " is 5"} {
			if _, err := read(n, true); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), want) {
				t.Errorf("attempt %d: got error %v, want ErrNotFound with %q", n, err, want)
			}
		}
		cal.mu.Lock()
		clear(cal.logs)
		cal.mu.Unlock()
		if _, err := read(3, false); !errors.Is(err, ErrNotFound) {
			t.Errorf("attempt 3, whose output was removed: got %v, want ErrNotFound", err)
		}
		old := j.Tasks[0]
		old.Earlier = &job.Earlier{Outcomes: old.Earlier.Outcomes[1:], Older: 3}
		j.Tasks = []job.Task{old}
		ben.put(j)
		if _, err := read(3, false); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "the oldest attempt that is known is 4") {
			t.Errorf("attempt 3, which is not kept: got %v, want that attempt 4 is the oldest known one", err)
		}
	})
}

// The document of a job has the attempts of its tasks; listings and events do not.
func TestOnlyTheDocumentOfAJobHasAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		lost := ended(running(ben.newJob(1), ben), job.Exit{State: job.NodeFail, Reason: "ben was silent"})
		j := ended(running(lost, amy), job.Exit{State: job.Failed, Code: 137, Signal: 9, Began: lost.Submitted, Ended: lost.Submitted})
		j.Tasks[0].Earlier.Older = 7
		ben.put(j)
		doc, err := amy.client.Job(t.Context(), j.ID)
		if err != nil || len(doc.Tasks[0].Attempts) != 2 || doc.Tasks[0].Older != 7 {
			t.Fatalf("Job = %+v, %v, want 2 attempts, with 7 older ones", doc, err)
		}
		first, second := doc.Tasks[0].Attempts[0], doc.Tasks[0].Attempts[1]
		if first.Attempt != 1 || first.State != job.NodeFail || first.ExitCode != nil || first.Node != "ben" || first.Reason != "ben was silent" || first.StartedAt != nil {
			t.Errorf("attempt 1: got %+v, want NODE_FAIL on ben, without a start", first)
		}
		if second.Attempt != 2 || *second.ExitCode != 137 || second.Signal != 9 || second.NodeID != amy.peer || second.StartedAt == nil {
			t.Errorf("attempt 2: got %+v, want exit code 137, signal 9, on amy", second)
		}
		tasks, err := amy.client.Tasks(t.Context(), j.ID, TaskFilter{})
		if err != nil || len(tasks.Items[0].Attempts) != 2 {
			t.Errorf("Tasks = %+v, %v, want 2 attempts", tasks, err)
		}
		list, err := amy.client.Jobs(t.Context(), JobFilter{})
		if err != nil || len(list.Items[0].Tasks[0].Attempts) != 0 || list.Items[0].Tasks[0].Older != 0 {
			t.Errorf("Jobs = %+v, %v, want no attempts", list, err)
		}
		waited, err := amy.client.Wait(t.Context(), []job.ID{j.ID}, nil)
		if err != nil || len(waited[0].Tasks[0].Attempts) != 0 {
			t.Errorf("Wait = %+v, %v, want no attempts", waited, err)
		}
	})
}

func TestRequeueNeedsAnEndedJobAndItsFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "amy", "ben")
		amy, ben := c.daemons[0], c.daemons[1]
		j := ben.put(ended(running(ben.newJob(1), ben), job.Exit{State: job.Failed}))
		got, err := amy.client.Requeue(t.Context(), j.ID, Change{Failed: true, Reason: "again"})
		if err != nil || got.State != job.Pending || got.EndedAt != nil || got.ExitStatus != nil {
			t.Errorf("Requeue = %+v, %v, want a PENDING job without an end", got, err)
		}
		if _, err := amy.client.Requeue(t.Context(), j.ID, Change{}); !errors.Is(err, ErrConflict) {
			t.Errorf("Requeue of a waiting job = %v, want ErrConflict", err)
		}
		if _, err := amy.client.Requeue(t.Context(), j.ID, Change{Tasks: []job.Range{{First: 1, Last: 1}}}); !errors.Is(err, ErrNotFound) {
			t.Errorf("Requeue of task 1 = %v, want ErrNotFound", err)
		}
		gone := ben.newJob(2)
		gone.Spec.Tree = strings.Repeat("ab", 32)
		gone = ben.put(ended(running(gone, ben), job.Exit{State: job.Failed}))
		if _, err := amy.client.Requeue(t.Context(), gone.ID, Change{}); !errors.Is(err, ErrConflict) ||
			!strings.Contains(err.Error(), "the files that were uploaded with it are gone (tree abababababababab…); submit it again") {
			t.Errorf("Requeue without its files = %v, want that they are gone", err)
		}
		want := []string{"requeue " + string(j.ID) + ". true: again", "requeue " + string(j.ID) + ". false: "}
		if !slices.Equal(ben.asked, want) || len(amy.asked) != 0 {
			t.Errorf("ben was asked %q, want %q; amy was asked %q, want nothing", ben.asked, want, amy.asked)
		}
	})
}

// A client that waits for jobs gets the first end of each, though one of them is requeued before the other ends.
func TestWaitReturnsTheFirstEndDespiteRequeue(t *testing.T) {
	for _, seen := range []func(Job){nil, func(Job) {}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, "amy", "ben")
			amy, ben := c.daemons[0], c.daemons[1]
			a, b := ben.put(running(ben.newJob(1), ben)), ben.put(running(ben.newJob(2), ben))
			done := make(chan []Job)
			go func() {
				jobs, err := amy.client.Wait(t.Context(), []job.ID{a.ID, b.ID}, seen)
				if err != nil {
					t.Errorf("Wait = %v", err)
				}
				done <- jobs
			}()
			synctest.Wait()
			a = ben.put(ended(a, job.Exit{State: job.Failed, Code: 3}))
			synctest.Wait()
			a = ben.put(waiting(a))
			synctest.Wait()
			ben.put(running(a, ben))
			synctest.Wait()
			select {
			case jobs := <-done:
				t.Fatalf("Wait returned before job b ended, with %+v", jobs)
			default:
			}
			ben.put(ended(b, job.Exit{State: job.Succeeded}))
			jobs := <-done
			if len(jobs) != 2 || jobs[0].State != job.Failed || jobs[1].State != job.Succeeded {
				t.Fatalf("Wait = %+v, want FAILED and SUCCEEDED", jobs)
			}
			if code, over := jobs[0].Exit(); code != 3 || !over {
				t.Errorf("job a: got exit code %d, ended %v, want 3, true", code, over)
			}
			// A wait that begins after the requeue returns the next end.
			go func() {
				jobs, err := amy.client.Wait(t.Context(), []job.ID{a.ID}, seen)
				if err != nil {
					t.Errorf("Wait = %v", err)
				}
				done <- jobs
			}()
			synctest.Wait()
			select {
			case jobs := <-done:
				t.Fatalf("Wait returned an end before the requeue, with %+v", jobs)
			default:
			}
			ben.put(ended(running(a, ben), job.Exit{State: job.Succeeded}))
			if jobs := <-done; jobs[0].State != job.Succeeded {
				t.Errorf("Wait = %+v, want SUCCEEDED", jobs)
			}
		})
	}
}
