package docker

import (
	"errors"
	"strings"
	"testing"
)

// The name of an image affects neither the advice nor the decision to try again.
func TestAdviceIgnoresNames(t *testing.T) {
	for _, c := range []struct {
		text, advice string // a part of the advice; "" for none
		again        bool
	}{
		{`Head "https://r.example/v2/denied/app/manifests/1": received unexpected HTTP status: 500 Internal Server Error`, "", true},
		{`failed to resolve reference "r.example/forbidden:unauthorized": unexpected status: 502 Bad Gateway`, "", true},
		{"manifest for denied:access not found: manifest unknown: manifest unknown", "does not have the image", false},
		{"error from registry: toomanyrequests for x509-denied: slow down", "limits how often", true},
		{"pull access denied for denied, repository does not exist or may require 'docker login'", "if it is private", false},
		{`Get "https://r.example/v2/": dial tcp 192.0.2.1:443: i/o timeout`, "does not reach the registry", true},
		{"no progress for 5m0s", "hangs", true},
	} {
		advice, _ := adviceOn(c.text)
		if again := mayPass(errors.New(c.text)); again != c.again {
			t.Errorf("%s: again %t, want %t", c.text, again, c.again)
		}
		if (c.advice == "") != (advice == "") || !strings.Contains(advice, c.advice) {
			t.Errorf("%s: %q, want %q", c.text, advice, c.advice)
		}
	}
}
