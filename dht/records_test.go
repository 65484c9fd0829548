package dht

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p-kad-dht/records"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/test"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"
)

// One member writes records without end, for hours. This host keeps a bounded number of them, they expire, and
// meanwhile records of another member are stored and found.
func TestRecordsOfOneHostAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		book, err := pstoremem.NewPeerstore()
		if err != nil {
			t.Fatal(err)
		}
		defer book.Close()
		store := newRecordStore()
		m, err := records.NewProviderManager(test.RandPeerIDFatal(t), book, store,
			records.ProvideValidity(cfg.Validity), records.CleanupInterval(cfg.Validity))
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		honest, mallory := test.RandPeerIDFatal(t), test.RandPeerIDFatal(t)
		key := []byte("the class of the honest one")
		for range 12 { // every ten minutes
			refused := 0
			for range 5000 {
				k := make([]byte, 32)
				_, _ = rand.Read(k)
				if err := m.AddProvider(t.Context(), k, peer.AddrInfo{ID: mallory}); errors.Is(err, errManyRecords) {
					refused++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if refused == 0 {
				t.Fatal("all records of one host were stored, want some refused")
			}
			for i := range maxClasses {
				if err := m.AddProvider(t.Context(), fmt.Appendf(nil, "class %d", i), peer.AddrInfo{ID: honest}); err != nil {
					t.Fatal(err)
				}
			}
			if err := m.AddProvider(t.Context(), key, peer.AddrInfo{ID: honest}); err != nil {
				t.Fatal(err)
			}
			if found, err := m.GetProviders(t.Context(), key); err != nil || len(found) != 1 || found[0].ID != honest {
				t.Fatalf("found %v, %v, want no error, 1 of them and [0].ID %v", found, err, honest)
			}
			store.mu.Lock()
			n, hosts := 0, len(store.of)
			for _, keys := range store.of {
				n += len(keys)
			}
			store.mu.Unlock()
			if hosts > 2 || n > maxRecordsOf+maxClasses+1 {
				t.Fatalf("%d records of %d hosts, want at most 2 and at most %v", n, hosts, maxRecordsOf+maxClasses+1)
			}
			time.Sleep(cfg.Validity + time.Second)
		}
		time.Sleep(3 * cfg.Validity)
		store.mu.Lock()
		defer store.mu.Unlock()
		if len(store.of) > 0 {
			t.Errorf("records of %d hosts have not expired, want none", len(store.of))
		}
	})
}
