package api

// Claims of journal groups: the proofs that this daemon has founded its groups, and the route by which an operator makes a
// host forget the epoch of an owner. See docs/adr, ADR 114 and 157.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/musterhq/muster/job"
)

const (
	pathFoundings = "/peer/v1/foundings/"
	// maxFounding bounds the bytes of an answer with a proof.
	maxFounding = 1 << 10
	// maxFoundings bounds the proofs that are read from one answer. A daemon has one group, and perhaps another one that it
	// founded with the previous version.
	maxFoundings = 4
)

// Claim is what this host knows of the owner of the jobs of a group.
type Claim struct {
	Group string   `json:"group" doc:"The end of the ids of its jobs."`
	Owner job.Peer `json:"owner" doc:"The daemon that owns the jobs."`
}

// headerFounding is a header of answers with jobs. Its value proves that the answering daemon has founded a group of these
// jobs. There may be several such headers.
const headerFounding = "Muster-Founding"

// proofsIn returns the well-formed proofs in the headers of an answer.
func proofsIn(h http.Header) (proofs []job.Founding) {
	lines := h.Values(headerFounding)
	for _, v := range lines[:min(len(lines), maxFoundings)] {
		if f, err := job.ParseFounding(v); err == nil {
			proofs = append(proofs, f)
		}
	}
	return proofs
}

// showProofs returns the values of the headers with the proofs of this daemon.
func showProofs(d Directory) (lines []string) {
	for _, f := range d.Foundings() {
		lines = append(lines, f.String())
	}
	return lines
}

// proven checks what another daemon says about jobs: it is believed only about jobs of groups that it owns.
type proven struct {
	directory Directory
	peer      job.Peer
	proofs    []job.Founding
}

// tells reports whether the daemon owns a job, and so is believed about it.
func (p proven) tells(j *Job) bool {
	return j.Owner == p.peer && p.directory.Believes(p.peer, j.ID.Group(), p.proofs)
}

// sends reports whether an event of the daemon is believed. asked has the jobs whose events were requested; empty means all.
func (p proven) sends(e *Event, asked map[job.ID]bool) bool {
	if e.Kind != EventJob && e.Kind != EventGone {
		return true
	}
	if len(asked) > 0 && !asked[e.ID] || len(asked) == 0 && e.Kind == EventGone {
		return false
	}
	return e.Kind == EventGone || e.Job != nil && e.Job.ID == e.ID && p.tells(e.Job)
}

// claimRoutes serves the routes of claims.
type claimRoutes struct {
	*daemons
	directory Directory
}

type groupInput struct {
	Group string `path:"group" maxLength:"16" doc:"The end of the id of a job, after the dash."`
}

type foundingOutput struct{ Body foundingAnswer }

type foundingAnswer struct {
	Founding string `json:"founding"`
}

type claimOutput struct{ Body Claim }

// founding answers with the proof that this daemon has founded a group.
func (r *claimRoutes) founding(_ context.Context, in *groupInput) (*foundingOutput, error) {
	g, err := job.ParseGroup(in.Group)
	if err != nil {
		return nil, bad("%w", err)
	}
	for _, f := range r.directory.Foundings() {
		if f.Proves(r.self, g) {
			return &foundingOutput{foundingAnswer{f.String()}}, nil
		}
	}
	return nil, &notFoundError{"group", in.Group, "this daemon has not founded it"}
}

// forget makes this host forget the epoch of a group's owner.
func (r *claimRoutes) forget(ctx context.Context, in *groupInput) (*claimOutput, error) {
	if err := operator(ctx, "forget the epoch of "+quote(in.Group)); err != nil {
		return nil, err
	}
	g, err := job.ParseGroup(in.Group)
	if err != nil {
		return nil, bad("%w", err)
	}
	owner, err := r.directory.ForgetClaim(ctx, g)
	if err != nil {
		return nil, err
	}
	if owner == "" {
		return nil, &notFoundError{"group", in.Group, "no daemon has claimed its jobs on this host"}
	}
	return &claimOutput{Claim{in.Group, owner}}, nil
}

// Foundings asks other daemons for the proof that they have founded a group.
type Foundings struct {
	HTTP *http.Client // its transport accepts http://PEER/…
}

// Founding returns the proof that a daemon sends. The caller must check it.
func (a Foundings) Founding(ctx context.Context, p job.Peer, g job.Group) (f job.Founding, err error) {
	u := url.URL{Scheme: "http", Host: string(p), Path: pathFoundings + g.String()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return f, fmt.Errorf("api: ask %s: %w", p.Short(), err)
	}
	setRequester(req.Header, requester{})
	resp, err := a.HTTP.Do(req)
	if err != nil {
		return f, fmt.Errorf("api: ask %s whether it has founded group %s: %w", p.Short(), g, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return f, readProblem(resp)
	}
	var answer foundingAnswer
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxFounding)).Decode(&answer); err != nil {
		return f, fmt.Errorf("api: ask %s whether it has founded group %s: %w", p.Short(), g, err)
	}
	return job.ParseFounding(answer.Founding)
}

// ForgetClaim makes the daemon's host forget the epoch of the owner of a group's jobs.
func (c *Client) ForgetClaim(ctx context.Context, g job.Group) (out Claim, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/claims/"+g.String()+"/forget", nil, nil, &out)
	return out, err
}
