package p2p

// Tokens: the text that lets a host join.

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

// ErrBadToken is text that is not a valid token: incomplete, mistyped or something else.
var ErrBadToken = errors.New("not a token: copy the whole muster1-… word")

const (
	tokenPrefix = "muster1-"
	secretSize  = 16 // 128 bits cannot be guessed; the rate limit on guesses only keeps the log short
	sumSize     = 4  // detects a mistyped character before anybody is asked
	tokenSize   = clusterSize + ed25519.PublicKeySize + 1 + secretSize + sumSize
)

// secret is the secret part of a token.
type secret [secretSize]byte

// hash returns the hash that the issuer stores instead of the secret.
func (s secret) hash() [sha256.Size]byte {
	return sha256.Sum256(append([]byte("muster token 1\n"), s[:]...))
}

// name returns a name for a secret that reveals nothing about it.
func (s secret) name() string {
	h := s.hash()
	return hex.EncodeToString(h[:6])
}

func newSecret() (secret, error) {
	var s secret
	if _, err := rand.Read(s[:]); err != nil {
		return s, fmt.Errorf("p2p: generate a secret: %w", err)
	}
	return s, nil
}

// token is the content of a token's text: the cluster, the issuer, the roles, and the secret. Only the issuer is shown the
// secret.
type token struct {
	cluster clusterID
	issuer  peer.ID
	roles   Roles
	secret  secret
}

// String returns the text of the token; never log it.
func (t token) String() string {
	key, err := edKey(t.issuer)
	if err != nil {
		return ""
	}
	b := make([]byte, 0, tokenSize)
	b = append(b, t.cluster[:]...)
	b = append(b, key...)
	b = append(b, byte(t.roles))
	b = append(b, t.secret[:]...)
	sum := tokenSum(b)
	return tokenPrefix + letters.EncodeToString(append(b, sum[:]...))
}

func tokenSum(b []byte) [sumSize]byte {
	sum := sha256.Sum256(append([]byte(tokenPrefix), b...))
	return [sumSize]byte(sum[:sumSize])
}

// parseToken parses the text of a token, in upper or lower case.
func parseToken(text string) (token, error) {
	rest, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(text)), tokenPrefix)
	if !ok || len(rest) != letters.EncodedLen(tokenSize) {
		return token{}, ErrBadToken
	}
	b, err := letters.DecodeString(rest)
	if err != nil || len(b) != tokenSize || letters.EncodeToString(b) != rest {
		return token{}, ErrBadToken
	}
	body, sum := b[:tokenSize-sumSize], [sumSize]byte(b[tokenSize-sumSize:])
	if tokenSum(body) != sum {
		return token{}, ErrBadToken
	}
	var t token
	body = body[copy(t.cluster[:], body):]
	pub, err := crypto.UnmarshalEd25519PublicKey(body[:ed25519.PublicKeySize])
	if err != nil {
		return token{}, ErrBadToken
	}
	if t.issuer, err = peer.IDFromPublicKey(pub); err != nil {
		return token{}, ErrBadToken
	}
	body = body[ed25519.PublicKeySize:]
	t.roles = Roles(body[0])
	if t.roles == 0 || t.roles&^AllRoles != 0 {
		return token{}, ErrBadToken
	}
	copy(t.secret[:], body[1:])
	return t, nil
}
