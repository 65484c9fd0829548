package docker

// Why an image cannot be pulled, and what to do about it.

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
)

// maxWords bounds the words of an engine in the reason of a task, in bytes, so that the advice after them is kept. Some of
// them come from the registry.
const maxWords = 400

// refusals pair what an engine or a registry says about a failed pull, in lower case, with what to do. The first that
// fits counts.
var refusals = []struct {
	words  []string
	advice string
	final  bool // the same pull cannot succeed later
}{
	// This comes first, because network errors contain the address of the image, and its name may have any of the words
	// below.
	{[]string{
		"no such host", "connection refused", "i/o timeout", "network is unreachable", "no route to host", "temporary failure in name resolution", "server misbehaving", "tls handshake timeout", "client.timeout", "context deadline exceeded",
	}, "the node does not reach the registry: check the name of the registry and the node's network, or use an image that the node has (docker images; docker load brings one there)", false},
	{[]string{"no progress for"}, "the registry, the network or the node's Docker engine hangs: try docker pull on the node", false},
	{[]string{"no space left"}, "free space on the disk of the node's Docker engine", true},
	{[]string{"no matching manifest", "does not match the specified platform"}, "the image is not made for the node's processor; choose another image, or other nodes", true},
	// An engine cannot tell a private image from one that is not there: registries hide the difference.
	{[]string{"access denied", "access to the resource is denied", "unauthorized", "authentication required", "no basic auth", "forbidden"}, "check the name of the image; if it is private, pull it on the node first, with docker login and docker pull: muster has no credentials", true},
	{[]string{"not found", "manifest unknown", "name unknown", "does not exist"}, "the registry does not have the image: check its name and tag", true},
	{[]string{"denied"}, "check the name of the image; if it is private, pull it on the node first, with docker login and docker pull: muster has no credentials", true},
	{[]string{"toomanyrequests", "too many requests", "rate limit"}, "the registry limits how often this node may pull: try later, or pull it on the node first, with docker login and docker pull", false},
	{[]string{"x509", "certificate", "server gave http response to https"}, "the node's Docker engine does not trust the registry: its settings need the registry's certificate", false},
}

// mayPass reports whether the same pull may succeed later. It may unless the registry has clearly refused.
func mayPass(err error) bool {
	switch {
	case errdefs.IsNotFound(err), errdefs.IsUnauthorized(err), errdefs.IsPermissionDenied(err), errdefs.IsInvalidArgument(err):
		return false
	}
	_, final := adviceOn(err.Error())
	return !final
}

func adviceOn(text string) (advice string, final bool) {
	text = strings.ToLower(withoutNames(text))
	for _, r := range refusals {
		for _, words := range r.words {
			if strings.Contains(text, words) {
				return r.advice, r.final
			}
		}
	}
	return "", false
}

// withoutNames leaves out the names and addresses in what an engine says of a pull: words with a slash, and what follows
// "for" (pull access denied for NAME). Users choose image names, and a name may have any words in it.
func withoutNames(text string) string {
	var kept []string
	named := false
	for word := range strings.FieldsSeq(text) {
		address := strings.Contains(word, "/") && !strings.EqualFold(word, "i/o")
		if !named && !address {
			kept = append(kept, word)
		}
		named = strings.EqualFold(word, "for")
	}
	return strings.Join(kept, " ")
}

// notPulled returns the error of a task whose image cannot be pulled: the engine's words, and what to do.
func notPulled(image string, err error) error {
	text := strings.ToValidUTF8(inOneLine(err), "")
	advice, _ := adviceOn(text)
	if len(text) > maxWords {
		text = strings.ToValidUTF8(text[:maxWords], "") + "…"
	}
	if advice != "" {
		text += "; " + advice
	}
	return fmt.Errorf("image %s cannot be pulled: %s", image, text)
}
