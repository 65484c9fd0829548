package worker_test

// The verbs of the stories. PEER is a scheduler. JOB is a name that a story gives to a task; n=2 means its second
// attempt.

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/gpu"
	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/testkit/stories"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/worker"
	"github.com/musterhq/muster/worker/driver"
	"github.com/musterhq/muster/worker/resources"
)

var storyVerbs = map[string]func(*story, stories.Command){
	"host": verbHost,
	"up":   func(s *story, c stories.Command) { s.round(worker.Up{Peer: job.Peer(c.Arg(0))}) },
	"down": func(s *story, c stories.Command) { s.round(worker.Down{Peer: job.Peer(c.Arg(0))}) },
	"owns": verbOwns,
	"bind": func(s *story, c stories.Command) { worker.Bind(s.core, group, job.Peer(c.Arg(0))) },
	"meet": func(s *story, c stories.Command) {
		s.round(worker.Up{Peer: job.Peer(c.Arg(0))})
		verbOwns(s, c)
		verbRenewed(s, c)
	},
	"renewed": verbRenewed,
	"offer":   verbOffer,
	"release": func(s *story, c stories.Command) {
		s.from(c, contract.Release{Offer: s.offers[c.Arg(0)+" "+c.Arg(1)]})
	},
	"take":    verbTake,
	"start":   verbStart,
	"query":   verbQuery,
	"cancel":  verbCancel,
	"ack":     verbAck,
	"process": verbProcess,
	"finish":  verbFinish,
	"policy":  func(s *story, c stories.Command) { s.refuses = strings.Join(c.Args, " ") },
	"disk":    func(s *story, c stories.Command) { s.failing = c.Arg(0) == "fails" },
	"wait":    func(s *story, c stories.Command) { s.wait(c) },
	"drain":   verbDrain,
	"resume":  func(s *story, _ stories.Command) { s.round(worker.Drain{}) },
	"limits":  verbLimits,
	"room":    func(s *story, c stories.Command) { s.round(worker.RoomChanged{Why: strings.Join(c.Args, " ")}) },
	"fault":   verbFault,
	"status":  verbStatus,
	"restart": verbRestart,
	"show":    verbShow,
}

// option returns an option of a command as text.
func option(c stories.Command, name, otherwise string) string {
	return cmp.Or(c.Options[name], otherwise)
}

func (s *story) from(c stories.Command, m contract.ToWorker) { s.says(job.Peer(c.Arg(0)), m) }

func term(c stories.Command) contract.Epoch { return epoch(uint64(c.Options.Number("term", 1))) }

// host [gpus=N] [cpus=N] [mem=SIZE] [real=1] [set-aside=TIME]: a new host; its devices are simulated unless real.
func verbHost(s *story, c stories.Command) {
	cfg := config(c.Options.Number("gpus", 0))
	cfg.Profile.CPUs, cfg.Profile.Memory = c.Options.Number("cpus", 8), c.Options.Size("mem", 64<<30)
	for i := range cfg.Profile.GPUs {
		cfg.Profile.GPUs[i].Simulated = c.Options["real"] == ""
	}
	cfg.SetAside = c.Options.Duration("set-aside", cfg.SetAside)
	s.host = newHost(s.t, cfg)
	s.began = s.now
}

// bind PEER: the peer has taken over the group.

// owns PEER [term=N]: the peer has owned the group since that term.
func verbOwns(s *story, c stories.Command) {
	s.owners[job.Peer(c.Arg(0))] = true
	s.from(c, contract.Owns{Groups: []contract.GroupEpoch{{Group: group, Epoch: term(c)}}})
}

// group returns the group of the jobs of the command's peer.
func (s *story) group(c stories.Command) job.Group {
	if s.owners[job.Peer(c.Arg(0))] {
		return group
	}
	if peer := job.Peer(c.Arg(0)); !s.others[peer] {
		s.others[peer] = true
		worker.Bind(s.core, group+1, peer)
	}
	return group + 1
}

