// Package wirepb holds the protobuf messages of muster's protocols. They are used for transport only: the receiver
// checks each message and converts it to the types of the other packages.
package wirepb
