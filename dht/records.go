package dht

// The records that this host stores for other hosts. Their number per host is bounded, so that no member can fill the
// memory of another.
// See docs/adr, ADR 115.

import (
	"context"
	"errors"
	"sync"

	"github.com/ipfs/go-datastore"
	dssync "github.com/ipfs/go-datastore/sync"
)

// maxRecordsOf bounds the records of one host. It is several times what a host writes, because records of classes that
// the host had a few minutes ago are still stored.
const maxRecordsOf = 8 * maxClasses

var errManyRecords = errors.New("dht: the host has too many records here")

// recordStore keeps records in memory. A key ends with the host that wrote the record.
type recordStore struct {
	*dssync.MutexDatastore

	mu sync.Mutex
	of map[string]map[datastore.Key]struct{} // guarded by mu: the keys of each host
}

var _ datastore.Batching = (*recordStore)(nil)

func newRecordStore() *recordStore {
	return &recordStore{MutexDatastore: dssync.MutexWrap(datastore.NewMapDatastore()), of: map[string]map[datastore.Key]struct{}{}}
}

// Put stores a record. It refuses a new record of a host that has too many.
func (s *recordStore) Put(ctx context.Context, k datastore.Key, v []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	theirs := s.of[k.Name()]
	if _, known := theirs[k]; !known {
		if len(theirs) >= maxRecordsOf {
			return errManyRecords
		}
		if theirs == nil {
			theirs = map[datastore.Key]struct{}{}
			s.of[k.Name()] = theirs
		}
		theirs[k] = struct{}{}
	}
	return s.MutexDatastore.Put(ctx, k, v)
}

// Delete deletes a record, for instance one that has expired.
func (s *recordStore) Delete(ctx context.Context, k datastore.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if theirs := s.of[k.Name()]; theirs != nil {
		if delete(theirs, k); len(theirs) == 0 {
			delete(s.of, k.Name())
		}
	}
	return s.MutexDatastore.Delete(ctx, k)
}

// Batch returns a batch that collects changes and then makes them one by one.
func (s *recordStore) Batch(context.Context) (datastore.Batch, error) { //nolint:ireturn // the interface of the library
	return datastore.NewBasicBatch(s), nil
}
