// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/patchbay-cni/patchbay/daemon/internal/nodefacts"
	"github.com/patchbay-cni/patchbay/internal/version"
)

// preflightCommand is the first argument with which the program reads facts about the node, instead of running as
// the daemon.
const preflightCommand = "preflight"

// runPreflight prints the facts of this node as JSON. `kubectl patchbay preflight` runs it in a Pod on each node.
func runPreflight(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	r := &nodefacts.Reader{Proc: os.DirFS("/proc"), Sys: os.DirFS("/sys")}
	f := pflag.NewFlagSet("patchbayd "+preflightCommand, pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&r.HostRoot, "host-root", "/", "`folder` at which the node's root file system is mounted")
	f.StringVar(&r.BinDir, "cni-bin-dir", defaultCNIBin, "`folder` of the CNI plugins on the node")
	f.StringVar(&r.ConfDir, "cni-conf-dir", defaultCNIConf, "`folder` of the CNI configurations on the node")
	f.StringVar(&r.DefaultDelegate, "default-delegate", "", "name of the `file` that Pods without an annotation shall get; empty for the first one")
	f.StringVar(&r.Runtime, "container-runtime", "", "`runtime` of containers as in the Node's status, such as containerd://1.7.2; empty if unknown")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("arguments: must be none besides flags: got %q", f.Args())
	}
	if info, err := os.Stat(r.HostRoot); err != nil {
		return fmt.Errorf("flag --host-root: %w", err)
	} else if !info.IsDir() {
		return fmt.Errorf("flag --host-root: must be a folder: got %s", r.HostRoot)
	}
	r.Host = nodefacts.HostFiles{Root: r.HostRoot}
	facts := r.Read(ctx)
	facts.Version = version.String()
	return json.NewEncoder(stdout).Encode(facts)
}
