// SPDX-License-Identifier: Apache-2.0

// Command testreport prints the tables at the end of `make test`: the ten slowest tests, every test that
// takes longer than its budget of a minute with the reason that test/slow-tests.txt gives, and every
// target with its tests, its time, and the time that its programs spent on processors.
//
// It reads what scripts/target and scripts/gotest recorded in the folder given as
// argument. It fails when a target failed or was not recorded.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	records := flag.String("records", "bin/test", "folder that scripts/target and scripts/gotest write to")
	reasons := flag.String("reasons", "test/slow-tests.txt", "file with the reasons of slow tests")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: testreport [--records FOLDER] [--reasons FILE] TARGET...")
		os.Exit(2)
	}
	if err := run(os.Stdout, *records, *reasons, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

// run reports on the targets of the given names, in their order.
func run(out io.Writer, records, reasonsFile string, names []string) error {
	reasons, err := readReasons(reasonsFile)
	if err != nil {
		return err
	}
	var targets []*target
	for _, name := range names {
		targets = append(targets, readTarget(records, name))
	}
	if err := write(out, targets, reasons); err != nil {
		return err
	}
	var errs []error
	for _, t := range targets {
		if t.state() != statePassed {
			errs = append(errs, fmt.Errorf("target %s: %s", t.name, t.state()), t.readError)
		}
	}
	return errors.Join(errs...)
}
