package api

// Claims: the proof that this daemon has founded its journal group, and the operator's way to have a false claim forgotten.
// See docs/adr, ADR 114.

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
	// maxFounding bounds the answer of a daemon that is asked for its proof.
	maxFounding = 1 << 10
)

// Claim is what this host knew of the owner of the jobs of a group.
type Claim struct {
	Group string   `json:"group" doc:"The end of the ids of its jobs."`
	Owner job.Peer `json:"owner" doc:"The daemon that was taken for the owner of the jobs."`
}

// headerFounding has the proof that the daemon that answers has founded the group of the jobs in its answer.
const headerFounding = "Muster-Founding"

// proofIn returns the proof of an answer; none if there is none that can be read.
func proofIn(h http.Header) job.Founding {
	f, err := job.ParseFounding(h.Get(headerFounding))
	if err != nil {
		return job.Founding{}
	}
	return f
}

// proven says whose jobs another daemon may tell of: its own.
type proven struct {
	directory Directory
	peer      job.Peer
	proof     job.Founding
}

// tells reports whether what the daemon says of a job is believed.
func (p proven) tells(j *Job) bool {
	return j.Owner == p.peer && p.directory.Believes(p.peer, j.ID.Group(), p.proof)
}

// sends reports whether an event of the daemon is believed. asked has the jobs whose events were asked for; empty: all.
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
type claimRoutes struct{ directory Directory }

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
	own, f := r.directory.Home()
	if g != own || f == (job.Founding{}) {
		return nil, &notFoundError{"group", in.Group, "this daemon has not founded it"}
	}
	return &foundingOutput{foundingAnswer{f.String()}}, nil
}

// forget has this host forget which daemon owns a group.
func (r *claimRoutes) forget(ctx context.Context, in *groupInput) (*claimOutput, error) {
	if err := operator(ctx, "forget the claim of "+quote(in.Group)); err != nil {
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

// Founding returns the proof that a daemon gives, which the caller has to check.
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

// ForgetClaim has the daemon forget which daemon owns the jobs of a group.
func (c *Client) ForgetClaim(ctx context.Context, g job.Group) (out Claim, err error) {
	err = c.call(ctx, http.MethodPost, "/v1/claims/"+g.String()+"/forget", nil, nil, &out)
	return out, err
}
