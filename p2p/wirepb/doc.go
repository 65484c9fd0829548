// Package wirepb holds the protobuf messages of muster's protocols, for
// transport only: each is checked and turned into the words of the other
// packages where it arrives.
package wirepb
