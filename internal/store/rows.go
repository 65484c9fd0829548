package store

// The rows of jobs: the state that a group's journal entries have led to. Only package state knows what a row
// contains.

import (
	"encoding/binary"
	"fmt"

	"github.com/musterhq/muster/job"
)

// Rows are the jobs of one journal group, as they are after one of its entries. Its methods may be called from any
// goroutine.
type Rows struct {
	store   *Store
	prefix  string // of the rows
	files   string // prefix of the job files, so that reading the rows does not read them
	applied []byte // key of the index
}

// Rows returns the rows of a group.
func (s *Store) Rows(g job.Group) *Rows {
	return &Rows{store: s, prefix: "s/" + g.String() + "/j/", files: "s/" + g.String() + "/f/", applied: []byte("r/" + g.String() + "/a")}
}

// key returns the key of one part of a job. All job ids have the same length, so the parts of a job directly follow its
// header.
func (r *Rows) key(id job.ID, part string) []byte {
	if part == job.PartFile {
		return []byte(r.files + string(id))
	}
	return []byte(r.prefix + string(id) + part)
}

// Save writes rows as they are after the entry with index applied, and deletes all rows of the jobs in gone. It does
// not wait for the disk: after a crash the rows may be those of an earlier index.
func (r *Rows) Save(applied uint64, rows []job.Row, gone []job.ID) error {
	return r.store.Write(func(b Batch) error {
		for _, row := range rows {
			if err := r.put(b, row); err != nil {
				return fmt.Errorf("job %s: %w", row.Job, err)
			}
		}
		for _, id := range gone {
			if err := r.drop(b, id); err != nil {
				return fmt.Errorf("job %s: %w", id, err)
			}
		}
		return r.SetApplied(b, applied)
	})
}

func (r *Rows) put(b Batch, row job.Row) error {
	if row.Data == nil {
		return b.Delete(r.key(row.Job, row.Part))
	}
	return b.Set(r.key(row.Job, row.Part), row.Data)
}

// drop deletes the rows of a job one by one. There are few, and deleting a range would slow down every later read.
func (r *Rows) drop(b Batch, id job.ID) error {
	if err := b.Delete(r.key(id, job.PartFile)); err != nil {
		return err
	}
	return r.store.ReadPrefix(r.key(id, ""), func(key, _ []byte) error { return b.Delete(key) })
}

// SetApplied records in a batch that the rows reflect the entries up to index. It is for a new group; Save does it
// for the rows that it writes.
func (r *Rows) SetApplied(b Batch, index uint64) error {
	return b.Set(r.applied, binary.BigEndian.AppendUint64(nil, index))
}

// Applied returns the index of the last entry that the rows reflect. It is an error if there is no such group.
func (r *Rows) Applied() (uint64, error) { return r.store.ReadNumber(r.applied) }

// File returns the job file of a job, or nil if it has no row of its own.
func (r *Rows) File(id job.ID) ([]byte, error) {
	text, err := r.store.Read(r.key(id, job.PartFile))
	if err != nil {
		return nil, fmt.Errorf("store: read the file of job %s: %w", id, err)
	}
	return text, nil
}

// Load calls each with every row except job files. The rows of a job come together, its header first. If each returns
// an error, Load stops and returns it.
func (r *Rows) Load(each func(job.Row) error) error {
	return r.read([]byte(r.prefix), after([]byte(r.prefix)), each)
}

// Of returns the rows of one job without its file, from part from to before part to, in order. An empty to means the end.
func (r *Rows) Of(id job.ID, from, to string) (rows []job.Row, err error) {
	end := r.key(id, to)
	if to == "" {
		end = after(end)
	}
	err = r.read(r.key(id, from), end, func(row job.Row) error {
		rows = append(rows, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: read the rows of job %s: %w", id, err)
	}
	return rows, nil
}

func (r *Rows) read(from, to []byte, each func(job.Row) error) error {
	return r.store.ReadRange(from, to, func(key, val []byte) error {
		rest := string(key[len(r.prefix):])
		if len(rest) < job.IDBytes {
			return fmt.Errorf("%d bytes, want an id of %d", len(rest), job.IDBytes)
		}
		return each(job.Row{Job: job.ID(rest[:job.IDBytes]), Part: rest[job.IDBytes:], Data: append([]byte{}, val...)})
	})
}
