// Package jobspb holds the protobuf messages of the rows in which jobs are stored on disk.
package jobspb
