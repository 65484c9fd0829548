package p2p

// Labels that an inviter signs for a host, in its credential. The host cannot give them to itself.
// See docs/adr, ADR 113.

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p/wirepb"
)

// Bounds of the labels of one link. A credential whose chain is full and has the most labels is still smaller than
// maxCredential.
const (
	maxSignedLabels = 8
	maxSignedBytes  = 256 // of all names and values together
)

// ErrLabels are labels that cannot be signed. Correct them.
var ErrLabels = errors.New("labels of an invitation")

// CheckSigned returns an error if labels cannot be signed with an invitation.
func CheckSigned(labels map[string]string) error {
	if len(labels) > maxSignedLabels {
		return fmt.Errorf("%w: %d of them; at most %d", ErrLabels, len(labels), maxSignedLabels)
	}
	size := 0
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if err := job.CheckOwnLabel(k, labels[k]); err != nil {
			return fmt.Errorf("%w: %w", ErrLabels, err)
		}
		size += len(k) + len(labels[k])
	}
	if size > maxSignedBytes {
		return fmt.Errorf("%w: %d bytes of names and values; at most %d", ErrLabels, size, maxSignedBytes)
	}
	return nil
}

func labelsToWire(labels map[string]string) []*wirepb.Label {
	out := make([]*wirepb.Label, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, &wirepb.Label{Name: k, Value: labels[k]})
	}
	return out
}

// labelsFromWire checks the labels of a link; the result is trusted. It is nil if there are none.
func labelsFromWire(wire []*wirepb.Label) (map[string]string, error) {
	if len(wire) == 0 {
		return nil, nil //nolint:nilnil // no labels
	}
	if len(wire) > maxSignedLabels {
		return nil, fmt.Errorf("%d labels; at most %d", len(wire), maxSignedLabels)
	}
	labels := make(map[string]string, len(wire))
	for _, l := range wire {
		if _, again := labels[l.GetName()]; again {
			return nil, fmt.Errorf("label %.60q is there twice", l.GetName())
		}
		labels[l.GetName()] = l.GetValue()
	}
	return labels, CheckSigned(labels)
}
