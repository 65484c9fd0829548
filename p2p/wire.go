package p2p

// What goes over a stream: bounded messages, and the numbers that errors travel as.

import (
	"errors"
	"fmt"
	"io"

	"github.com/libp2p/go-msgio/pbio"
	"google.golang.org/protobuf/proto"
)

// The refusals. Each says what the one who meets it can do.
var (
	// ErrWrongCluster: the peer or the token is of another cluster; look for a mistyped address or token.
	ErrWrongCluster = errors.New("it is of another cluster")
	// ErrExpired: the credential has run out; join again with a new token.
	ErrExpired = errors.New("the credential has expired")
	// ErrRevoked: the peer was taken out of the cluster; it stays out.
	ErrRevoked = errors.New("the peer was revoked")
	// ErrTokenUnknown: the daemon never gave out this token; ask for a new one.
	ErrTokenUnknown = errors.New("the token was not issued by this daemon")
	// ErrTokenUsed: all uses of the token are gone; ask for a new one.
	ErrTokenUsed = errors.New("the token is used up")
	// ErrTokenExpired: the token's time is over; ask for a new one.
	ErrTokenExpired = errors.New("the token has expired")
	// ErrNotInviter: the daemon may not sign; ask another member.
	ErrNotInviter = errors.New("the daemon is no inviter")
	// ErrChainTooLong: the daemon was itself invited through too many others; ask one that was invited earlier.
	ErrChainTooLong = errors.New("the daemon is too far from the cluster key to sign for others; ask another inviter")
	// ErrRoles: the daemon cannot give roles that it lacks; ask for fewer, or another inviter.
	ErrRoles = errors.New("the daemon lacks a role that it was asked to give")
	// ErrTooFast: too many tries; wait a minute.
	ErrTooFast = errors.New("too many tries, wait a minute")
	// ErrNotReady: the daemon belongs to no cluster yet; try again.
	ErrNotReady = errors.New("the daemon is not a member of a cluster yet")
	// ErrInternal: something went wrong inside the other daemon; its log says what.
	ErrInternal = errors.New("internal error at the peer; see its log")
)

// code is a refusal on the wire.
type code uint32

const (
	codeOK       code = 0
	codeInternal code = 1 // what went wrong inside is not a stranger's business
)

// codes pairs each refusal with its number, for both ways.
var codes = []struct {
	code code
	err  error
}{
	{codeInternal, ErrInternal},
	{2, ErrBadCredential},
	{3, ErrWrongCluster},
	{4, ErrExpired},
	{5, ErrRevoked},
	{6, ErrTokenUnknown},
	{7, ErrTokenUsed},
	{8, ErrTokenExpired},
	{9, ErrNotInviter},
	{10, ErrChainTooLong},
	{11, ErrRoles},
	{12, ErrTooFast},
	{13, ErrNotReady},
}

func codeOf(err error) code {
	if err == nil {
		return codeOK
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return codeInternal
}

// refusal is the other side's no, as opposed to not reaching it.
type refusal struct{ err error }

func (r refusal) Error() string { return "refused: " + r.err.Error() }
func (r refusal) Unwrap() error { return r.err }

// toError is nil for codeOK.
func (c code) toError() error {
	if c == codeOK {
		return nil
	}
	for _, known := range codes {
		if known.code == c {
			return refusal{known.err}
		}
	}
	return refusal{fmt.Errorf("code %d of a newer version: %w", c, ErrInternal)}
}

func isRefusal(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

func writeMsg(w io.Writer, m proto.Message) error { return pbio.NewDelimitedWriter(w).WriteMsg(m) }

// readMsg reads one message of at most limit bytes. It may read ahead, so one
// reader serves a whole stream: use it where one message comes.
func readMsg(r io.Reader, m proto.Message, limit int) error {
	return pbio.NewDelimitedReader(r, limit).ReadMsg(m)
}
