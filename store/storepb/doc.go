// Package storepb holds the messages that package store keeps on disk, as
// protoc makes them from store.proto.
package storepb
