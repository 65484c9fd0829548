// Package jobspb is the rows of jobs as protobuf: what of a job is kept on disk.
package jobspb