// renewed PEER [term=N] [drop=JOB,...]: answers the newest Renew, and keeps all attempts except those of drop.
func verbRenewed(s *story, c stories.Command) {
	r := s.renewals[job.Peer(c.Arg(0))]
	m := contract.Renewed{Group: r.Group, Epoch: term(c), Clock: r.Clock, Session: r.Session}
	drop := strings.Split(c.Options["drop"], ",")
	for _, a := range r.Live {
		m.Verdicts = append(m.Verdicts, contract.Verdict{Attempt: a, Keep: !slices.Contains(drop, s.name(a))})
	}
	s.from(c, m)
}

func need(c stories.Command) job.Resources {
	return job.Resources{
		CPUs: c.Options.Number("cpus", 1), Memory: c.Options.Size("mem", 0), GPUs: c.Options.Number("gpus", 0), GPUMemory: c.Options.Size("gpumem", 0),
		Exclusive: c.Options["exclusive"] != "",
	}
}

// offer PEER JOB [cpus=N] [mem=SIZE] [gpus=N] [exclusive=1] [wait=D] [priority=N] [age=D] [user=NAME] [term=N]
// [again=1]: again repeats the same offer.
func verbOffer(s *story, c stories.Command) {
	key := c.Arg(0) + " " + c.Arg(1)
	if c.Options["again"] == "" {
		s.offers[key] = uint64(len(s.offers) + 1 + 100*c.Options.Number("n", 1))
	}
	m := offer(s.offers[key], s.attempt(c, c.Arg(1)), need(c))
	m.Group, m.Epoch, m.User, m.Priority = s.group(c), term(c), option(c, "user", "ada"), c.Options.Number("priority", 50)
	m.Wait, m.Age = c.Options.Duration("wait", 0), c.Options.Duration("age", 0)
	s.from(c, m)
}

// start PEER JOB [lease=D] [hold=1] [strange=WHY] [user=NAME] [session=sN] [term=N]: by default in the newest session.
func verbStart(s *story, c stories.Command) {
	session := s.renewals[job.Peer(c.Arg(0))].Session
	if name := c.Options["session"]; name != "" {
		session = s.sessions[slices.IndexFunc(s.sessions, func(id contract.Session) bool { return s.session(id) == name })]
	}
	m := start(s.offers[c.Arg(0)+" "+c.Arg(1)], s.attempt(c, c.Arg(1)), session, need(c))
	m.Group, m.Epoch, m.User = s.group(c), term(c), option(c, "user", "ada")
	m.File = edited(m.File, func(s *job.Spec) { s.Lease = job.Duration(c.Options.Duration("lease", 0)) })
	if c.Options["hold"] != "" {
		m.File = edited(m.File, func(s *job.Spec) { s.Partition = "hold" })
	}
	if why := c.Options["strange"]; why != "" { // a later version wrote it
		m.File = job.StrangeFile([]byte("{}"), "cannot run it: "+why)
	}
	s.from(c, m)
}

// take PEER JOB ...: an offer, a Start, and a running process.
func verbTake(s *story, c stories.Command) {
	verbOffer(s, c)
	verbStart(s, c)
	verbProcess(s, stories.Command{Args: []string{c.Arg(1), "started"}})
}

func verbQuery(s *story, c stories.Command) {
	s.from(c, contract.Query{Attempt: s.attempt(c, c.Arg(1)), Group: s.group(c), Epoch: term(c), Store: option(c, "store", store)})
}

func verbCancel(s *story, c stories.Command) {
	s.from(c, contract.Cancel{
		Attempt: s.attempt(c, c.Arg(1)), Group: s.group(c), Epoch: term(c), Grace: c.Options.Duration("grace", 30*time.Second), Reason: option(c, "reason", "enough"),
	})
}

// ack PEER JOB N: the owner acknowledges the events up to that number.
func verbAck(s *story, c stories.Command) {
	n := c.Options.Number("upto", 4)
	s.from(c, contract.Ack{Attempt: s.attempt(c, c.Arg(1)), Group: s.group(c), Epoch: term(c), N: uint64(n)})
}

