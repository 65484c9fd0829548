package scheduler

import (
	"errors"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/scheduler/step"
)

// twoHosts is a core that knows a host with one free GPU and one with two.
func twoHosts(t *testing.T, cfg step.Config) *bench {
	x := &bench{core: NewCore(cfg, Saved{}, storyStart), now: storyStart, index: 1}
	x.step(step.Committed{Committed: job.Committed{Index: 1, Epoch: job.Epoch{Term: 1}, Lead: true}})
	for _, name := range []string{"full", "empty"} {
		m := gpuHost(job.Peer(name), 2)
		if name == "full" {
			m.Free.GPUs = m.Free.GPUs[:1]
		}
		x.step(step.SessionUp{Peer: job.Peer(name)}, step.FromWorker{Peer: job.Peer(name), Msg: m})
	}
	x.sent = nil
	return x
}

func config7() step.Config {
	cfg := step.DefaultConfig()
	cfg.Self, cfg.Group, cfg.Seed = "w0", 7, 1
	return cfg
}

// A job is placed by the policy that it names, or else by that of the daemon. The dry run and the explanation of a job
// give the reasons of the same policy.
func TestJobIsPlacedByItsPolicy(t *testing.T) {
	for _, c := range []struct{ daemons, jobs, host, why string }{
		{"frag", "pack", "full", "fullest host: leaves 0 of 2 GPUs"},
		{"frag", "spread", "empty", "emptiest host: leaves 1 of 2 GPUs"},
		{"spread", "", "empty", "emptiest host: leaves 1 of 2 GPUs"},
		{"pack", "", "full", "fullest host: leaves 0 of 2 GPUs"},
		{"", "", "full", "least fragmentation: leaves 0 of 2 GPUs"},
		{"frag", "", "full", "least fragmentation: leaves 0 of 2 GPUs"},
		{"spread", "simple", "full", "least waste: leaves 0 of 2 GPUs"},
	} {
		cfg := config7()
		cfg.Policy = c.daemons
		x := twoHosts(t, cfg)
		s := benchSpec(0)
		s.Resources.GPUs, s.Policy = 1, c.jobs
		x.core.placement.policies.asked(&s, 1)
		offers, err := x.core.View().Offers("amy", false, s)
		if err != nil || offers.Now[0].Name != c.host || offers.Now[0].Why != c.why {
			t.Errorf("%+v: the dry run says %+v, %v, want no error, [0].Name %v and [0].Why %v", c, offers.Now, err, c.host, c.why)
		}
		s.Hold = true
		x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: s}})
		id := x.core.entries.table.Jobs()[0].ID
		if why, err := x.core.View().Why(id); err != nil || why.Now[0].Name != c.host || why.Now[0].Why != c.why {
			t.Errorf("%+v: the explanation says %+v, %v, want no error, [0].Name %v and [0].Why %v", c, why.Now, err, c.host, c.why)
		}
		x.step(step.Hold{Token: 2, Job: id, Release: true})
		x.sentOffer(t, func(contract.Offer) {})
		if d := x.core.entries.byID[id].task(0).dispatch; d == nil || string(d.offers[0].worker.Peer) != c.host || d.why != c.why {
			t.Errorf("%+v: offered %+v, want an offer to the host and for the reason of the policy", c, d)
		}
	}
}

// The device that a policy chooses for a share is in the offer. Whole devices are chosen by the host.
func TestOfferNamesTheDeviceOfAShareOnly(t *testing.T) {
	for _, c := range []struct {
		need   job.Resources
		device string
	}{
		{job.Resources{CPUs: 1, GPUShare: 0.5}, "yes"}, {job.Resources{CPUs: 1, GPUs: 1}, ""}, {job.Resources{CPUs: 1}, ""},
	} {
		x := twoHosts(t, config7())
		s := benchSpec(0)
		s.Resources = c.need
		x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: s}})
		x.sentOffer(t, func(m contract.Offer) {
			if m.Device != "" != (c.device != "") {
				t.Errorf("for %+v the offer names %q, want one only for a share", c.need, m.Device)
			}
		})
	}
}

// A submission with an unknown policy is refused with the names of all policies. A job in the journal that a newer
// version accepted with such a policy gets the default.
func TestUnknownPolicyIsRefused(t *testing.T) {
	x := twoHosts(t, config7())
	s := benchSpec(0)
	s.Policy = "best"
	fx := x.core.Step(x.now, step.Submit{Token: 1, Submission: job.Submission{Spec: s}})
	_, err := x.core.View().Offers("amy", false, s)
	for _, err := range []error{fx.Reply[0].Err, err} {
		if !errors.Is(err, step.ErrInvalid) || !strings.Contains(err.Error(), `policy "best": want one of balanced, frag, pack,`) {
			t.Errorf(`refused with %v, want ErrInvalid and "policy \"best\": want one of balanced, frag, pack," in it`, err)
		}
	}
	id := job.NewID(7, 1)
	x.index++
	x.took(x.core.Step(x.now, step.Committed{Committed: job.Committed{
		Index: x.index, Epoch: job.Epoch{Term: 1}, Records: []job.Record{job.SubmitRecord{Job: id, User: "amy", Spec: s, At: x.now}},
	}}))
	x.sentOffer(t, func(contract.Offer) {})
	if _, err := x.core.View().Why(id); err != nil {
		t.Error(err)
	}
	cfg := config7()
	if cfg.Policy = "best"; cfg.Validate() == nil {
		t.Error("a configuration with an unknown policy is valid")
	}
}

// Gangs have a default policy of their own.
func TestGangsHaveTheirOwnDefaultPolicy(t *testing.T) {
	cfg := config7()
	ps := newPolicies(&cfg)
	for _, c := range []struct {
		spec job.Spec
		want string
	}{
		{job.Spec{}, "frag"}, {job.Spec{Nodes: 1}, "frag"}, {job.Spec{Nodes: 2}, "topology"}, {job.Spec{Nodes: 2, Policy: "pack"}, "pack"},
	} {
		if got := ps.of(&c.spec); got != c.want {
			t.Errorf("%d nodes with policy %q have %s, want %s", c.spec.Nodes, c.spec.Policy, got, c.want)
		}
	}
}

// Jobs of an earlier life of the daemon count among the usual requests, like new jobs.
func TestSavedJobsCountAsUsualRequests(t *testing.T) {
	x := newBench(t, 0, 0)
	x.keep = true
	s := benchSpec(0)
	s.Resources.GPUs, s.Hold = 1, true
	x.step(step.Submit{Token: 1, Submission: job.Submission{Spec: s}})
	var saved Saved
	for _, r := range x.rows {
		if err := saved.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := saved.End(); err != nil {
		t.Fatal(err)
	}
	cfg := config7()
	cfg.Policy = "frag"
	y := &bench{core: NewCore(cfg, saved, x.now), now: x.now, index: 9}
	y.step(step.Committed{Committed: job.Committed{Index: 9, Epoch: job.Epoch{Term: 2}, Lead: true}})
	y.step(step.SessionUp{Peer: "h"}, step.FromWorker{Peer: "h", Msg: gpuHost("h", 2)})
	s.Hold = false
	offers, err := y.core.View().Offers("amy", false, s)
	if err != nil || len(offers.Now) != 1 || offers.Now[0].Why != "least fragmentation: leaves 1 of 2 GPUs" {
		t.Errorf(`%+v, %v, want no error, 1 of them and [0].Why "least fragmentation: leaves 1 of 2 GPUs"`, offers.Now, err)
	}
}
