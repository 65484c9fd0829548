package main

// Flags may stand before or after a verb's arguments, as people expect; the
// library reads only those before.

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// arrange moves the flags of a verb before its arguments. A verb that takes a
// command line of its own (submit, run, offers) keeps everything from its first
// argument on, and so does every verb from "--" on.
func arrange(app *cli.App, args []string) ([]string, error) {
	out := args[:min(1, len(args)):min(1, len(args))]
	commands, flags := app.Commands, app.Flags
	rest := args[len(out):]
	for len(rest) > 0 {
		if strings.HasPrefix(rest[0], "-") && rest[0] != "-" {
			n := width(flags, rest)
			out, rest = append(out, rest[:n]...), rest[n:]
			continue
		}
		i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(rest[0]) })
		if i < 0 {
			if len(commands) > 0 {
				return nil, usagef("no such verb: %q; `muster --help` lists them", rest[0])
			}
			break
		}
		verb := commands[i]
		out, rest = append(out, rest[0]), rest[1:]
		commands, flags = verb.Subcommands, verb.Flags
		if len(commands) > 0 && (len(rest) == 0 || !slices.ContainsFunc(commands, func(c *cli.Command) bool { return c.HasName(rest[0]) })) {
			commands = nil // a verb that may stand without its subcommand
		}
		if verb.SkipFlagParsing || verb.Args {
			return append(out, rest...), nil
		}
	}
	var flagged, plain []string
	for len(rest) > 0 {
		switch {
		case rest[0] == "--":
			plain, rest = append(plain, rest[1:]...), nil
		case strings.HasPrefix(rest[0], "-") && rest[0] != "-":
			n := width(flags, rest)
			flagged, rest = append(flagged, rest[:n]...), rest[n:]
		default:
			plain, rest = append(plain, rest[0]), rest[1:]
		}
	}
	out = append(out, flagged...)
	if len(plain) > 0 {
		out = append(append(out, "--"), plain...)
	}
	return out, nil
}

// width is how many words the flag at the front takes: two for one that has a
// value of its own.
func width(flags []cli.Flag, words []string) int {
	name := strings.TrimLeft(words[0], "-")
	if strings.Contains(name, "=") || len(words) == 1 {
		return 1
	}
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			if doc, ok := f.(cli.DocGenerationFlag); ok && doc.TakesValue() {
				return 2
			}
			return 1
		}
	}
	return 1
}
