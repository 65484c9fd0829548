// Package storepb holds the protobuf messages of package store, generated from store.proto. It also converts some of
// them, which package journal uses too, to and from the types of package job.
package storepb
