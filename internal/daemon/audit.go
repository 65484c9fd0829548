package daemon

// The audit log: what the gate and the API record in it.
// See docs/adr, ADR 120.

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/job"
	"github.com/musterhq/muster/p2p"
)

var (
	_ p2p.Auditor = gateAudit{}
	_ api.Audit   = auditBackend{}
)

// openAudit opens the log in the data directory.
func (b *base) openAudit() (err error) {
	cfg := audit.DefaultConfig()
	cfg.Dir = b.cfg.DataDir
	b.audit, err = audit.Open(cfg, b.part("audit"))
	return err
}

// gateAudit records peers that come to the gate, and members that try what their roles do not allow.
type gateAudit struct{ log *audit.Log }

// acts maps what a visitor wants to the action in the log.
var acts = map[p2p.Act]audit.Action{p2p.Entering: audit.Hello, p2p.Joining: audit.Join, p2p.Renewing: audit.Renew, p2p.Opening: audit.Role}

// codes are the stable words for why a visitor was refused.
var codes = []struct {
	err  error
	code string
}{
	{p2p.ErrRevoked, "revoked"},
	{p2p.ErrExpired, "expired"},
	{p2p.ErrWrongCluster, "wrong-cluster"},
	{p2p.ErrBadCredential, "bad-credential"},
	{p2p.ErrTokenUnknown, "unknown-token"},
	{p2p.ErrTokenExpired, "expired-token"},
	{p2p.ErrTokenUsed, "used-token"},
	{p2p.ErrNotReady, "unavailable"},
}

// Visited records a visit.
func (g gateAudit) Visited(v p2p.Visit) {
	e := audit.Entry{
		Action: acts[v.Act], Outcome: audit.OK, From: audit.Network, Address: v.Addr, IP: v.IP, Peer: v.Peer, PeerName: v.Name, Object: v.Object,
		Details: map[string]string{"roles": strings.Join(v.Roles.Names(), ","), "labels": audit.Labels(v.Labels)},
	}
	if v.Act == p2p.Opening || (v.Act == p2p.Renewing && v.Err == nil) {
		e.From = audit.Peer // the visitor is a member
	}
	if v.Err != nil {
		e.Outcome, e.Code, e.Reason = audit.Refused, "denied", v.Err.Error()
		for _, row := range codes {
			if errors.Is(v.Err, row.err) {
				e.Code = row.code
				break
			}
		}
	}
	g.log.Record(e)
}

// auditBackend gives the API access to the log.
type auditBackend struct {
	log  *audit.Log
	host *p2p.Host
}

// Record adds an entry, with the name of the daemon that sent the request.
func (b auditBackend) Record(e audit.Entry) {
	if e.Peer != "" {
		m, _ := b.host.Member(e.Peer)
		e.PeerName = m.Name
	}
	b.log.Record(e)
}

// denied records a message that its sender's roles do not allow.
func (b auditBackend) denied(p job.Peer, err error) {
	b.Record(audit.Entry{Action: audit.Role, Outcome: audit.Refused, Code: "denied", Reason: err.Error(), From: audit.Peer, Peer: p})
}

// Find searches the log.
func (b auditBackend) Find(ctx context.Context, q audit.Query) ([]audit.Entry, error) {
	return b.log.Find(ctx, q)
}

// auditFact says whether the audit log is complete and can be written.
func auditFact(lost audit.Losses) api.Fact {
	f := api.Fact{Name: "audit", State: api.FactOK, Detail: "the audit log is written"}
	if lost.Entries > 0 {
		f.State, f.Detail = api.FactWarn, fmt.Sprintf("%d entries of the audit log were lost: %s", lost.Entries, lost.Reason)
		f.Advice = "free some space for --data-dir; the log says how many were lost once it can be written"
	}
	if lost.Now {
		f.State = api.FactFail
	}
	return f
}
