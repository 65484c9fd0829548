package api

// Errors: those that the daemon and the client share, and the problem documents that carry them.

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/job"
)

var (
	// ErrNotFound is a job, node, attempt or path that does not exist. Check the name.
	ErrNotFound = errors.New("not found")
	// ErrBad is an invalid request. Correct it.
	ErrBad = errors.New("invalid request")
	// ErrTooLarge is a request that exceeds a bound. Put large data in files.
	ErrTooLarge = errors.New("too large")
	// ErrNoMatch is a job that nothing in the cluster could ever run. Ask for less, or submit it on hold. See
	// NoMatchError and Problem.Explanation.
	ErrNoMatch = errors.New("nothing in the cluster could ever run this")
	// ErrConflict is a request that the present state does not allow, such as a hold of a running job, or a different
	// job under an idempotency key that is in use.
	ErrConflict = errors.New("conflict")
	// ErrUnavailable is a daemon that does not answer now. Try again.
	ErrUnavailable = errors.New("unavailable")
	// ErrTooMany is a request of a user or a daemon that has too many requests in progress. End some, or try again.
	ErrTooMany = errors.New("too many")
	// ErrUnauthorized is a request over TCP without the right token.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrDenied is a request that this user may not make.
	ErrDenied = errors.New("not allowed")
	// ErrNotYet is a request for something that the daemon's version does not support. This version never returns it.
	ErrNotYet = job.ErrNotYet
)

// NoMatchError is ErrNoMatch with an explanation of why no host can run the job.
type NoMatchError struct{ Explanation contract.Explanation }

// Error returns the reason in one line.
func (e *NoMatchError) Error() string {
	if e.Explanation.Reason.Detail == "" {
		return ErrNoMatch.Error()
	}
	return ErrNoMatch.Error() + ": " + e.Explanation.Reason.Detail
}

// Is reports whether target is ErrNoMatch.
func (e *NoMatchError) Is(target error) bool { return target == ErrNoMatch }

// problems pairs each error with its code and status. It is used in both directions.
var problems = []struct {
	err    error
	code   string
	status int
}{
	{ErrNotFound, "not-found", http.StatusNotFound},
	{ErrNoMatch, codeNoMatch, http.StatusUnprocessableEntity},
	{ErrNotYet, "not-yet", http.StatusNotImplemented},
	{ErrTooLarge, "too-large", http.StatusRequestEntityTooLarge},
	{ErrBad, "bad-request", http.StatusUnprocessableEntity},
	{ErrConflict, "conflict", http.StatusConflict},
	{ErrUnauthorized, "unauthorized", http.StatusUnauthorized},
	{ErrDenied, "denied", http.StatusForbidden},
	{ErrTooMany, "too-many", http.StatusTooManyRequests},
	{ErrUnavailable, "unavailable", http.StatusServiceUnavailable},
	{context.DeadlineExceeded, "unavailable", http.StatusServiceUnavailable},
}

const (
	codeInternal = "internal"
	codeNoMatch  = "no-match"
	problemType  = "urn:muster:problem:"
	contentProb  = "application/problem+json"
)

// Problem is an RFC 9457 problem document. The client returns it as an error: errors.Is reports the error of its code.
type Problem struct { //nolint:errname // a document first, and by its name in the standard
	Type        string       `json:"type" doc:"urn:muster:problem: followed by the code."`
	Title       string       `json:"title"`
	Status      int          `json:"status"`
	Detail      string       `json:"detail"`
	Code        string       `json:"code" doc:"A stable word: not-found, no-match, not-yet, too-large, bad-request, conflict, unauthorized, denied, too-many, unavailable or internal."`
	Errors      []Flaw       `json:"errors,omitempty"`
	Explanation *Explanation `json:"explanation,omitempty" doc:"With no-match: which requirements of the job no node meets."`
}

// Flaw is one error in a request, and where it is.
type Flaw struct {
	Location string `json:"location,omitempty"`
	Message  string `json:"message"`
}

// Error returns the problem in one line.
func (p *Problem) Error() string {
	flaws := make([]string, 0, len(p.Errors))
	for _, f := range p.Errors {
		if f.Location != "" {
			f.Message += " (" + f.Location + ")"
		}
		flaws = append(flaws, f.Message)
	}
	text := p.Detail
	if len(flaws) > 0 {
		text += ": " + strings.Join(flaws, "; ")
	}
	return strings.ReplaceAll(text, "\n", "; ")
}

// Is reports whether target is the error of the problem's code.
func (p *Problem) Is(target error) bool {
	for _, row := range problems {
		if row.code == p.Code && row.err == target {
			return true
		}
	}
	return false
}

// GetStatus returns the HTTP status, for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType returns the content type of a problem document, for huma.
func (p *Problem) ContentType(string) string { return contentProb }

// problemOf returns the document of an error.
func problemOf(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	p := newProblem(codeInternal, http.StatusInternalServerError, err.Error())
	for _, row := range problems {
		if errors.Is(err, row.err) {
			p = newProblem(row.code, row.status, err.Error())
			break
		}
	}
	if none, ok := errors.AsType[*NoMatchError](err); ok {
		doc := ExplanationDocument(none.Explanation)
		p.Explanation = &doc
	}
	return p
}

func newProblem(code string, status int, detail string) *Problem {
	return &Problem{Type: problemType + code, Title: http.StatusText(status), Status: status, Detail: detail, Code: code}
}

// problemOfStatus returns the document of a refusal of which only the status is known.
func problemOfStatus(status int, detail string) *Problem {
	for _, row := range problems {
		if row.status == status && row.code != codeNoMatch {
			return newProblem(row.code, status, detail)
		}
	}
	if status >= http.StatusBadRequest && status < http.StatusInternalServerError {
		return newProblem("bad-request", status, detail)
	}
	return newProblem(codeInternal, status, detail)
}

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrBad, fmt.Errorf(format, args...))
}
