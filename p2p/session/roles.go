package session

// The roles that the messages of a session need. A daemon with the role scheduler commands workers. A daemon with the
// role worker tells schedulers about itself. A daemon without a role must not send the messages that need it.
// See docs/adr, ADR 112.

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/musterhq/muster/p2p"
	"github.com/musterhq/muster/p2p/wirepb"
)

// senders lists, for each message, the role that its sender must have. 0: any member may send it.
var senders = map[reflect.Type]p2p.Roles{
	reflect.TypeFor[*wirepb.Frame_Owns]():    p2p.RoleScheduler,
	reflect.TypeFor[*wirepb.Frame_Offer]():   p2p.RoleScheduler,
	reflect.TypeFor[*wirepb.Frame_Release](): p2p.RoleScheduler,
	reflect.TypeFor[*wirepb.Frame_Start]():   p2p.RoleScheduler,
	reflect.TypeFor[*wirepb.Frame_Query]():   p2p.RoleScheduler,
	reflect.TypeFor[*wirepb.Frame_Signal]():  p2p.RoleScheduler,
	reflect.TypeFor[*wirepb.Frame_Cancel]():  p2p.RoleScheduler,
	reflect.TypeFor[*wirepb.Frame_Ack]():     p2p.RoleScheduler,
	reflect.TypeFor[*wirepb.Frame_Renewed](): p2p.RoleScheduler,

	reflect.TypeFor[*wirepb.Frame_Hello]():        p2p.RoleWorker,
	reflect.TypeFor[*wirepb.Frame_Availability](): p2p.RoleWorker,
	reflect.TypeFor[*wirepb.Frame_Commit]():       p2p.RoleWorker,
	reflect.TypeFor[*wirepb.Frame_Decline]():      p2p.RoleWorker,
	reflect.TypeFor[*wirepb.Frame_Event]():        p2p.RoleWorker,
	reflect.TypeFor[*wirepb.Frame_Renew]():        p2p.RoleWorker,
	reflect.TypeFor[*wirepb.Frame_Stale]():        p2p.RoleWorker,

	reflect.TypeFor[*wirepb.Frame_Open]():    0,
	reflect.TypeFor[*wirepb.Frame_Accept]():  0,
	reflect.TypeFor[*wirepb.Frame_Ping]():    0,
	reflect.TypeFor[*wirepb.Frame_Pong]():    0,
	reflect.TypeFor[*wirepb.Frame_Goodbye](): 0,
}

// roleCheck checks the frames of one peer.
type roleCheck struct {
	roles  func() p2p.Roles // returns the peer's present roles: a renewed credential may change them
	knows  bool             // the peer says that it sends only what its roles allow
	denied func(error)      // called with every denial
	first  func(error)      // called with the first denial of a peer that does not know roles
	warned bool
}

// check returns an error if the peer may not send a frame; the session must then be cut. A peer of an earlier version does
// not know roles and sends all messages; for a frame that such a peer may not send, check returns drop.
func (r *roleCheck) check(f *wirepb.Frame) (drop bool, err error) {
	body := f.GetBody()
	if body == nil {
		return false, nil // fromWire refuses it, like every unknown message
	}
	need, known := senders[reflect.TypeOf(body)]
	if known && need == 0 {
		return false, nil
	}
	has := r.roles()
	if known && has.Has(need) {
		return false, nil
	}
	kind := strings.TrimPrefix(fmt.Sprintf("%T", body), "*wirepb.Frame_")
	err = fmt.Errorf("%w: %s needs the role %s, and the peer has %s", ErrRole, kind, need, noneIfEmpty(has))
	r.denied(err)
	if r.knows {
		return false, err
	}
	if !r.warned {
		r.warned = true
		r.first(err)
	}
	return true, nil
}

func noneIfEmpty(r p2p.Roles) string {
	if r == 0 {
		return "none"
	}
	return r.String()
}
