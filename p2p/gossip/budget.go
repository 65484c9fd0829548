package gossip

// What GossipSub takes from each neighbour. It checks a signature for each new message, whoever has signed it, before anybody
// asks whether the author may announce.

import (
	"errors"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"
)

const (
	// perNeighbour bounds what is taken of one neighbour in a second, in bytes, and burstNeighbour what is taken at once. A
	// message costs messageCost more than its length: so it is a thousand messages a second, as when a thousand schedulers
	// announce at their fastest, and a tenth of a processor's time for a neighbour that floods.
	perNeighbour   = 2 << 20
	burstNeighbour = 8 << 20
	messageCost    = 2 << 10
	// maxNeighbours bounds those that are remembered. The rate of one that said nothing for some seconds is forgotten first.
	maxNeighbours = 8192
)

var errOften = errors.New("gossip: too much")

// budgets bounds what is taken of each neighbour. Only pubsub's goroutine uses it.
type budgets map[peer.ID]*rate.Limiter

// inspect returns an error if what a neighbour sends is to be dropped.
func (b budgets) inspect(from peer.ID, rpc *pubsub.RPC) error {
	cost := proto.Size(&rpc.RPC) + messageCost*len(rpc.GetPublish())
	return b.spend(from, cost, time.Now())
}

func (b budgets) spend(from peer.ID, cost int, now time.Time) error {
	l := b[from]
	if l == nil {
		if len(b) >= maxNeighbours {
			for p, l := range b {
				if l.TokensAt(now) >= burstNeighbour {
					delete(b, p)
				}
			}
		}
		if len(b) >= maxNeighbours {
			return errOften
		}
		l = rate.NewLimiter(perNeighbour, burstNeighbour)
		b[from] = l
	}
	if !l.AllowN(now, min(cost, burstNeighbour)) {
		return errOften
	}
	return nil
}
