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
	"github.com/patchbay-cni/patchbay/internal/version"
)

// Limits of one invocation. Kubelet gives a runtime 2 minutes for a sandbox.
const (
	// DefaultAddWait is how long ADD waits for a daemon that is away.
	DefaultAddWait = 10 * time.Second
	// DefaultStatusTimeout is how long STATUS waits for a daemon that is busy.
	DefaultStatusTimeout = 2 * time.Second
	// RequestTimeout is how long the daemon may take for an ADD or DEL.
	RequestTimeout = 100 * time.Second
	// HeartbeatMaxAge is the age up to which a heartbeat counts for STATUS.
	HeartbeatMaxAge = 60 * time.Second
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
	// PendingDir is the folder for DELs that the daemon could not take.
	PendingDir string
	// AddWait is how long ADD waits for a daemon that is away.
	AddWait time.Duration
	// StatusTimeout is how long STATUS waits for a daemon that is busy.
	StatusTimeout time.Duration
}

// NewProcess is the process that a container runtime has started.
func NewProcess() *Process {
	return &Process{
		LookupEnv: os.LookupEnv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		PendingDir: wire.DefaultPendingDir, AddWait: DefaultAddWait, StatusTimeout: DefaultStatusTimeout,
	}
}

// Run does one invocation and returns the exit status: 0, or 1 after an error
// was printed as the specification wants it.
func (p *Process) Run(ctx context.Context) int {
	command, set := p.LookupEnv("CNI_COMMAND")
	if !set {
		_, _ = fmt.Fprintf(p.Stderr, "patchbay %s, a CNI plugin for versions %s; it is run by a container runtime\n",
			version.String(), joinComma(conf.SupportedVersions()))
		return 0
	}
	answer, cniVersion, err := p.handle(ctx, command)
	if err == nil {
		err = p.print(answer)
	}
	if err == nil {
		return 0
	}
	// When even this cannot be printed the exit status has to do.
	_ = p.print(newVersionedError(cniVersion, err))
	return 1
}

// handle returns what is to be printed, and the version that it is in.
func (p *Process) handle(ctx context.Context, command string) (answer any, cniVersion string, err error) {
	stdin, err := p.readConfig()
	if err != nil {
		return nil, conf.LatestVersion, err
	}
	if command == "VERSION" {
		answer, err := supportedVersions(stdin)
		return answer, conf.LatestVersion, err
	}
	req := p.request(command)
	if err := conf.ValidateRequest(req); err != nil {
		return nil, conf.LatestVersion, err
	}
	c, err := conf.ParseConfig(stdin)
	if err != nil {
		return nil, conf.LatestVersion, err
	}
	if !conf.HasCommand(c.CNIVersion, command) {
		return nil, c.CNIVersion, wire.Errorf(wire.CodeVersion,
			"CNI_COMMAND: %s does not exist in cniVersion %s", command, c.CNIVersion)
	}
	req.Config = stdin
	answer, err = commands()[command](&invocation{Process: p, req: req, conf: c}, ctx)
	return answer, c.CNIVersion, err
}

// readConfig reads the configuration, which has to fit a frame beside its envelope.
func (p *Process) readConfig() ([]byte, error) {
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

// versionResult answers VERSION.
type versionResult struct {
	CNIVersion string   `json:"cniVersion"`
	Supported  []string `json:"supportedVersions"`
}

// supportedVersions lists the versions, in the version of the input where we speak it.
func supportedVersions(stdin []byte) (any, error) {
	var in struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(stdin, &in); err != nil {
		return nil, wire.Errorf(wire.CodeDecode, "decode input of VERSION: %w", err)
	}
	if !slices.Contains(conf.SupportedVersions(), in.CNIVersion) {
		in.CNIVersion = conf.LatestVersion
	}
	return versionResult{in.CNIVersion, conf.SupportedVersions()}, nil
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

// versionedError is an error as the specification prints it.
type versionedError struct {
	CNIVersion string `json:"cniVersion"`
	wire.Error
}

func newVersionedError(cniVersion string, err error) versionedError {
	v := versionedError{CNIVersion: cniVersion}
	if e := (*wire.Error)(nil); errors.As(err, &e) {
		v.Error = *e
	} else {
		v.Error = wire.Error{Code: wire.CodeIO, Msg: err.Error()}
	}
	return v
}

// joinComma joins words for a person.
func joinComma(words []string) string { return strings.Join(words, ", ") }
