package main

// The output of a simulation: a summary or JSON, a log, a page.

import (
	"bufio"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/musterhq/muster/internal/sim/load"
	"github.com/musterhq/muster/internal/sim/record"
	"github.com/musterhq/muster/internal/sim/report"
	html "github.com/musterhq/muster/internal/sim/report/page"
)

// simulationFiles are the files that a simulation writes.
type simulationFiles struct {
	log     *report.Log
	logFile *os.File
	page    *os.File
}

// newSimulationFiles creates the files before anything is simulated, so that a wrong path is reported at once.
func newSimulationFiles(c *cli.Context, l *load.Load) (*simulationFiles, error) {
	o := &simulationFiles{}
	create := func(flag string) (*os.File, error) {
		name := c.String(flag)
		if name == "" {
			return nil, nil
		}
		f, err := os.Create(name)
		if err != nil {
			return nil, usageError{fmt.Errorf("simulate: --%s: %w", flag, err)}
		}
		return f, nil
	}
	var err error
	if o.logFile, err = create("out"); err != nil {
		return nil, err
	}
	if o.logFile != nil {
		o.log = report.NewLog(o.logFile, l)
	}
	o.page, err = create("report")
	return o, err
}

// sink returns the sink that writes the log; nil if there is no log.
func (o *simulationFiles) sink() record.Sink { //nolint:ireturn // nil must be a nil interface
	if o.log == nil {
		return nil
	}
	return o.log
}

func (o *simulationFiles) closeLog() error {
	if o.log == nil {
		return nil
	}
	return errors.Join(o.log.Close(), o.logFile.Close())
}

// printSimulation prints the document, and writes its page.
func (v hostVerbs) printSimulation(c *cli.Context, d *report.Document, o *simulationFiles) error {
	if o.page != nil {
		w := bufio.NewWriter(o.page)
		if err := errors.Join(html.Write(w, d), w.Flush(), o.page.Close()); err != nil {
			return fmt.Errorf("simulate: --report %s: %w", c.String("report"), err)
		}
	}
	if c.Bool("json") {
		return report.Write(v.out, d)
	}
	report.Summary(v.out, d)
	return nil
}
