// Package journalpb holds the messages of a journal's log, as protoc makes them from journal.proto.
package journalpb