// process JOB starting|started|exited|failed|lost [code=N] [signal=N] [detail=WORD] [host=yes]: the report of the
// driver. With host=yes it was the host's fault that it was not started.
func verbProcess(s *story, c stories.Command) {
	a := s.attempt(c, c.Arg(0))
	e := driver.Event{Attempt: a, Kind: driver.Kind(c.Arg(1)), Detail: c.Options["detail"]}
	switch e.Kind {
	case driver.Starting:
	case driver.Started:
		e.PID = 42
	case driver.Exited, driver.Failed, driver.Lost:
		e.Exit = exited(a, c.Options.Number("code", 0)).Exit
		e.Exit.Signal = c.Options.Number("signal", 0)
		if c.Options["host"] == "yes" {
			e.Exit.State = job.NodeFail
		}
	}
	s.running[a] = e
	s.round(e)
}

// finish PEER JOB [code=N]: its process exits, and the owner acknowledges the end.
func verbFinish(s *story, c stories.Command) {
	verbProcess(s, stories.Command{Args: []string{c.Arg(1), "exited"}, Options: c.Options})
	verbAck(s, stories.Command{Args: c.Args})
}

func (s *story) wait(c stories.Command) {
	d, err := time.ParseDuration(c.Arg(0))
	if err != nil {
		s.t.Fatal(err)
	}
	s.pass(d)
}

// drain [REASON] [for=D]: with for, running tasks are stopped after that time.
func verbDrain(s *story, c stories.Command) {
	d := worker.Drain{On: true, Reason: c.Arg(0)}
	if after := c.Options.Duration("for", 0); after > 0 {
		d.Deadline = s.now.Wall.Add(after)
	}
	s.round(d)
}

// limits NAME=N ...: as in the configuration file, with ":" in place of "=" in names.
func verbLimits(s *story, c stories.Command) {
	l, err := resources.ParseLimits(c.Options)
	if err != nil {
		s.t.Fatal(err)
	}
	s.round(worker.LimitsChanged{Limits: l})
}

// fault UUID: the driver reports an error of the device itself.
func verbFault(s *story, c stories.Command) {
	s.round(worker.DeviceFault{Fault: gpu.Fault{UUID: c.Arg(0), Text: gone, Severity: gpu.SeverityDevice}})
}

// status UUID [healthy=no] [mem=SIZE] [pid=N]: the present report of the driver about the device.
func verbStatus(s *story, c stories.Command) {
	st := gpu.Status{UUID: c.Arg(0), Health: gpu.Healthy, MemoryUsed: c.Options.Size("mem", 0)}
	if c.Options["healthy"] == "no" {
		st.Health, st.Detail = gpu.Unhealthy, "rows"
	}
	if pid := c.Options.Number("pid", 0); pid != 0 {
		st.Processes = []gpu.Process{{PID: pid, Memory: st.MemoryUsed}}
	}
	s.round(worker.DeviceStatus{Devices: []gpu.Status{st}})
}

// restart [JOB...] [boot=NAME] [unbegun=JOB]: restarts the daemon. The driver reports the jobs in their last state, and
// that it was never asked to start one.
func verbRestart(s *story, c stories.Command) {
	var adopted worker.Adopted
	for _, name := range c.Args {
		adopted.Found = append(adopted.Found, s.running[s.attempt(c, name)])
	}
	if name := c.Options["unbegun"]; name != "" {
		adopted.NeverBegun = append(adopted.NeverBegun, s.attempt(c, name))
	}
	s.cfg.Boot = option(c, "boot", s.cfg.Boot)
	s.cfg.Seed++
	s.bootWith(adopted)
}

// show: the attempts on disk, and what is free.
func verbShow(s *story, _ stories.Command) {
	for _, r := range s.core.Attempts() {
		s.printf("%s: %s%s", s.name(r.Attempt), r.Phase, on(r.Devices))
	}
	v := s.core.View()
	s.printf("free %s, %d offers wait", freeText(v.Free), v.Queued)
}
