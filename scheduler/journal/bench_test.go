package journal

// The rate of commits of the journal, compared with the limit of the disk.

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/job"
)

// BenchmarkRaw measures the limit of the disk: it appends and syncs 256 bytes, again and again.
func BenchmarkRaw(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "raw"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 256)
	for b.Loop() {
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "syncs/s")
}

// commits is an owner that counts the records of each entry. A Lead counts as zero.
type commits chan int

func (l commits) Deliver(c job.Committed) {
	if len(c.Records) > 0 || c.Lead {
		l <- len(c.Records)
	}
}

func (commits) NotProposed([]job.Record, error) {}
func (commits) Deposed(job.Epoch)               {}

// BenchmarkCommit measures the time of a record from Propose to Deliver, with a constant number of records in flight.
func BenchmarkCommit(b *testing.B) {
	for _, inflight := range []int{1, 32, 128, 1024} {
		b.Run(fmt.Sprintf("inflight=%d", inflight), func(b *testing.B) {
			cfg := store.DefaultConfig()
			cfg.Dir = b.TempDir()
			s, err := store.Open(cfg, quiet)
			if err != nil {
				b.Fatal(err)
			}
			defer closeStore(b, s)
			committed := make(commits, inflight+1)
			j, err := New(DefaultConfig(), s, s.Group(), committed, quiet)
			if err != nil {
				b.Fatal(err)
			}
			ctx, stop := context.WithCancel(b.Context())
			end := make(chan error, 1)
			go func() { end <- j.Run(ctx) }()
			<-committed // the lead
			r := submit(s.Group(), 1)
			b.ReportAllocs()
			b.ResetTimer()
			for sent, done := 0, 0; done < b.N; {
				for sent < b.N && sent-done < inflight {
					if err := j.Propose(r); err != nil {
						b.Fatal(err)
					}
					sent++
				}
				done += <-committed
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
			b.StopTimer()
			stop()
			if err := <-end; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkSave writes one row without a sync, as the scheduler does after each commit.
func BenchmarkSave(b *testing.B) {
	cfg := store.DefaultConfig()
	cfg.Dir = b.TempDir()
	s, err := store.Open(cfg, quiet)
	if err != nil {
		b.Fatal(err)
	}
	defer closeStore(b, s)
	j, err := New(DefaultConfig(), s, s.Group(), &recordingJournal{}, quiet)
	if err != nil {
		b.Fatal(err)
	}
	rows := []job.Row{{Job: job.NewID(s.Group(), 1), Data: make([]byte, 512)}}
	b.ReportAllocs()
	for b.Loop() {
		if err := j.Save(firstIndex, rows, nil); err != nil {
			b.Fatal(err)
		}
	}
}
