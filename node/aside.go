package node

// What the worker has set aside, kept for the next life of the daemon.

import (
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/store"
	"github.com/musterhq/muster/worker"
)

// asideKey is where it lies in the store.
const asideKey = "worker/aside"

// loadAside reads what an earlier life had set aside.
func loadAside(disk *store.Store) (was worker.Quarantine, err error) {
	text, err := disk.Get(asideKey)
	if err != nil || text == nil {
		return worker.Quarantine{}, err
	}
	if err := json.Unmarshal(text, &was); err != nil {
		return worker.Quarantine{}, fmt.Errorf("node: read what this host has set aside: %w", err)
	}
	return was, nil
}

func keepAside(disk *store.Store, now worker.Quarantine) error {
	text, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("node: keep what this host has set aside: %w", err)
	}
	return disk.Put(asideKey, text)
}
