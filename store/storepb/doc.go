// Package storepb holds the messages that package store keeps on disk, as protoc makes them from store.proto, and turns
// those that rows and logs share into the values of package job and back.
package storepb
