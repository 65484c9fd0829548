package main

// The verbs that invite, join, list and revoke members; and the one with which an operator makes a host obey an owner that
// was restored from a backup.

import (
	"cmp"
	"fmt"
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
		Description: "It takes what `muster invite` prints, with join instead of daemon.",
		Flags: clientFlags(
			&cli.StringSliceFlag{Name: "bootstrap", Usage: "`MULTIADDR` of a member, as an argument"},
			&cli.StringFlag{Name: "token", Usage: "the `TOKEN` that muster invite printed; refused without --" + insecureFlag + ": give it in " + tokenVariable + " or with --token-file, which other users cannot see"},
			insecureTokenFlag(),
			&cli.StringFlag{Name: "token-file", Usage: "`FILE` with the token"}),
		Action: func(c *cli.Context) error {
			addrs, said := invitation(c.Args().Slice())
			if addrs = append(c.StringSlice("bootstrap"), addrs...); len(addrs) == 0 {
				return usagef("join: want the addresses that came with the invitation; see `muster join --help`")
			}
			if err := refuseToken(c, said); err != nil {
				return err
			}
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
	view, err := viewOf(v.streams, c, peerColumns)
	if err != nil {
		return err
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
	return printPeers(view, l)
}

func (v clusterVerbs) forgetClaimCommand() *cli.Command {
	return &cli.Command{
		Name: "forget-claim", Usage: "have this host obey the restored owner of a job", ArgsUsage: "JOB",
		Description: "For this host only, and for jobs whose daemon was restored from a backup. Such a daemon counts on from an older epoch than the one that this host knows, so the host ignores it. " +
			"After this verb the host accepts the older epoch, from the same daemon only. JOB is the whole id of a job, or its end after the dash.",
		Flags:  clientFlags(jsonFlag()),
		Action: v.forgetClaim,
	}
}

func (v clusterVerbs) forgetClaim(c *cli.Context) error {
	const want = "the whole id of a job, or its end after the dash"
	if err := wantArgs(c, 1, 1, want); err != nil {
		return err
	}
	text := c.Args().First()
	if _, end, ok := strings.Cut(text, "-"); ok {
		text = end
	}
	g, err := job.ParseGroup(text)
	if err != nil {
		return usagef("job %.60q: want %s", c.Args().First(), want)
	}
	client, err := clientOf(c)
	if err != nil {
		return err
	}
	defer client.Close()
	claim, err := client.ForgetClaim(c.Context, g)
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return v.printJSON(claim)
	}
	fmt.Fprintf(v.out, "this host has forgotten the epoch of %s, which owns the jobs …-%s; the next one that it sends counts\n", printable(string(claim.Owner)), printable(claim.Group))
	return nil
}
