package main

// The verbs that invite, join, list and revoke members.

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
	"github.com/musterhq/muster/job"
)

func (v clusterVerbs) inviteCommand() *cli.Command {
	return &cli.Command{
		Name: "invite", Usage: "print the command with which another host joins the cluster",
		Flags: clientFlags(
			&cli.StringFlag{Name: "ttl", Usage: "how long the token is valid: `D`", Value: "1h"},
			&cli.IntFlag{Name: "uses", Usage: "how many hosts may use the token: `N`", Value: 1},
			&cli.StringFlag{Name: "roles", Usage: "roles of these hosts: `R,...` of worker, scheduler, inviter (default worker,scheduler)"},
			&cli.StringSliceFlag{Name: "label", Usage: "sign the label `K=V` for these hosts, which they cannot give to themselves"},
			jsonFlag()),
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, 0, 0, "no argument"); err != nil {
				return err
			}
			ttl, err := job.ParseDuration(c.String("ttl"))
			if err != nil {
				return usagef("--ttl: %w", err)
			}
			if ttl <= 0 {
				return usagef("--ttl %s: must be longer than 0s", ttl)
			}
			if c.Int("uses") < 1 {
				return usagef("--uses %d: must be at least 1", c.Int("uses"))
			}
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			signed, err := labelsToSign(c.StringSlice("label"))
			if err != nil {
				return err
			}
			inv, err := client.Invite(c.Context, api.InviteRequest{TTL: ttl.D().Seconds(), Uses: c.Int("uses"), Roles: list(c.String("roles")), Labels: signed})
			if err != nil {
				return asUsage(err)
			}
			if c.Bool("json") {
				return v.printJSON(inv)
			}
			// not as a flag, which all users of that host would see in the list of processes
			fmt.Fprintf(v.out, "%s=%s muster daemon", tokenVariable, inv.Token)
			for _, b := range inv.Bootstrap {
				fmt.Fprintf(v.out, " --bootstrap %s", b)
			}
			_, err = fmt.Fprintln(v.out)
			return err
		},
	}
}

// labelsToSign parses labels such as secure=yes.
func labelsToSign(texts []string) (map[string]string, error) {
	signed := map[string]string{}
	for _, text := range texts {
		k, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usagef("--label %.60q: want K=V", text)
		}
		signed[k] = value
	}
	return signed, nil
}

func (v clusterVerbs) joinCommand() *cli.Command {
	return &cli.Command{
		Name: "join", Usage: "make the daemon on this host join a cluster", ArgsUsage: "MULTIADDR...",
		Description: "It takes what `muster invite` prints, with join instead of daemon, or the whole line as its arguments.",
		Flags: clientFlags(
			&cli.StringSliceFlag{Name: "bootstrap", Usage: "`MULTIADDR` of a member, as an argument"},
			&cli.StringFlag{Name: "token", Usage: "the `TOKEN` that muster invite printed; better in " + tokenVariable + " or --token-file, which other users cannot see"},
			&cli.StringFlag{Name: "token-file", Usage: "`FILE` with the token"}),
		Action: func(c *cli.Context) error {
			addrs, said := invitation(c.Args().Slice())
			if addrs = append(c.StringSlice("bootstrap"), addrs...); len(addrs) == 0 {
				return usagef("join: want the addresses that came with the invitation; see `muster join --help`")
			}
			warnOfToken(v.err, c, said)
			token, err := tokenOf("--token-file", cmp.Or(c.String("token"), said, os.Getenv(tokenVariable)), c.String("token-file"))
			if err != nil {
				return err
			}
			if token == "" {
				return usagef("join: give the token that `muster invite` printed, in %s or with --token-file FILE", tokenVariable)
			}
			client, err := clientOf(c)
			if err != nil {
				return err
			}
			defer client.Close()
			joined, err := client.Join(c.Context, addrs, token)
			if err != nil {
				return asUsage(err)
			}
			fmt.Fprintf(v.err, "joined cluster %s\n", joined.Cluster)
			return nil
		},
	}
}

