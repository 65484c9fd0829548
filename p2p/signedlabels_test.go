package p2p

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/p2p/wirepb"
)

// TestLongestChainWithMostLabelsIsValid checks that the longest chain with the most labels is a valid credential.
func TestLongestChainWithMostLabelsIsValid(t *testing.T) {
	most := map[string]string{}
	for i := range maxSignedLabels {
		most[fmt.Sprintf("l%d", i)] = strings.Repeat("v", maxSignedBytes/maxSignedLabels-2)
	}
	if err := CheckSigned(most); err != nil {
		t.Fatal(err)
	}
	pub, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	by := authority{key: secret, cluster: pub}
	var c *Credential
	for range MaxChain {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		me, err := newIdentity(key)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = by.issueWith(me.id, AllRoles, most, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		by = authority{key: key, cluster: pub, chain: c}
	}
	again, err := ParseCredential(c.encode())
	if err != nil || !maps.Equal(again.Labels, most) {
		t.Fatalf("got %d bytes: labels %v, %v, want again.Labels = %v", len(c.encode()), again, err, most)
	}
	t.Logf("%d bytes", len(c.encode()))

	// A holder who adds a label to its link breaks the signature.
	var w wirepb.Credential
	var body wirepb.LinkBody
	if err := errors.Join(proto.Unmarshal(c.encode(), &w), proto.Unmarshal(w.GetLinks()[0].GetBody(), &body)); err != nil {
		t.Fatal(err)
	}
	body.Labels[0].Value = "other"
	if w.Links[0].Body, err = proto.Marshal(&body); err != nil {
		t.Fatal(err)
	}
	if _, err := credentialFromWire(&w); !errors.Is(err, ErrBadCredential) {
		t.Errorf("a changed label: got %v, want ErrBadCredential", err)
	}
}

func TestInvalidLabelsAreNeitherSignedNorAccepted(t *testing.T) {
	many := map[string]string{}
	for i := range maxSignedLabels + 1 {
		many[fmt.Sprint("l", i)] = "v"
	}
	for what, labels := range map[string]map[string]string{
		"too many": many, "a fact": {"cpus": "4"}, "a misspelt fact": {"gpu.modell": "x"}, "no name": {"": "x"}, "a blank": {"a b": "x"},
		"too long": {"a": strings.Repeat("x", 60), "b": strings.Repeat("x", 60), "c": strings.Repeat("x", 60), "d": strings.Repeat("x", 60), "e": strings.Repeat("x", 60)},
	} {
		if err := CheckSigned(labels); !errors.Is(err, ErrLabels) {
			t.Errorf("%s: got %v, want ErrLabels", what, err)
		}
		if _, err := labelsFromWire(labelsToWire(labels)); err == nil {
			t.Errorf("%s: a peer's label was accepted, want an error", what)
		}
	}
	if _, err := labelsFromWire([]*wirepb.Label{{Name: "a", Value: "x"}, {Name: "a", Value: "y"}}); err == nil {
		t.Error("a peer's label that is there twice was accepted")
	}
}
