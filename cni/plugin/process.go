// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
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

// serve returns what is to be printed, and the version that it is in.
func (p *Process) serve(ctx context.Context, command string) (answer any, cniVersion string, err error) {
	stdin, err := p.input()
	if err != nil {
		return nil, conf.Latest, err
	}
	if command == "VERSION" {
		answer, err := supported(stdin)
		return answer, conf.Latest, err
	}
	req := p.request(command)
	if err := conf.Check(req); err != nil {
		return nil, conf.Latest, err
	}
	c, err := conf.Parse(stdin)
	if err != nil {
		return nil, conf.Latest, err
	}
	if !conf.Knows(c.CNIVersion, command) {
		return nil, c.CNIVersion, wire.Errorf(wire.CodeVersion,
			"CNI_COMMAND: %s does not exist in cniVersion %s", command, c.CNIVersion)
	}
	req.Config = stdin
	answer, err = verbs()[command](&invocation{Process: p, req: req, conf: c}, ctx)
	return answer, c.CNIVersion, err
}

// input reads the configuration, which has to fit a frame beside its envelope.
func (p *Process) input() ([]byte, error) {
	const most = wire.MaxFrame / 2
	doc, err := io.ReadAll(io.LimitReader(p.Stdin, most+1))
	if err != nil {
		return nil, wire.Errorf(wire.CodeIO, "read network configuration: %w", err)
	}
	if len(doc) > most {
		return nil, wire.Errorf(wire.CodeDecode, "read network configuration: more than %d bytes", most)
	}
	return doc, nil
}

// request reads the environment.
func (p *Process) request(command string) *wire.Request {
	env := func(name string) string { v, _ := p.LookupEnv(name); return v }
	return &wire.Request{
		Command: command, ContainerID: env("CNI_CONTAINERID"), Netns: env("CNI_NETNS"),
		IfName: env("CNI_IFNAME"), Args: env("CNI_ARGS"), Path: env("CNI_PATH"),
	}
}

// versions answers VERSION.
type versions struct {
	CNIVersion string   `json:"cniVersion"`
	Supported  []string `json:"supportedVersions"`
}

// supported lists the versions, in the version of the input where we speak it.
func supported(stdin []byte) (any, error) {
	var in struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(stdin, &in); err != nil {
		return nil, wire.Errorf(wire.CodeDecode, "decode input of VERSION: %w", err)
	}
	if !slices.Contains(conf.Versions(), in.CNIVersion) {
		in.CNIVersion = conf.Latest
	}
	return versions{in.CNIVersion, conf.Versions()}, nil
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

// list joins words for a person.
func list(words []string) string { return strings.Join(words, ", ") }
