package main

// The verb config: what a daemon would be told, and by whom.

import (
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
)

func (e env) configCommand() *cli.Command {
	return &cli.Command{
		Name: "config", Usage: "show or validate the settings of a daemon on this host", ArgsUsage: "show | validate",
		Subcommands: []*cli.Command{
			{Name: "show", Usage: "each setting, its value and where it comes from", Flags: settingFlags(), Action: e.configShow},
			{Name: "validate", Usage: "say whether a daemon could start with them", Flags: settingFlags(), Action: e.configValidate},
		},
	}
}

func (e env) configShow(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	cfg, err := configOf(c)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SETTING\tVALUE\tORIGIN")
	for _, s := range settings() {
		value := s.get(cfg)
		if s.name == "token" && value != "" {
			value = "(set)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.name, dash(printable(value)), cfg.Origins[s.name])
	}
	return w.Flush()
}

func (e env) configValidate(c *cli.Context) error {
	if err := wantArgs(c, 0, 0, "no argument"); err != nil {
		return err
	}
	if _, err := configOf(c); err != nil {
		return err
	}
	_, err := fmt.Fprintln(e.out, "the configuration is valid")
	return err
}
