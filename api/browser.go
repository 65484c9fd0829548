package api

// Browsers: the TCP listener serves the web pages of this daemon, and refuses requests of all other web pages.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/musterhq/muster/internal/dashboard/origin"
	"github.com/musterhq/muster/internal/dashboard/ui"
	"github.com/musterhq/muster/internal/docsite"
)

// guardOf returns the guard of the TCP listener. Without a token only programs of this host can connect. But a web page in
// a browser of this host also can, by any name that resolves to loopback. Hence the server only answers to the names of
// loopback and to the names in the configuration. With a token it also answers to any address.
func guardOf(cfg Config) origin.Guard {
	g := origin.Guard{Names: append([]string{}, origin.Loopback...), Hint: "use 127.0.0.1 or localhost, or name it in the setting http-host"}
	for _, name := range cfg.Hosts {
		g.Proxied = append(g.Proxied, strings.ToLower(name))
	}
	g.Names = append(g.Names, g.Proxied...)
	if cfg.TokenFile != "" {
		g.Addresses, g.Hint = true, "use its address, or name it in the setting http-host"
	}
	return g
}

// checkPage returns a Problem for a request that comes from a web page of another origin.
func checkPage(g origin.Guard, r *http.Request, page bool) error {
	err := g.Check(r, page)
	if no, ok := errors.AsType[*origin.RefusalError](err); ok {
		return problemOfStatus(no.Status, no.Error())
	}
	return err
}

// servePage serves the dashboard, its page for wrong addresses, and the documentation. They hold no secrets, so they need
// no token. It returns false for all other requests, and for requests that identify must refuse.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	guides, missing := docsite.Serves(r.URL.Path), ui.IsMissing(r) && !origin.IsSocket(r)
	if !reads || !guides && !missing && !ui.Serves(r.URL.Path) || checkPage(s.auth.guard, r, guides || missing || ui.IsPage(r.URL.Path)) != nil {
		return false
	}
	switch {
	case guides:
		s.docs.ServeHTTP(w, r)
	case missing:
		ui.ServeMissing(w, r)
	default:
		ui.Serve(w, r)
	}
	return true
}

// byTicket returns the requester of a WebSocket that a web page opens. The page shows a ticket, because it cannot send a
// token. Its origin has been checked. byTicket removes the header, because other daemons would refuse it.
func (a *authenticator) byTicket(r *http.Request) (requester, error) {
	who, ok := a.tickets.Take(r)
	if !ok {
		return requester{}, fmt.Errorf("%w: the ticket of this WebSocket is missing, used, late or for another one; get one with POST /v1/tickets", ErrUnauthorized)
	}
	r.Header.Del("Origin")
	who.ticket = true
	return who, nil
}

// TicketRequest asks for a ticket.
type TicketRequest struct {
	Target string `json:"target" minLength:"1" maxLength:"2048" pattern:"^/v1/" doc:"Path and query of the WebSocket."`
}

// Ticket lets a web page open a WebSocket.
type Ticket struct {
	Ticket string `json:"ticket" doc:"Opens the WebSocket once, within 30 seconds, as the protocol muster.ticket.TICKET after the protocol muster."`
}

type (
	ticketInput  struct{ Body TicketRequest }
	ticketOutput struct{ Body Ticket }
)

// ticketRoutes gives tickets to web pages.
type ticketRoutes struct{ tickets *origin.Tickets[requester] }

func (t *ticketRoutes) make(ctx context.Context, in *ticketInput) (*ticketOutput, error) {
	who := requesterOf(ctx)
	if who.from != fromTCP {
		return nil, fmt.Errorf("ticket: %w: tickets are for web pages of the TCP listener", ErrConflict)
	}
	who.note = nil
	text, ok := t.tickets.Issue(in.Body.Target, who)
	if !ok {
		return nil, fmt.Errorf("ticket: %w: as many tickets are open as there may be; use them, or try again in half a minute", ErrTooMany)
	}
	return &ticketOutput{Ticket{text}}, nil
}
