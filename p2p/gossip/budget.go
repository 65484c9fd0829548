package gossip

// A limit on what each neighbour may send. It is needed because GossipSub checks the signature of each new message before
// validate asks whether the author may announce.

import (
	"errors"
	"time"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"
	"google.golang.org/protobuf/proto"

	"github.com/musterhq/muster/internal/ratelimit"
)

const (
	// perNeighbour bounds the bytes that are accepted from one neighbour in a second, and burstNeighbour the bytes at once.
	// Each message counts messageCost more than its length. That allows up to a thousand messages a second, as many as a
	// thousand schedulers send at their fastest. A neighbour that floods costs a tenth of a processor's time.
	perNeighbour   = 2 << 20
	burstNeighbour = 8 << 20
	messageCost    = 2 << 10
	// maxNeighbours bounds the neighbours that are remembered. Those that sent nothing for some seconds are forgotten first.
	maxNeighbours = 8192
)

var errOften = errors.New("gossip: too much")

// budgets holds the limiter of each neighbour. Only pubsub's goroutine uses it.
type budgets struct{ neighbours *ratelimit.Keys[peer.ID] }

func newBudgets() budgets {
	return budgets{ratelimit.New[peer.ID](ratelimit.Rule{Rate: perNeighbour, Burst: burstNeighbour, Most: maxNeighbours})}
}

// inspect returns an error if a neighbour has exceeded its budget; pubsub then drops the message.
func (b budgets) inspect(from peer.ID, rpc *pubsub.RPC) error {
	cost := proto.Size(&rpc.RPC) + messageCost*len(rpc.GetPublish())
	return b.spend(from, cost, time.Now())
}

func (b budgets) spend(from peer.ID, cost int, now time.Time) error {
	if l := b.neighbours.Of(from, now); l == nil || !l.AllowN(now, min(cost, burstNeighbour)) {
		return errOften
	}
	return nil
}
