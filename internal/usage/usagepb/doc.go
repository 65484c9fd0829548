// Package usagepb is the format of a usage.Report on the wire and on disk.
package usagepb
