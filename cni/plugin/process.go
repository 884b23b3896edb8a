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

	"github.com/patchbay-cni/patchbay/cni/config"
	"github.com/patchbay-cni/patchbay/cni/wire"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// Limits of one invocation. Kubelet's timeout for a sandbox is 2 minutes.
const (
	// defaultAddWait is how long ADD waits for an unavailable daemon.
	defaultAddWait = 10 * time.Second
	// DefaultStatusTimeout is how long STATUS waits for the daemon's answer.
	DefaultStatusTimeout = 2 * time.Second
	// requestTimeout bounds the daemon's time for an ADD or DEL.
	requestTimeout = 100 * time.Second
	// heartbeatMaxAge is the greatest age of a heartbeat with which STATUS succeeds.
	heartbeatMaxAge = 60 * time.Second
)

// Process is the plugin's environment: the runtime's input and output (CNI 1.1, section 2), and
// paths and timeouts.
type Process struct {
	// LookupEnv reads the environment.
	LookupEnv func(string) (string, bool)
	// Stdin has the network configuration.
	Stdin io.Reader
	// Stdout gets the result or the error, as JSON.
	Stdout io.Writer
	// Stderr gets a line about the program if it is run without CNI_COMMAND.
	Stderr io.Writer
	// PendingDir is the directory for DELs while the daemon is unavailable.
	PendingDir string
	// AddWait is how long ADD waits for an unavailable daemon.
	AddWait time.Duration
	// StatusTimeout is how long STATUS waits for the daemon's answer.
	StatusTimeout time.Duration
}

// NewProcess returns the process's own environment with the default paths and timeouts.
func NewProcess() *Process {
	return &Process{
		LookupEnv: os.LookupEnv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		PendingDir: wire.DefaultPendingDir, AddWait: defaultAddWait, StatusTimeout: DefaultStatusTimeout,
	}
}

// Run handles one invocation and returns the exit status: 0, or 1 after it has printed an error in
// the specification's format.
func (p *Process) Run(ctx context.Context) int {
	command, set := p.LookupEnv("CNI_COMMAND")
	if !set {
		_, _ = fmt.Fprintf(p.Stderr, "patchbay %s, a CNI plugin for versions %s: container runtimes run it\n",
			version.String(), joinComma(config.SupportedVersions()))
		return 0
	}
	answer, cniVersion, err := p.handle(ctx, command)
	if err == nil {
		err = p.print(answer)
	}
	if err == nil {
		return 0
	}
	// If the error cannot be printed, the exit status reports it.
	_ = p.print(newVersionedError(cniVersion, err))
	return 1
}

// handle returns the answer to print, and its CNI version.
func (p *Process) handle(ctx context.Context, command string) (answer any, cniVersion string, err error) {
	stdin, err := p.readConfig()
	if err != nil {
		return nil, config.LatestVersion, err
	}
	if command == "VERSION" {
		answer, err := supportedVersions(stdin)
		return answer, config.LatestVersion, err
	}
	req := p.request(command)
	if err := config.ValidateRequest(req); err != nil {
		return nil, config.LatestVersion, err
	}
	c, err := config.ParseConfig(stdin)
	if err != nil {
		return nil, config.LatestVersion, err
	}
	if !config.HasCommand(c.CNIVersion, command) {
		return nil, c.CNIVersion, wire.Errorf(wire.CodeVersion,
			"CNI_COMMAND: %s does not exist in cniVersion %s", command, c.CNIVersion)
	}
	req.Config = stdin
	answer, err = commands()[command](&invocation{Process: p, req: req, config: c}, ctx)
	return answer, c.CNIVersion, err
}

// commandFunc handles a CNI command and returns the answer to print, or nil.
type commandFunc func(*invocation, context.Context) (any, error)

func commands() map[string]commandFunc {
	return map[string]commandFunc{
		"ADD": (*invocation).add, "DEL": (*invocation).del, "STATUS": (*invocation).status,
		"CHECK": (*invocation).notImplemented, "GC": (*invocation).notImplemented,
	}
}

// readConfig reads the configuration, which must fit into a frame with the rest of the request.
func (p *Process) readConfig() ([]byte, error) {
	const limit = wire.MaxFrame / 2
	doc, err := io.ReadAll(io.LimitReader(p.Stdin, limit+1))
	if err != nil {
		return nil, wire.Errorf(wire.CodeIO, "read network configuration: %w", err)
	}
	if len(doc) > limit {
		return nil, wire.Errorf(wire.CodeDecode, "read network configuration: must be at most %d bytes", limit)
	}
	return doc, nil
}

// request returns the request with the values of the environment.
func (p *Process) request(command string) *wire.Request {
	env := func(name string) string { v, _ := p.LookupEnv(name); return v }
	return &wire.Request{
		Command: command, ContainerID: env("CNI_CONTAINERID"), Netns: env("CNI_NETNS"),
		IfName: env("CNI_IFNAME"), Args: env("CNI_ARGS"), Path: env("CNI_PATH"),
	}
}

// versionResult is the answer to VERSION.
type versionResult struct {
	CNIVersion string   `json:"cniVersion"`
	Supported  []string `json:"supportedVersions"`
}

// supportedVersions returns the answer to VERSION, in the input's version if it is supported.
func supportedVersions(stdin []byte) (any, error) {
	var in struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(stdin, &in); err != nil {
		return nil, wire.Errorf(wire.CodeDecode, "decode input of VERSION: %w", err)
	}
	if !slices.Contains(config.SupportedVersions(), in.CNIVersion) {
		in.CNIVersion = config.LatestVersion
	}
	return versionResult{in.CNIVersion, config.SupportedVersions()}, nil
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

// versionedError is an error in the specification's format.
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

// joinComma joins words with commas.
func joinComma(words []string) string { return strings.Join(words, ", ") }
