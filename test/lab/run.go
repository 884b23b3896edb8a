// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/test/lab/netns"
	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

// Run runs a command in a node's kernel, below its root, and returns its exit code.
// It works on a node whose cables are cut.
func (l *Lab) Run(ctx context.Context, name string, r remote.Request, s remote.Streams) (int, error) {
	c, err := l.known(name)
	if err != nil {
		return -1, err
	}
	return c.Run(ctx, r, s)
}

// Exec runs a command in a node's kernel and returns its standard output. Any exit
// code but 0 is an error, which has the standard error.
func (l *Lab) Exec(ctx context.Context, name string, args ...string) (string, error) {
	var out, errOut bytes.Buffer
	code, err := l.Run(ctx, name, remote.Request{Args: args}, remote.Streams{Out: &out, Err: &errOut})
	if err == nil && code != 0 {
		err = fmt.Errorf("run %s on %s: exit code %d: %s", strings.Join(args, " "), name, code, strings.TrimSpace(errOut.String()))
	}
	return out.String(), err
}

// KubectlCommand is kubectl as the cluster's administrator. It runs in the lab's
// network namespace, where the API server's address is, and sees the caller's files.
func (l *Lab) KubectlCommand(ctx context.Context, args ...string) (*exec.Cmd, error) {
	plane, err := l.plane()
	if err != nil {
		return nil, err
	}
	kubectl := filepath.Join(l.config.Bin, "kubernetes", "kubectl")
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + netns.Path(l.Netns()), "--", kubectl}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+plane.AdminKubeconfig())
	return cmd, nil
}

// Kubectl runs kubectl and returns its standard output; the error has the other one.
func (l *Lab) Kubectl(ctx context.Context, args ...string) (string, error) {
	return l.KubectlInput(ctx, "", args...)
}

// KubectlInput is Kubectl with an input, for "apply -f -".
func (l *Lab) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	cmd, err := l.KubectlCommand(ctx, args...)
	if err != nil {
		return "", err
	}
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(out), fmt.Errorf("run kubectl %s: %w: %s", strings.Join(args, " "), err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("run kubectl %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// RESTConfig is the administrator's client configuration; it works from outside the
// lab's namespace.
func (l *Lab) RESTConfig() (*rest.Config, error) {
	plane, err := l.plane()
	if err != nil {
		return nil, err
	}
	return plane.RESTConfig(), nil
}

// Examples returns a folder of examples/ of the module that the lab was built from.
func (l *Lab) Examples(name string) string { return l.config.source("examples", name) }
