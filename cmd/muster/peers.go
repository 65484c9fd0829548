package main

// The output of the verb peers, and the names of nodes.

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/cmd/muster/table"
	"github.com/musterhq/muster/job"
)

// peerColumns returns the columns of a peer, for a listing of these peers.
func peerColumns(peers []api.Peer) table.Columns[api.Peer] {
	called := namesOf(peers, func(p api.Peer) (string, job.Peer) { return p.Name, p.ID })
	name := func(p api.Peer) string {
		if p.Self {
			return called(p.Name, p.ID) + " (here)"
		}
		return dash(called(p.Name, p.ID))
	}
	return table.Columns[api.Peer]{
		{Name: "name", Help: "its name", Least: 8, Cell: name},
		{Name: "state", Help: "ready, draining, suspect, lost or revoked", Cell: func(p api.Peer) string { return string(p.State) }},
		{Name: "roles", Help: "its roles", Least: 6, Cell: func(p api.Peer) string { return dash(strings.Join(p.Roles, ",")) }},
		{Name: "last-seen", Help: "when it was last connected", Cell: func(p api.Peer) string { return clock(p.LastSeenAt) }, Order: byTime(func(p api.Peer) *time.Time { return p.LastSeenAt })},
		{Name: "addresses", Help: "its addresses", Least: 9, Cell: func(p api.Peer) string { return dash(strings.Join(p.Addrs, " ")) }},
		{Name: "id", Help: "its id", Level: table.Wide, IsKey: true, Cell: func(p api.Peer) string { return string(p.ID) }},
	}
}

// revokedColumns returns the columns of the peers that are out of the cluster.
func revokedColumns() table.Columns[api.Peer] {
	since := func(p api.Peer) *time.Time { return &p.Revoked.At }
	return table.Columns[api.Peer]{
		{Name: "revoked", Least: 8, Cell: func(p api.Peer) string { return dash(p.Name) }},
		{Name: "since", Cell: func(p api.Peer) string { return clock(since(p)) }},
		{Name: "by", Least: 8, Cell: revokedBy},
		{Name: "reason", Least: 8, Cell: func(p api.Peer) string {
			if p.Revoked.WithInvited {
				return strings.TrimSpace(p.Revoked.Reason + " (with those that it let in)")
			}
			return dash(p.Revoked.Reason)
		}},
	}
}

func revokedBy(p api.Peer) string {
	if p.Revoked.By == "" {
		return "the cluster key"
	}
	return cmp.Or(p.Revoked.ByName, string(p.Revoked.By))
}

// printPeers prints the members, then those that are out of the cluster and how each can be let back in. If the user
// chooses columns or a form, there is only one listing.
func printPeers(v view[api.Peer], l api.Listing[api.Peer]) error {
	if v.form != formTable || v.columns != "" {
		return v.print(l)
	}
	var out []api.Peer
	for _, p := range l.Items {
		if p.Revoked != nil {
			out = append(out, p)
		}
	}
	l.Items = slices.DeleteFunc(l.Items, func(p api.Peer) bool { return p.Revoked != nil })
	if err := v.print(l); err != nil || len(out) == 0 {
		return err
	}
	fmt.Fprintln(v.out)
	room := terminalWidth(v.out)
	if v.level == table.Wide {
		room = 0
	}
	if err := table.NewPrinter(v.out, revokedColumns(), room).Rows(out); err != nil {
		return err
	}
	for _, here := range []bool{true, false} {
		some := slices.DeleteFunc(slices.Clone(out), func(p api.Peer) bool { return p.Revoked.Here != here })
		switch {
		case len(some) > 0 && here:
			fmt.Fprintln(v.out, "\nTo let one back in:")
		case len(some) > 0:
			fmt.Fprintln(v.out, "\nTo let one back in, on the host under BY or the one that founded the cluster:")
		}
		for _, p := range some {
			fmt.Fprintf(v.out, "  muster peers --restore %s\n", printable(string(p.ID)))
		}
	}
	return nil
}

// namesOf returns how to call each of some nodes: by its name, with the end of its ID if another has the same name.
func namesOf[T any](all []T, of func(T) (string, job.Peer)) func(name string, id job.Peer) string {
	ids := map[string]map[job.Peer]bool{}
	for _, x := range all {
		name, id := of(x)
		if ids[name] == nil {
			ids[name] = map[job.Peer]bool{}
		}
		ids[name][id] = true
	}
	return func(name string, id job.Peer) string {
		if len(ids[name]) < 2 {
			return name
		}
		const shown = 8 // characters of an ID, as -w accepts them
		return name + " (…" + string(id[max(0, len(id)-shown):]) + ")"
	}
}

// peerNamed finds the member with that name or ID; it must be unique.
func peerNamed(peers []api.Peer, name string) (api.Peer, error) {
	var found []api.Peer
	for _, p := range peers {
		if p.Name == name || string(p.ID) == name {
			found = append(found, p)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return api.Peer{}, fmt.Errorf("peers: no member is called %.60q; `muster peers` lists them", name)
	}
	ids := make([]string, 0, len(found))
	for _, p := range found {
		ids = append(ids, string(p.ID))
	}
	return api.Peer{}, usagef("peers: %d members are called %.60q: give one of the ids %s", len(found), name, strings.Join(ids, " "))
}
