package ledger

// The rows of job files in the ledger: one for each file, as long as a record refers to it.

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/contract"
	"github.com/musterhq/muster/internal/store"
	"github.com/musterhq/muster/internal/store/storepb"
	"github.com/musterhq/muster/job"
)

const filePrefix = "w/f/"

func fileKey(sum job.Digest) []byte { return []byte(filePrefix + hex.EncodeToString(sum[:])) }

var errNoFile = errors.New("its row is missing")

// jobFiles are the job files on disk.
type jobFiles struct {
	records map[job.Digest]int         // how many records on disk have the file
	of      map[job.Attempt]job.Digest // the file of each record that has one
}

// fileChanges are the changes to the rows of job files that go with a save.
type fileChanges struct {
	files  *jobFiles
	of     map[job.Attempt]*job.File // the file of each attempt after the save; nil: none
	counts map[job.Digest]int        // by how much the number of records with each file changes
	texts  map[job.Digest][]byte
}

// changes compares the files of the records with those on disk.
func (j *jobFiles) changes(put []contract.Record, gone []job.Attempt) *fileChanges {
	c := &fileChanges{files: j, of: map[job.Attempt]*job.File{}, counts: map[job.Digest]int{}, texts: map[job.Digest][]byte{}}
	for i := range put {
		c.of[put[i].Attempt] = put[i].File
	}
	for _, a := range gone {
		c.of[a] = nil
	}
	for a, f := range c.of {
		before, had := j.of[a]
		switch {
		case f != nil && had && before == f.Digest(), f == nil && !had:
			delete(c.of, a)
			continue
		case f != nil:
			c.counts[f.Digest()]++
			c.texts[f.Digest()] = f.Text()
		}
		if had {
			c.counts[before]--
		}
	}
	return c
}

// fill writes the files that are new, and deletes those to which no record refers any more.
func (c *fileChanges) fill(b store.Batch) error {
	for sum, n := range c.counts {
		var err error
		switch before := c.files.records[sum]; {
		case before == 0 && n > 0:
			err = b.Set(fileKey(sum), c.texts[sum])
		case before > 0 && before+n == 0:
			err = b.Delete(fileKey(sum))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// done notes that the save is on disk.
func (c *fileChanges) done() {
	for sum, n := range c.counts {
		if c.files.records[sum] += n; c.files.records[sum] == 0 {
			delete(c.files.records, sum)
		}
	}
	for a, f := range c.of {
		if f == nil {
			delete(c.files.of, a)
		} else {
			c.files.of[a] = f.Digest()
		}
	}
}

// readFiles reads all job files.
func readFiles(db *store.Store) (map[job.Digest]*job.File, error) {
	files := map[job.Digest]*job.File{}
	err := db.ReadPrefix([]byte(filePrefix), func(k, v []byte) error {
		s, err := storepb.DecodeSpec(v)
		if err != nil {
			return fmt.Errorf("job file %s: %w", k, err)
		}
		f, err := job.FileOf(s, bytes.Clone(v))
		if err != nil {
			return err
		}
		if !bytes.Equal(k, fileKey(f.Digest())) {
			return fmt.Errorf("job file %s has the digest %x", k, f.Digest())
		}
		files[f.Digest()] = f
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("store: load the ledger: %w", err)
	}
	return files, nil
}

// count notes which rows of files the records on disk refer to. A record of an older version contains its file.
func (j *jobFiles) count(records []contract.Record, files map[job.Digest]*job.File) {
	clear(j.records)
	clear(j.of)
	for i := range records {
		if f := records[i].File; f != nil && files[f.Digest()] == f {
			j.records[f.Digest()]++
			j.of[records[i].Attempt] = f.Digest()
		}
	}
}

// fileOf returns the job file of a record; nil if it has none.
func fileOf(m *storepb.Held, files map[job.Digest]*job.File) (*job.File, error) {
	switch {
	case len(m.GetFile()) == len(job.Digest{}):
		f := files[job.Digest(m.GetFile())]
		if f == nil {
			return nil, errNoFile
		}
		return f, nil
	case len(m.GetFile()) > 0:
		return nil, errNoFile
	case len(m.GetSpec()) == 0:
		return nil, nil
	}
	s, err := storepb.DecodeSpec(m.GetSpec())
	if err != nil {
		return nil, err
	}
	return job.FileOf(s, bytes.Clone(m.GetSpec()))
}
