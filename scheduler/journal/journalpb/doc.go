// Package journalpb holds the protobuf messages of a journal's log, generated from journal.proto.
package journalpb
