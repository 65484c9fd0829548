package runner

// The command line of a runner. Only daemons write it.

import (
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"strings"

	"github.com/musterhq/muster/worker/runner/protocol"
	"github.com/musterhq/muster/worker/runner/spawn"
)

// Command is the whole program, from its flags to its exit code. The end of ctx ends its tasks. Finish, if not nil,
// sets what no flag can say.
func Command(ctx context.Context, version string, args []string, finish func(*Config, *slog.Logger)) int {
	cfg, err := Parse(args)
	lines := newLineQueue(newLogFile(protocol.Dir(cfg.Dir).Log(cfg.Generation)))
	defer lines.close()
	log := slog.New(slog.NewTextHandler(lines, nil))
	if err == nil {
		err = spawn.CloseInherited()
	}
	if err == nil {
		cfg.Version = version
		if finish != nil {
			finish(&cfg, log)
		}
		err = Main(ctx, cfg, log)
	}
	if err != nil {
		log.ErrorContext(ctx, "runner ended", "error", err)
		return 1
	}
	return 0
}

// Flags returns the command line for this configuration, without the directory and the generation. The daemon adds
// those two.
func (c Config) Flags() []string {
	args := []string{"--ulimits", strings.Join(c.Ulimits, ",")}
	for _, f := range []struct {
		name string
		set  bool
	}{{"--allow-root", c.AllowRoot}, {"--scope", c.Scope}, {"--no-cgroups", c.NoGroups}, {"--shared-tmp", c.SharedTmp}} {
		if f.set {
			args = append(args, f.name)
		}
	}
	return args
}

// Parse reads the flags.
func Parse(args []string) (Config, error) {
	cfg := DefaultConfig()
	f := flag.NewFlagSet("runner", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the error is returned
	f.StringVar(&cfg.Dir, "dir", "", "")
	f.IntVar(&cfg.Generation, "generation", cfg.Generation, "")
	f.BoolVar(&cfg.AllowRoot, "allow-root", false, "")
	f.BoolVar(&cfg.Scope, "scope", false, "")
	f.BoolVar(&cfg.NoGroups, "no-cgroups", false, "")
	f.BoolVar(&cfg.SharedTmp, "shared-tmp", false, "")
	ulimits := f.String("ulimits", strings.Join(cfg.Ulimits, ","), "")
	if err := f.Parse(args); err != nil {
		return Config{}, err
	}
	if f.NArg() > 0 {
		return Config{}, errors.New("runner: unexpected arguments, only flags are allowed")
	}
	cfg.Ulimits = strings.FieldsFunc(*ulimits, func(r rune) bool { return r == ',' })
	return cfg, nil
}
