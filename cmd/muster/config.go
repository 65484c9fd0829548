package main

// The verb config: what the daemon would be told, and by whom.

import (
	"fmt"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
)

func (e env) configCommand() *cli.Command {
	return &cli.Command{
		Name:  "config",
		Usage: "show or check the daemon's settings",
		Subcommands: []*cli.Command{
			{
				Name: "show", Usage: "each setting, its value and where it comes from", Flags: settingFlags(),
				Action: func(c *cli.Context) error {
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
						fmt.Fprintf(w, "%s\t%s\t%s\n", s.name, value, cfg.Origins[s.name])
					}
					return w.Flush()
				},
			},
			{
				Name: "validate", Usage: "say whether a daemon could start with it", Flags: settingFlags(),
				Action: func(c *cli.Context) error {
					if _, err := configOf(c); err != nil {
						return err
					}
					fmt.Fprintln(e.out, "the configuration is valid")
					return nil
				},
			},
		},
	}
}

func (e env) versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version",
		Action: func(*cli.Context) error {
			fmt.Fprintln(e.out, "muster", version)
			return nil
		},
	}
}
