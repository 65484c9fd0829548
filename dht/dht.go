// Package dht stores resource classes as keys of a Kademlia DHT. A host advertises every class that it meets. A
// scheduler looks up one class and gets the hosts that might serve it.
//
// A record is only a hint. It says what a host has at most, never what is free. It contains no address to trust and
// no time to compare. A daemon that finds a peer here asks the peer itself.
//
// A record lives for Validity on the hosts that store it. Its provider writes it again every Refresh. Nothing else
// removes a record.
//
// The key of a class is the CID of sha2-256("muster/CLUSTER/CLASS/SHARD"). A class that many hosts meet is spread
// over shards, one for each hostsPerShard hosts of the estimated number of hosts. A host writes to one shard; a
// reader reads the shards in random order until it has enough hosts.
package dht

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/ipfs/go-cid"
	kad "github.com/libp2p/go-libp2p-kad-dht"
	"github.com/libp2p/go-libp2p-kad-dht/records"
	kbucket "github.com/libp2p/go-libp2p-kbucket"
	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/multiformats/go-multihash"

	"github.com/musterhq/muster/job"
)

// Config configures a table.
type Config struct {
	Cluster string // part of the protocol ID and the keys, so that clusters never mix
	// Validity is how long a record is valid. The host that stores it enforces this, so all daemons use the same
	// value.
	Validity time.Duration
	// Refresh is how often a host writes its records again.
	Refresh time.Duration
}

// DefaultConfig returns the times that every daemon uses.
func DefaultConfig() Config {
	return Config{Validity: 10 * time.Minute, Refresh: 3 * time.Minute}
}

// Validate returns an error if the configuration cannot work.
func (c Config) Validate() error {
	if c.Cluster == "" {
		return errors.New("dht: a table needs a cluster")
	}
	if c.Refresh <= 0 || c.Validity < 2*c.Refresh {
		return fmt.Errorf("dht: refresh %s must fit twice into validity %s", c.Refresh, c.Validity)
	}
	return nil
}

const (
	hostsPerShard  = 256              // a reader of a full shard fetches about 16 KiB from each host that stores it
	maxShards      = 64               // bounds a lookup: with more than 16,384 hosts, shards get larger
	maxClasses     = 32               // that one host may advertise
	findTimeout    = time.Second      // bounds a lookup, which dead hosts would stall for half a minute
	provideTimeout = 10 * time.Second // twice the time of a dial to a dead host
	provideAtOnce  = 4                // concurrent writes
)

// Table is the daemon's part of the DHT of its cluster.
type Table struct {
	cfg  Config
	host host.Host
	kad  *kad.IpfsDHT
	log  *slog.Logger
	wake chan struct{} // the classes have changed

	mu      sync.Mutex
	classes []string // guarded by mu
}

// ProtocolPrefix returns the beginning of the Kademlia protocol ID in a cluster.
func ProtocolPrefix(cluster string) protocol.ID { return protocol.ID("/muster/" + cluster) }

// New joins the DHT on h. The table serves other hosts at once; Run keeps this host's records alive.
func New(cfg Config, h host.Host, log *slog.Logger) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d, err := kad.New(
		h,
		kad.ProtocolPrefix(ProtocolPrefix(cfg.Cluster)),
		kad.Mode(kad.ModeServer),
		kad.DisableValues(),
		kad.ProviderDatastore(newRecordStore()),
		kad.ProviderManagerOpts(
			records.ProvideValidity(cfg.Validity),
			records.ProviderAddrTTL(cfg.Validity),
			records.CleanupInterval(cfg.Validity),
		),
	)
	if err != nil {
		return nil, fmt.Errorf("dht: join the table of cluster %s: %w", cfg.Cluster, err)
	}
	return &Table{cfg: cfg, host: h, kad: d, log: log, wake: make(chan struct{}, 1)}, nil
}

// Size returns the number of hosts in the routing table.
func (t *Table) Size() int { return t.kad.RoutingTable().Size() }

// Advertise sets the classes that this host meets; Run writes them.
func (t *Table) Advertise(classes []string) {
	t.mu.Lock()
	t.classes = append([]string(nil), classes[:min(len(classes), maxClasses)]...)
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Run writes the advertised records: at once, on change, when the first other host appears, and every Refresh. It
// leaves the DHT when ctx ends.
func (t *Table) Run(ctx context.Context) error {
	defer func() {
		if err := t.kad.Close(); err != nil {
			t.log.WarnContext(ctx, "error while leaving the DHT", "error", err)
		}
	}()
	met, err := t.host.EventBus().Subscribe(new(event.EvtPeerIdentificationCompleted), eventbus.BufSize(256))
	if err != nil {
		return fmt.Errorf("dht: watch for other hosts: %w", err)
	}
	defer met.Close()
	due := time.NewTimer(t.jitter())
	defer due.Stop()
	alone := true // the last round found no other host
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-met.Out():
			if !alone || t.Size() == 0 {
				continue
			}
		case <-t.wake:
		case <-due.C:
		}
		alone = !t.provideAll(ctx)
		due.Reset(t.jitter())
	}
}

