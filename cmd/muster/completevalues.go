package main

// Values that completion suggests: fixed words, and what the daemon knows of jobs and nodes.

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/daemon"
	"github.com/musterhq/muster/job"
)

const (
	// completionTime bounds the wait for the daemon, because the user waits after the tab key.
	completionTime = 150 * time.Millisecond
	// completionJobs bounds the jobs that are suggested.
	completionJobs = 100
)

// jobArguments has the verbs whose arguments are jobs, each with the number of arguments (0: any number) and the states
// of the jobs (none: all).
var jobArguments = map[string]struct {
	most   int
	states []job.State
}{
	"show": {1, nil}, "why": {1, unended()}, "wait": {0, unended()}, "logs": {1, nil}, "cancel": {0, unended()},
	"hold": {0, []job.State{job.Pending}}, "release": {0, []job.State{job.Held}}, "requeue": {0, nil},
	"exec": {1, []job.State{job.Running}}, "cp": {1, nil}, "events": {1, nil},
}

// nodeArguments has the verbs whose argument is a node.
var nodeArguments = []string{"node show", "node drain", "node resume", "node declare-dead"}

// unended returns the states of jobs that have not ended.
func unended() []job.State {
	return slices.DeleteFunc(job.States(), job.State.Ended)
}

// arguments returns what the next argument may be.
func (at place) arguments(ctx context.Context) (all []suggestion, files bool) {
	jobs, ofJobs := jobArguments[at.path]
	switch {
	case len(at.verbs) > 0:
		return verbWords(at.verbs), true
	case at.path == "completion" && at.plain == 0:
		return plainWords("bash", "zsh", "fish"), false
	case at.path == "help":
		return at.helped(), false //nolint:contextcheck // no verb is carried out
	case slices.Contains(nodeArguments, at.path):
		if at.plain == 0 {
			all = at.nodes(ctx)
		}
		return all, false
	case at.path == "users":
		return at.shares(ctx, func(u api.User) string { return u.User }), false
	case ofJobs && (jobs.most == 0 || at.plain < jobs.most):
		return at.jobs(ctx, jobs.states), false
	}
	return nil, true
}

// helped returns the verbs after help.
func (at place) helped() []suggestion {
	verbs := newApp(streams{}).Commands
	for _, w := range at.words[slices.Index(at.words, "help")+1:] {
		c := find(verbs, w)
		if c == nil {
			return nil
		}
		verbs = c.Subcommands
	}
	return verbWords(verbs)
}

// values returns what the value of a flag may be.
func (at place) values(ctx context.Context) (all []suggestion, files bool) {
	switch at.flag {
	case "state":
		for _, s := range job.States() {
			all = append(all, suggestion{s.Code(), string(s)})
		}
		for _, s := range job.States() {
			all = append(all, suggestion{string(s), s.Meaning()})
		}
		return all, false
	case "nodelist", "exclude", "node":
		return at.nodes(ctx), false
	case "in":
		return at.jobs(ctx, []job.State{job.Running}), false
	case "dependency":
		return at.dependencies(ctx), false
	case "user":
		return at.shares(ctx, func(u api.User) string { return u.User }), false
	case "project":
		return at.shares(ctx, func(u api.User) string { return u.Project }), false
	case "action":
		for _, a := range audit.Actions() {
			all = append(all, suggestion{string(a), a.What()})
		}
		return all, false
	case "kind":
		return plainWords("job", "task", "node", "gpu", "member", "gone"), false
	case "policy":
		return plainWords(daemon.Policies()...), false
	case "kill-on-bad-exit":
		return plainWords("yes", "no"), false
	case "roles":
		return plainWords("worker", "scheduler", "inviter"), false
	}
	for _, s := range settings() {
		if s.name == at.flag && len(s.words) > 0 {
			return plainWords(s.words...), false
		}
	}
	return nil, true
}

// jobs returns the newest jobs in the states, and the words that mean jobs.
func (at place) jobs(ctx context.Context, states []job.State) (all []suggestion) {
	client := at.client()
	if client == nil {
		return nil
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	l, err := client.Jobs(ctx, api.JobFilter{States: states, Limit: completionJobs})
	if err != nil || len(l.Items) == 0 {
		return nil // a message would stand in the middle of the command line
	}
	for _, j := range l.Items {
		if _, err := job.ParseID(string(j.ID)); err != nil {
			continue
		}
		all = append(all, suggestion{string(j.ID), printable(fmt.Sprintf("%s, %s of %s", dash(j.Name), j.State, j.User))})
	}
	return append(all, suggestion{"last", "the job that you submitted last"})
}

// dependencies returns the conditions, or after one the newest jobs.
func (at place) dependencies(ctx context.Context) (all []suggestion) {
	i := strings.LastIndexByte(at.typed, ':')
	if i < 0 {
		for _, c := range job.Conditions() {
			all = append(all, suggestion{string(c) + ":", ""})
		}
		return all
	}
	for _, j := range at.jobs(ctx, nil) {
		if j.word != "last" {
			all = append(all, suggestion{at.typed[:i+1] + j.word, j.about})
		}
	}
	return all
}

// shares returns the users or projects that the cluster knows.
func (at place) shares(ctx context.Context, of func(api.User) string) (all []suggestion) {
	client := at.client()
	if client == nil {
		return nil
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	l, err := client.Users(ctx)
	if err != nil {
		return nil
	}
	var names []string
	for _, u := range l.Items {
		if plainName(of(u)) {
			names = append(names, of(u))
		}
	}
	slices.Sort(names)
	return plainWords(slices.Compact(names)...)
}

// nodes returns the nodes by name.
func (at place) nodes(ctx context.Context) (all []suggestion) {
	client := at.client()
	if client == nil {
		return nil
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, completionTime)
	defer cancel()
	l, err := client.Nodes(ctx)
	if err != nil {
		return nil
	}
	for _, n := range l.Items {
		if plainName(n.Name) { // a member chooses its name, and the shell may expand it
			all = append(all, suggestion{n.Name, printable(string(n.State) + ", " + gpuSummary(n.GPUs))})
		}
	}
	return all
}

// plainName reports whether a name means nothing to a shell.
func plainName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-:", r)
	})
}

// client returns the client of the daemon that the command line or the environment names; nil if there can be none.
func (at place) client() *api.Client {
	cfg := api.ClientConfig{Socket: os.Getenv("MUSTER_SOCKET"), Addr: os.Getenv("MUSTER_ADDR")}
	token := os.Getenv("MUSTER_API_TOKEN_FILE")
	if s := at.given("socket"); s != "" {
		cfg.Socket, cfg.Addr = s, ""
	}
	if a := at.given("addr"); a != "" {
		cfg.Addr = a
	}
	if t := at.given("api-token"); t != "" {
		token = t
	}
	if cfg.Socket == "" {
		cfg.Socket = daemon.FindSocket()
	}
	if cfg.Addr != "" && token != "" {
		text, err := os.ReadFile(token)
		if err != nil {
			return nil
		}
		cfg.Token = strings.TrimSpace(string(text))
	}
	client, err := api.NewClient(cfg)
	if err != nil {
		return nil
	}
	return client
}

// given returns the value of a flag among the words before the place.
func (at place) given(flag string) string {
	for i, w := range at.words {
		value, joined := strings.CutPrefix(w, "--"+flag+"=")
		switch {
		case joined:
			return value
		case w == "--"+flag && i+2 < len(at.words) && at.words[i+1] == "=": // bash splits words here
			return at.words[i+2]
		case w == "--"+flag && i+1 < len(at.words):
			return at.words[i+1]
		}
	}
	return ""
}