// invitation returns the addresses and the token in arguments, which may be the line that invite prints, also as one word.
func invitation(args []string) (addrs []string, token string) {
	words := strings.Fields(strings.Join(args, " "))
	for i, w := range words {
		value, isToken := strings.CutPrefix(w, tokenVariable+"=")
		switch {
		case isToken:
			token = value
		case w == "--bootstrap", i < 2 && (w == "muster" || w == "daemon"), i == 2 && w == "daemon": // the rest of its command
		default:
			addrs = append(addrs, strings.TrimPrefix(w, "--bootstrap="))
		}
	}
	return addrs, token
}

func (v clusterVerbs) peersCommand() *cli.Command {
	return &cli.Command{
		Name: "peers", Usage: "list the members of the cluster and who was revoked, revoke one, or let one back in",
		Flags: listFlags(
			&cli.StringFlag{Name: "revoke", Usage: "revoke the member `NAME|ID`"},
			&cli.BoolFlag{Name: "with-invited", Usage: "with --revoke: also those that it let in"},
			&cli.StringFlag{Name: "restore", Usage: "take the revocation of the peer `NAME|ID` back"},
			&cli.StringFlag{Name: "reason", Usage: "the reason, with --revoke: `TEXT`"}),
		Action: v.peers,
	}
}

func (v clusterVerbs) peers(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	if c.IsSet("reason") && !c.IsSet("revoke") {
		return usagef("--reason: needs --revoke")
	}
	if c.Bool("with-invited") && !c.IsSet("revoke") {
		return usagef("--with-invited: needs --revoke")
	}
	if c.IsSet("restore") && c.IsSet("revoke") {
		return usagef("--restore: not with --revoke")
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	l, err := client.Peers(c.Context)
	if err != nil {
		return err
	}
	isOut := func(p api.Peer) bool { return p.Revoked != nil }
	if c.IsSet("restore") {
		id := job.Peer(c.String("restore")) // also of a peer that is not listed
		l.Items = slices.DeleteFunc(l.Items, func(p api.Peer) bool { return !isOut(p) || p.Name != string(id) })
		if len(l.Items) > 0 {
			p, err := peerNamed(l.Items, string(id))
			if err != nil {
				return err
			}
			id = p.ID
		}
		return asUsage(client.Restore(c.Context, id))
	}
	if c.IsSet("revoke") {
		l.Items = slices.DeleteFunc(l.Items, isOut)
		p, err := peerNamed(l.Items, c.String("revoke"))
		if err != nil {
			return err
		}
		return asUsage(client.Revoke(c.Context, p.ID, c.String("reason"), c.Bool("with-invited")))
	}
	return printList(v.streams, c, l, peerTable)
}

func peerTable(w io.Writer, all []api.Peer) {
	var peers, out []api.Peer
	for _, p := range all {
		if p.Revoked == nil {
			peers = append(peers, p)
		} else {
			out = append(out, p)
		}
	}
	defer revokedTable(w, out)
	row(w, "NAME", "STATE", "ROLES", "LAST SEEN", "ADDRESSES", "ID")
	called := namesOf(peers, func(p api.Peer) (string, job.Peer) { return p.Name, p.ID })
	for _, p := range peers {
		name := called(p.Name, p.ID)
		if p.Self {
			name += " (here)"
		}
		row(w, name, string(p.State), strings.Join(p.Roles, ","), clock(p.LastSeenAt), dash(strings.Join(p.Addrs, " ")), string(p.ID))
	}
}

// revokedTable lists the peers that are out of the cluster, and how each can be let back in.
func revokedTable(w io.Writer, out []api.Peer) {
	if len(out) == 0 {
		return
	}
	fmt.Fprintln(w)
	row(w, "REVOKED", "SINCE", "BY", "REASON", "ID", "BACK BY")
	for _, p := range out {
		by, where := "the cluster key", "--restore on the host that founded the cluster"
		if p.Revoked.By != "" {
			by = cmp.Or(p.Revoked.ByName, string(p.Revoked.By))
			where = "--restore on " + by + ", or on the host that founded the cluster"
		}
		if p.Revoked.Here {
			where = "muster peers --restore " + string(p.ID)
		}
		reason := p.Revoked.Reason
		if p.Revoked.WithInvited {
			reason = strings.TrimSpace(reason + " (with those that it let in)")
		}
		row(w, dash(p.Name), clock(&p.Revoked.At), by, dash(reason), string(p.ID), where)
	}
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