// jitter returns the refresh interval, up to a tenth shorter or longer.
func (t *Table) jitter() time.Duration {
	return time.Duration(float64(t.cfg.Refresh) * (0.9 + 0.2*rand.Float64()))
}

// provideAll writes every record once. It returns false if there was no other host to store one of them.
func (t *Table) provideAll(ctx context.Context) bool {
	t.mu.Lock()
	classes := t.classes
	t.mu.Unlock()
	told := true
	var mu sync.Mutex // guards told
	var wg sync.WaitGroup
	slots := make(chan struct{}, provideAtOnce)
	shard := shardOf(t.host.ID(), t.shards())
	for _, class := range classes {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if !t.provide(ctx, class, shard) {
				mu.Lock()
				told = false
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return told
}

// provide writes one record. Without other hosts the record is stored here, which is no error: it is written again
// when another host appears.
func (t *Table) provide(ctx context.Context, class string, shard int) bool {
	ctx, cancel := context.WithTimeout(ctx, provideTimeout)
	defer cancel()
	key, err := keyOf(t.cfg.Cluster, class, shard)
	if err == nil {
		err = t.kad.Provide(ctx, key, true)
	}
	switch {
	case err == nil:
		return true
	case errors.Is(err, kbucket.ErrLookupFailure):
		return false
	case ctx.Err() == nil:
		t.log.WarnContext(ctx, "record not written", "class", class, "error", err)
	}
	return true // the next refresh tries again
}

// Find streams hosts that advertise the class, each once and in no particular order. It closes the channel when it
// has sent limit hosts (0: no bound), a second has passed, or ctx ends. It leaves out this host.
func (t *Table) Find(ctx context.Context, class string, limit int) <-chan job.Peer {
	found := make(chan job.Peer)
	go func() {
		defer close(found)
		ctx, cancel := context.WithTimeout(ctx, findTimeout)
		defer cancel()
		seen := map[peer.ID]bool{t.host.ID(): true}
		shards := t.shards()
		if shards > 1 {
			shards *= 2 // a host that estimates more hosts writes to more shards
		}
		for _, shard := range rand.Perm(shards) {
			if !t.findIn(ctx, class, shard, limit, seen, found) {
				return
			}
		}
	}()
	return found
}

// findIn streams one shard's hosts that were not seen yet, and reports whether more are wanted.
func (t *Table) findIn(ctx context.Context, class string, shard, limit int, seen map[peer.ID]bool, found chan<- job.Peer) bool {
	key, err := keyOf(t.cfg.Cluster, class, shard)
	if err != nil {
		return false
	}
	for p := range t.kad.FindProvidersAsync(ctx, key, 0) {
		if seen[p.ID] {
			continue
		}
		seen[p.ID] = true
		t.host.Peerstore().AddAddrs(p.ID, p.Addrs, peerstore.TempAddrTTL)
		select {
		case found <- job.Peer(p.ID.String()):
		case <-ctx.Done():
			return false
		}
		if limit > 0 && len(seen) > limit {
			return false
		}
	}
	return ctx.Err() == nil
}

// shards returns the present number of keys of a class. It is a power of two, so that hosts with slightly different
// estimates agree.
func (t *Table) shards() int {
	hosts := t.Size()
	if n, err := t.kad.NetworkSize(); err == nil {
		hosts = int(n)
	}
	n := 1
	for n < maxShards && hosts > n*hostsPerShard {
		n *= 2
	}
	return n
}

func shardOf(id peer.ID, shards int) int {
	h := fnv.New32a()
	h.Write([]byte(id))
	return int(h.Sum32() % uint32(shards))
}

func keyOf(cluster, class string, shard int) (cid.Cid, error) {
	mh, err := multihash.Sum([]byte("muster/"+cluster+"/"+class+"/"+strconv.Itoa(shard)), multihash.SHA2_256, -1)
	if err != nil {
		return cid.Undef, fmt.Errorf("dht: key of class %q: %w", class, err)
	}
	return cid.NewCidV1(cid.Raw, mh), nil
}
