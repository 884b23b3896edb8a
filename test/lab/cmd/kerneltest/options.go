// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Kinds of kernels.
const (
	kernelUML  = "uml"
	kernelQEMU = "qemu"
)

// options are the command line.
type options struct {
	kernel  string
	timeout time.Duration
	memory  int
	bin     string
	env     string
	// program is an absolute path.
	program string
	args    []string
}

// passedVariables are passed on from the caller's environment.
const passedVariables = "GODEBUG,GOGC,GOMAXPROCS,GOMEMLIMIT,GORACE,GOTRACEBACK,RAPID_CHECKS"

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("kerneltest", flag.ContinueOnError)
	flags.StringVar(&o.kernel, "kernel", kernelUML, "uml, or qemu for a guest with SR-IOV functions")
	flags.DurationVar(&o.timeout, "timeout", 15*time.Minute, "time for all of it")
	flags.IntVar(&o.memory, "memory", 1024, "memory of the guest in MiB")
	flags.StringVar(&o.bin, "bin", "", "folder of the built kernel (default: the one that kerneltest is in)")
	flags.StringVar(&o.env, "env", passedVariables, "variables to pass on, besides those that begin with PATCHBAY_")
	if err := flags.Parse(args); err != nil {
		return o, fmt.Errorf("parse flags: %w", err)
	}
	if o.kernel != kernelUML && o.kernel != kernelQEMU {
		return o, fmt.Errorf("check flags: -kernel must be %s or %s, got %q", kernelUML, kernelQEMU, o.kernel)
	}
	if flags.NArg() == 0 {
		return o, errors.New("no program given: kerneltest [FLAGS] PROGRAM [ARGUMENTS]")
	}
	program, err := exec.LookPath(flags.Arg(0))
	if err != nil {
		return o, fmt.Errorf("find program: %w", err)
	}
	if o.program, err = filepath.Abs(program); err != nil {
		return o, fmt.Errorf("find program %s: %w", program, err)
	}
	if o.bin == "" {
		if o.bin, err = executableDir(); err != nil {
			return o, err
		}
	}
	o.args = slices.DeleteFunc(slices.Clone(flags.Args()[1:]), isHostFileFlag)
	return o, nil
}

func executableDir() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find own program: %w", err)
	}
	return filepath.Dir(self), nil
}

// isHostFileFlag tells whether go test added an argument about a file of the machine, which
// the guest cannot write. Without a test log go test does not cache the result.
func isHostFileFlag(arg string) bool {
	return strings.HasPrefix(strings.TrimLeft(arg, "-"), "test.testlogfile=")
}

// environment is what the program gets: a few variables of the caller's, so that a
// test does not come to depend on others.
func (o options) environment() []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/tmp", "TMPDIR=/tmp", "USER=root", "LANG=C.UTF-8",
	}
	wanted := strings.Split(o.env, ",")
	for _, kv := range os.Environ() {
		key, _, _ := strings.Cut(kv, "=")
		if slices.Contains(wanted, key) || strings.HasPrefix(key, "PATCHBAY_") {
			env = append(env, kv)
		}
	}
	return env
}
