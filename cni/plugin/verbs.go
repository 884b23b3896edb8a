// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/cni/conf"
	"github.com/patchbay-cni/patchbay/cni/wire"
)

// invocation is one command with its configuration.
type invocation struct {
	*Process
	req  *wire.Request
	conf *conf.Config
}

// verb does one CNI command; its answer is printed, nil is nothing.
type verb func(*invocation, context.Context) (any, error)

func verbs() map[string]verb {
	return map[string]verb{
		"ADD": (*invocation).add, "DEL": (*invocation).del, "STATUS": (*invocation).status,
		"CHECK": (*invocation).notThere, "GC": (*invocation).notThere,
	}
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

// request reads the environment.
func (p *Process) request(command string) *wire.Request {
	env := func(name string) string { v, _ := p.LookupEnv(name); return v }
	return &wire.Request{
		Command: command, ContainerID: env("CNI_CONTAINERID"), Netns: env("CNI_NETNS"),
		IfName: env("CNI_IFNAME"), Args: env("CNI_ARGS"), Path: env("CNI_PATH"),
	}
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

// notThere answers for commands that are to come. An error is honest: a runtime
// that is told OK would believe that interfaces were compared or leaks removed.
func (i *invocation) notThere(context.Context) (any, error) {
	return nil, wire.Errorf(wire.CodeNotThere, "%s is not implemented yet; nothing was looked at or changed", i.req.Command)
}

// list joins words for a person.
func list(words []string) string { return strings.Join(words, ", ") }

// away reports whether waiting, or another daemon, would help.
func away(err error) bool { return errors.Is(err, wire.ErrAway) }
