package main

// The token of an invitation, on its way from the user to the daemon. Anyone who reads it can join the cluster.

import (
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/api"
)

const (
	tokenVariable = "MUSTER_TOKEN" //nolint:gosec // the name of a variable
	maxToken      = 4 << 10        // bytes of a file
)

// insecureFlag allows a token on the command line.
const insecureFlag = "insecure-token"

func insecureTokenFlag() *cli.BoolFlag {
	return &cli.BoolFlag{Name: insecureFlag, Usage: "allow --token, though all users of this host can see it in the list of processes", DisableDefaultText: true}
}

// refuseToken returns an error if the token is on the command line, where every user of the host can see it: as --token
// or in the argument said. --insecure-token allows it.
func refuseToken(c *cli.Context, said string) error {
	where := "--token"
	switch {
	case !c.IsSet("token") && said == "", c.Bool(insecureFlag):
		return nil
	case said != "":
		where = "an argument"
	}
	return usagef("%s: %s shows the token to all users of this host in the list of processes: give it in the variable %s or with --token-file FILE, or allow it with --%s", c.Command.Name, where, tokenVariable, insecureFlag)
}

// tokenOf returns the token, or reads it from the file if one is named.
func tokenOf(setting, token, file string) (string, error) {
	switch {
	case file == "":
		return token, nil
	case token != "":
		return "", usagef("%s: the token is given twice; give it once", setting)
	}
	text, err := api.ReadPrivate(file, maxToken)
	if err != nil {
		return "", usagef("%s: %w", setting, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// hideToken removes the token from the environment, so that no child gets it. It returns a function that reads the
// settings again and fills in the token from the start.
func hideToken(cfg daemonConfig, read func() (daemonConfig, error)) func() (daemonConfig, error) {
	if os.Getenv(tokenVariable) == "" {
		return read
	}
	_ = os.Unsetenv(tokenVariable) // fails only for a name that is not valid
	return func() (daemonConfig, error) {
		next, err := read()
		if next.Token == "" {
			next.Token = cfg.Token
		}
		return next, err
	}
}
