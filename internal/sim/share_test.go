package sim

// Users and projects get their shares of full hosts, and nothing of theirs starves.

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fairshare"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/fleet"
)

// crowd is users whose jobs are always enough for all hosts.
type crowd struct {
	w      *world
	weight map[string]float64 // of users, or of projects if each user has one
	works  map[string][]*work // in the order of submission
}

// used returns how many GPU-seconds a user's tasks have run within a time.
func (c *crowd) used(user string, from, to time.Duration) float64 {
	sum := 0.0
	for _, j := range c.works[user] {
		for _, p := range j.tries {
			begun := p.endsAt - j.runs
			end := p.endsAt
			if !p.over {
				end = to
			}
			sum += max(min(end, to)-max(begun, from), 0).Seconds() * float64(len(p.task.Devices))
		}
	}
	return sum
}

// check compares the shares of the run time with the weights, and looks for jobs that were passed over.
func (c *crowd) check(t *testing.T, from, to time.Duration) {
	t.Helper()
	total, weights := 0.0, 0.0
	for user, w := range c.weight {
		total += c.used(user, from, to)
		weights += w
	}
	for user, w := range c.weight {
		has, should := c.used(user, from, to)/total, w/weights
		if math.Abs(has/should-1) > 0.1 {
			t.Errorf("%s has %.1f %% of the run time, want %.1f %% within a tenth", user, 100*has, 100*should)
		}
		c.checkOrder(t, user)
	}
}

// How many later jobs of its user and owner may start before a job: of those with the same needs, and of all. A job for
// all GPUs of a host is passed over by smaller ones while nothing is set aside for it, which is a time and not a
// number.
const (
	overtakenBySame = fleet.MaxQueued
	overtakenByAny  = 4 * fleet.MaxQueued
)

// checkOrder checks that the jobs of a user at one owner start roughly in their order, at any time.
func (c *crowd) checkOrder(t *testing.T, user string) {
	t.Helper()
	for _, o := range c.w.owners {
		var all []*work // up to the last one that has started
		last, open := 0, false
		for _, j := range c.works[user] {
			if j.owner != o || !j.accepted {
				continue
			}
			all = append(all, j)
			if j.starts > 0 {
				last = len(all)
			}
			open = open || j.starts == 0
		}
		if !open {
			t.Fatalf("all jobs of %s at %s have started: too few for this test", user, o.peer)
		}
		for i, j := range all[:last] {
			same, sum := 0, 0
			for _, later := range all[i+1 : last] {
				if later.starts == 0 || j.starts > 0 && j.startAt <= later.startAt {
					continue
				}
				if sum++; later.spec.Resources == j.spec.Resources {
					same++
				}
			}
			if same > overtakenBySame || sum > overtakenByAny {
				t.Errorf("%d later jobs of its user and owner have started before %s, %d of them ask for the same, want at most %v and at most %v", sum, j, same, overtakenBySame, overtakenByAny)
				break
			}
		}
	}
}

// full is a world of hosts with 16 GPUs, two owners, and users with these weights. The first user submits ten times as
// many jobs as the others.
func full(t *testing.T, seed uint64, each int, weights fairshare.Weights, of map[string]float64, add func(j *work, user string)) *crowd {
	w := newTestWorld(t, seed, options{shares: weights, sampling: time.Hour})
	t.Cleanup(w.report)
	for range 4 {
		w.addHost(hostSpec{gpus: "4xH100", cpus: 16})
	}
	owners := []*owner{w.addOwner(nil), w.addOwner(nil)}
	c := &crowd{w: w, weight: of, works: map[string][]*work{}}
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range len(of) {
		user := fmt.Sprintf("user%d", i)
		jobs := each
		if i == 0 {
			jobs = 10 * each
		}
		for k := range jobs {
			size := []int{1, 1, 1, 1, 1, 1, 2, 4}[r.IntN(8)]
			j := w.newWork(owners[r.IntN(2)], user, gpus(size), between(r, 3*time.Minute, 12*time.Minute))
			add(j, user)
			j.submitAt(time.Duration(k) * 5 * time.Hour / time.Duration(jobs))
			c.works[user] = append(c.works[user], j)
		}
	}
	return c
}

// The times after which shares are checked, and the number of jobs of each user but the first that is enough until
// then.
const (
	usersFor, usersJobs       = 60 * time.Hour, 2850
	projectsFor, projectsJobs = 15 * time.Hour, 700
)

var shareWorlds = flag.Uint64("sim.shares", 1, "how many worlds TestUsersGetTheirShares runs")

func TestUsersGetTheirShares(t *testing.T) {
	for seed := range *shareWorlds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 3))
			of := map[string]float64{}
			for i := range 6 {
				of[fmt.Sprintf("user%d", i)] = float64(1 + r.IntN(4))
			}
			weights := fairshare.Weights{HalfLife: 6 * time.Hour, Users: of}
			c := full(t, seed, usersJobs, weights, of, func(*work, string) {})
			c.w.start()
			c.w.runAll(usersFor)
			c.check(t, usersFor/3, usersFor)
		})
	}
}

func TestProjectsGetTheirShares(t *testing.T) {
	t.Parallel()
	projects := map[string]float64{"p0": 1, "p1": 3, "p2": 2}
	of := map[string]float64{"user0": 1, "user1": 3, "user2": 2}
	weights := fairshare.Weights{HalfLife: 6 * time.Hour, Projects: projects, Users: map[string]float64{"user0": 100}}
	c := full(t, 5, projectsJobs, weights, of, func(j *work, user string) { j.spec.Project = "p" + user[len("user"):] })
	c.w.start()
	c.w.runAll(projectsFor)
	c.check(t, projectsFor/3, projectsFor)
}

// TestWideJobOfAUserOverTheShareStarts has a job for all GPUs of a host, of a user whose small jobs have used far more
// than the share and go on. It starts although others rank before it again and again.
func TestWideJobOfAUserOverTheShareStarts(t *testing.T) {
	w, o := scene(t, 2, hostSpec{gpus: "4xH100", cpus: 16}, options{shares: fairshare.Weights{HalfLife: time.Hour}})
	other := w.addOwner(nil)
	for i := range 1500 {
		at := time.Duration(i) * 15 * time.Second
		w.newWork(o, "ada", gpus(1), 2*time.Minute).submitAt(at)
		w.newWork(other, "bob", gpus(1), 2*time.Minute+time.Second).submitAt(at)
	}
	wide := w.newWork(o, "ada", job.Resources{CPUs: 1, GPUs: 4}, time.Minute)
	wide.submitAt(30 * time.Minute)
	w.start()
	w.runAll(6 * time.Hour)
	before := 0
	for _, j := range w.works {
		if j.user == "ada" && j != wide && j.acceptAt < wide.acceptAt && (wide.starts == 0 || j.startAt == 0 || j.startAt > wide.startAt) {
			before++
		}
	}
	if wide.starts == 0 {
		t.Errorf("the job for four GPUs never started within %v; %d older ones of its user wait", w.now-wide.acceptAt, before)
	}
}
