// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/patchbay-cni/patchbay/cni/conf"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/version"
)

// Limits of one invocation. Kubelet gives a runtime 2 minutes for a sandbox.
const (
	// Patience is how long ADD waits for a daemon that is away.
	Patience = 10 * time.Second
	// Glance is how long STATUS waits for a daemon that is busy.
	Glance = 2 * time.Second
	// Answer is how long the daemon may take for an ADD or DEL.
	Answer = 100 * time.Second
	// Fresh is the age up to which a heartbeat counts for STATUS.
	Fresh = 60 * time.Second
)

// Process is the boundary to the operating system: what the runtime gives a
// plugin (CNI 1.1, section 2), and where the daemon's traces are.
type Process struct {
	// LookupEnv reads the environment.
	LookupEnv func(string) (string, bool)
	// Stdin has the network configuration.
	Stdin io.Reader
	// Stdout takes the result or the error, as JSON.
	Stdout io.Writer
	// Stderr takes a line about the program when it is run by hand.
	Stderr io.Writer
	// Pending is the folder for DELs that the daemon could not take.
	Pending string
	// Patience is how long ADD waits for a daemon that is away.
	Patience time.Duration
	// Glance is how long STATUS waits for a daemon that is busy.
	Glance time.Duration
}

// Host is the process that a container runtime has started.
func Host() *Process {
	return &Process{
		LookupEnv: os.LookupEnv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Pending: wire.DefaultPending, Patience: Patience, Glance: Glance,
	}
}

// Run does one invocation and returns the exit status: 0, or 1 after an error
// was printed as the specification wants it.
func (p *Process) Run(ctx context.Context) int {
	command, set := p.LookupEnv("CNI_COMMAND")
	if !set {
		_, _ = fmt.Fprintf(p.Stderr, "patchbay %s, a CNI plugin for versions %s; it is run by a container runtime\n",
			version.String(), list(conf.Versions()))
		return 0
	}
	answer, cniVersion, err := p.serve(ctx, command)
	if err == nil {
		err = p.print(answer)
	}
	if err == nil {
		return 0
	}
	// When even this cannot be printed the exit status has to do.
	_ = p.print(failure(cniVersion, err))
	return 1
}

// print writes v as one line of JSON; nil prints nothing.
func (p *Process) print(v any) error {
	if v == nil {
		return nil
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return &wire.Error{Code: wire.CodeIO, Msg: "encode answer", Details: err.Error()}
	}
	if _, err := p.Stdout.Write(append(doc, '\n')); err != nil {
		return &wire.Error{Code: wire.CodeIO, Msg: "write answer", Details: err.Error()}
	}
	return nil
}

// versioned is an error as the specification prints it.
type versioned struct {
	CNIVersion string `json:"cniVersion"`
	wire.Error
}

func failure(cniVersion string, err error) versioned {
	v := versioned{CNIVersion: cniVersion}
	if e := (*wire.Error)(nil); errors.As(err, &e) {
		v.Error = *e
	} else {
		v.Error = wire.Error{Code: wire.CodeIO, Msg: err.Error()}
	}
	return v
}
