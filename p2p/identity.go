package p2p

// The identity of this daemon: an Ed25519 key in the data directory, made at the first start.

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

// ErrIdentity is a key file that cannot be used. Restore it from a backup, or remove it; the daemon then has a new
// identity and must join again.
var ErrIdentity = errors.New("not a valid key file")

const (
	identityFile = "identity.key"
	// identityPrefix begins the file, so that another kind of key is not accepted.
	identityPrefix = "muster-identity-1 "
)

// identity is the daemon's key and the peer ID derived from it.
type identity struct {
	key ed25519.PrivateKey
	id  peer.ID
}

// loadIdentity reads the key of a data directory, or makes one.
func loadIdentity(d disk) (identity, error) {
	text, err := d.read(identityFile)
	if err != nil {
		return identity{}, err
	}
	path := filepath.Join(d.dir, identityFile)
	if text == nil {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return identity{}, fmt.Errorf("p2p: make %s: %w", path, err)
		}
		if err := d.write(identityFile, encodeKey(identityPrefix, key)); err != nil {
			return identity{}, err
		}
		return newIdentity(key)
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o077 != 0 {
		return identity{}, fmt.Errorf("p2p: read %s: other users can read it (mode %04o): run chmod 600, or remove it to become a new daemon", path, info.Mode().Perm())
	}
	key, err := decodeKey(identityPrefix, text)
	if err != nil {
		return identity{}, fmt.Errorf("p2p: read %s: %w: restore it, or remove it to become a new daemon", path, err)
	}
	return newIdentity(key)
}

func newIdentity(key ed25519.PrivateKey) (identity, error) {
	pub, err := crypto.UnmarshalEd25519PublicKey(key.Public().(ed25519.PublicKey))
	if err != nil {
		return identity{}, fmt.Errorf("p2p: own key: %w", err)
	}
	id, err := peer.IDFromPublicKey(pub)
	if err != nil {
		return identity{}, fmt.Errorf("p2p: own key: %w", err)
	}
	return identity{key: key, id: id}, nil
}

// libp2p returns the key in libp2p's type.
func (i identity) libp2p() (crypto.PrivKey, error) { return crypto.UnmarshalEd25519PrivateKey(i.key) }

func encodeKey(prefix string, key ed25519.PrivateKey) []byte {
	return []byte(prefix + base64.StdEncoding.EncodeToString(key.Seed()) + "\n")
}

func decodeKey(prefix string, text []byte) (ed25519.PrivateKey, error) {
	rest, ok := strings.CutPrefix(string(text), prefix)
	if !ok {
		return nil, ErrIdentity
	}
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, ErrIdentity
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// edKey returns the Ed25519 key in a peer ID. Clusters accept no other kind of peer ID.
func edKey(id peer.ID) (ed25519.PublicKey, error) {
	pub, err := id.ExtractPublicKey()
	if err != nil {
		return nil, fmt.Errorf("peer id without a key: %w", err)
	}
	if pub.Type() != crypto.Ed25519 {
		return nil, errors.New("peer id is not of an Ed25519 key")
	}
	raw, err := pub.Raw()
	if err != nil {
		return nil, fmt.Errorf("peer id: %w", err)
	}
	return raw, nil
}
