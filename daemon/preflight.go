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
	var hostRoot string
	r := &nodefacts.Reader{Proc: os.DirFS("/proc"), Sys: os.DirFS("/sys")}
	f := pflag.NewFlagSet("patchbayd "+preflightCommand, pflag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&hostRoot, "host-root", "/", "`folder` at which the node's root file system is mounted")
	f.StringVar(&r.BinDir, "cni-bin-dir", defaultCNIBin, "`folder` of the CNI plugins on the node")
	f.StringVar(&r.ConfDir, "cni-conf-dir", defaultCNIConf, "`folder` of the CNI configurations on the node")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("arguments: must be none besides flags: got %q", f.Args())
	}
	root, err := os.OpenRoot(hostRoot)
	if err != nil {
		return fmt.Errorf("flag --host-root: %w", err)
	}
	defer root.Close()
	r.HostRoot, r.Host = hostRoot, root.FS()
	facts := r.Read(ctx)
	facts.Version = version.String()
	return json.NewEncoder(stdout).Encode(facts)
}
