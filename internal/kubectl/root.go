// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/internal/version"
)

// Run runs the plugin with its arguments and returns when the verb is done or ctx ends.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	log.SetLogger(logr.Discard()) // controller-runtime warns about a missing logger otherwise
	cmd := newRoot(genericiooptions.IOStreams{In: os.Stdin, Out: stdout, ErrOut: stderr})
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	return cmd.ExecuteContext(ctx)
}

// newRoot returns the command with all verbs.
func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-patchbay",
		Short: "Check clusters, uninstall, repair networks, join clusters to a hub, import, manage, debug and export placed objects, and compile CRDs",
		// Users run the plugin by this name, so usage and help have it.
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl patchbay"},
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	f := newFactory(streams)
	f.addFlags(cmd)
	registerFlagCompletion(cmd, "namespace", f.completeNamespaces)
	registerFlagCompletion(cmd, "context", f.completeContexts)
	cmd.AddCommand(newIPAM(f), newHub(f), newCluster(f), newContext(f), newRemove(f), newImport(f), newExport(f), newExplain(f), newGet(f), newCRD(f), newPreflight(f), newUninstall(f), newVersion(f))
	cmd.AddCommand(newDebugVerbs(f)...)
	return cmd
}

// newIPAM is the command `ipam`.
func newIPAM(f *factory) *cobra.Command {
	return newGroup("ipam", "Repair the addresses of networks", "rebuild or skip", newRebuild(f), newSkip(f))
}

// newHub is the command `hub`.
func newHub(f *factory) *cobra.Command {
	return newGroup("hub", "Create join tokens, resume after a restore, remove finalizers before an uninstall",
		"token, remove-finalizers or resume", newToken(f), newRemoveFinalizers(f), newResume(f))
}

// newCluster is the command `cluster`.
func newCluster(f *factory) *cobra.Command {
	return newGroup("cluster", "Join clusters to a hub, list and drain them",
		"join, leave, accept, list, drain, cordon, uncordon or declare-lost",
		newJoin(f), newLeave(f), newAccept(f), newClusterList(f), newDrain(f), newCordon(f), newUncordon(f), newDeclareLost(f))
}

// newCRD is the command `crd`.
func newCRD(f *factory) *cobra.Command {
	return newGroup("crd", "Compile CustomResourceDefinitions that contain types of Kubernetes", "compile", newCompile(f))
}

// newGroup returns a command that only has verbs.
func newGroup(use, short, verbs string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return fmt.Errorf("%s: give one of its verbs: %s; see --help", cmd.CommandPath(), verbs)
		},
	}
	cmd.AddCommand(commands...)
	return cmd
}

// newVersion is the verb `version`.
func newVersion(f *factory) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(f.Out, version.String())
			return err
		},
	}
}
