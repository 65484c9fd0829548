package api

// The routes that drain and resume a node; the node's own daemon answers.

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// Drain says that a person has taken a node out of service.
type Drain struct {
	Reason   string     `json:"reason"`
	By       string     `json:"by" doc:"The user who drained the node."`
	Since    time.Time  `json:"since"`
	Deadline *time.Time `json:"deadline" doc:"Tasks that still run at this time are ended and run again elsewhere. null: they run on."`
}

// DrainRequest takes a node out of service.
type DrainRequest struct {
	Reason   string   `json:"reason,omitempty" maxLength:"1024"`
	Deadline *float64 `json:"deadline,omitempty" minimum:"0" maximum:"31622400" doc:"In seconds. Tasks that still run after this time are ended and run again elsewhere. Without a deadline they run on."`
}

type drainInput struct {
	ID   string        `path:"id" maxLength:"128" doc:"The node's id, a unique part of it, or its name."`
	Body *DrainRequest `required:"false"`
}

func (r *nodeRoutes) drain(ctx context.Context, in *drainInput) (*nodeOutput, error) {
	if err := operator(ctx, "drain node "+quote(in.ID)); err != nil {
		return nil, err
	}
	request := DrainRequest{}
	if in.Body != nil {
		request = *in.Body
	}
	d := Drain{Reason: request.Reason, By: requesterOf(ctx).user, Since: time.Now().UTC()}
	if request.Deadline != nil {
		until := d.Since.Add(time.Duration(*request.Deadline * float64(time.Second)))
		d.Deadline = &until
	}
	requesterOf(ctx).note.with("reason", d.Reason)
	if err := r.node.Drain(ctx, d); err != nil {
		return nil, err
	}
	return r.thisNode(ctx)
}

func (r *nodeRoutes) resume(ctx context.Context, in *changeInput) (*nodeOutput, error) {
	if err := operator(ctx, "resume node "+quote(in.ID)); err != nil {
		return nil, err
	}
	if err := r.node.Resume(ctx); err != nil {
		return nil, err
	}
	return r.thisNode(ctx)
}

func (r *nodeRoutes) thisNode(ctx context.Context) (*nodeOutput, error) {
	info, err := r.node.Node(ctx)
	if err != nil {
		return nil, err
	}
	return &nodeOutput{NodeDocument(info)}, nil
}

// toNode forwards a request about a node to the node's own daemon.
func (rt *router) toNode(ctx huma.Context, next func(huma.Context)) {
	r, out := humago.Unwrap(ctx)
	m, err := rt.find(ctx.Context(), ctx.Param("id"))
	n := requesterOf(ctx.Context()).note
	n.about(string(m.Peer))
	n.with("name", m.Name)
	switch {
	case err != nil:
		refuse(out, err)
	case m.Self:
		next(ctx)
	case requesterOf(ctx.Context()).from == fromPeer:
		refuse(out, &notFoundError{"node", ctx.Param("id"), "the request reached the daemon of another node"})
	case r.Method != http.MethodGet:
		rt.forward(out, r.WithContext(ctx.Context()), toDaemon(m, r), answerLimit{limit: forwardChange, whole: true})
	case m.State == NodeLost: // do not make a reader wait; changes are tried even if the node seems lost
		refuse(out, fmt.Errorf("node %s: %w: it does not answer; try again when its daemon runs", m.label(), ErrUnavailable))
	default:
		rt.forward(out, r.WithContext(ctx.Context()), toDaemon(m, r), answerLimit{limit: forwardRead, whole: true})
	}
}

// toDaemon returns where to forward the request, with the node's full ID in the path.
func toDaemon(m Member, r *http.Request) destination {
	return destination{peer: m.Peer, path: "/v1/nodes/" + string(m.Peer) + "/" + path.Base(r.URL.Path), who: "node " + m.label()}
}
