package p2p

// Messages on a stream with their size bounds, and the numbers of errors on the wire.

import (
	"errors"
	"fmt"
	"io"

	"github.com/libp2p/go-msgio/pbio"
	"google.golang.org/protobuf/proto"
)

// The refusals. Each comment says what to do about it.
var (
	// ErrWrongCluster means that the peer or the token belongs to another cluster. Look for a mistyped address or
	// token.
	ErrWrongCluster = errors.New("it is of another cluster")
	// ErrExpired means that the credential has expired. Join again with a new token.
	ErrExpired = errors.New("the credential has expired")
	// ErrRevoked means that the peer was revoked. The daemon that revoked it, or the host with the cluster key, can take
	// the revocation back.
	ErrRevoked = errors.New("the peer was revoked")
	// ErrTokenUnknown means that the daemon never issued this token. Ask for a new one.
	ErrTokenUnknown = errors.New("the token was not issued by this daemon")
	// ErrTokenUsed means that all uses of the token are taken. Ask for a new one.
	ErrTokenUsed = errors.New("the token is used up")
	// ErrTokenExpired means that the token has expired. Ask for a new one.
	ErrTokenExpired = errors.New("the token has expired")
	// ErrNotInviter means that the daemon has no right to sign. Ask another member.
	ErrNotInviter = errors.New("the daemon is no inviter; `muster peers` lists those that are")
	// ErrChainTooLong means that the chain of inviters between the cluster key and this daemon is too long for one more
	// link. Ask an inviter with a shorter chain.
	ErrChainTooLong = errors.New("the daemon is too far from the cluster key to sign for others; ask another inviter")
	// ErrRoles means that the daemon cannot give a role that it lacks. Ask for fewer roles, or ask another inviter.
	ErrRoles = errors.New("the daemon lacks a role that it was asked to give")
	// ErrTooFast means that there were too many tries. Wait a minute.
	ErrTooFast = errors.New("too many tries, wait a minute")
	// ErrNotReady means that the daemon belongs to no cluster yet. Try again.
	ErrNotReady = errors.New("the daemon is not a member of a cluster yet")
	// ErrNotYours means that this daemon may not revoke the peer.
	ErrNotYours = errors.New("this daemon may not revoke it")
	// ErrNotRevoked means that this daemon did not revoke the peer. Ask the daemon that did, or the host with the cluster
	// key.
	ErrNotRevoked = errors.New("this daemon did not revoke it")
	// ErrInternal is an error inside the other daemon. Its log says more.
	ErrInternal = errors.New("internal error at the peer; see its log")
)

// code is the number of a refusal on the wire.
type code uint32

const (
	codeOK       code = 0
	codeInternal code = 1 // all other errors: strangers do not learn internal details
)

// codes pairs each refusal with its number. It is used in both directions.
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

// refusal is a refusal by the other side, as opposed to a failure to reach it.
type refusal struct{ err error }

func (r refusal) Error() string { return "refused: " + r.err.Error() }
func (r refusal) Unwrap() error { return r.err }

// toError returns nil for codeOK.
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

// readMsg reads one message of at most limit bytes. It may read ahead, so use it only on a stream with one message.
func readMsg(r io.Reader, m proto.Message, limit int) error {
	return pbio.NewDelimitedReader(r, limit).ReadMsg(m)
}
