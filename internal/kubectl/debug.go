// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-cni/patchbay/internal/app"
)

// whereText is the part of the help that all these verbs share.
const whereText = "The object is one of the hub, and the command finds its cluster and Pod: it prints them to standard error. A Pod that\n" +
	"the hub does not know needs --in, such as pod/NAME --in=CLUSTER. All other flags are those of kubectl, which runs\n" +
	"with your credentials of the hub. Hub and cluster must both allow it: see `kubectl patchbay context --help`."

// newDebugVerbs returns the verbs that run kubectl.
func newDebugVerbs(f *factory) []*cobra.Command {
	return []*cobra.Command{newLogs(f), newExec(f), newPortForward(f), newTop(f)}
}

// newLogs is the verb `logs`.
func newLogs(f *factory) *cobra.Command {
	return newDebugVerb(f, &cobra.Command{
		Use:     "logs KIND/NAME [flags of kubectl logs]",
		Short:   "Print the logs of a placed object's Pod",
		Long:    "Prints the logs of one Pod of an object, or with --all-pods of all in one cluster.\n" + whereText,
		Example: "  kubectl patchbay logs deployment/web -n shop -f --since=5m\n  kubectl patchbay logs pod/web-0 --in=east --previous",
	}, func(ctx context.Context, d *debugObject, args []string) error {
		p, err := d.choosePod(ctx, f.ErrOut)
		if err != nil {
			return err
		}
		what := "pod/" + p.pod.Name
		if allPods := []string{"--all-pods", "--all-pods=true"}; slices.ContainsFunc(args, func(a string) bool { return slices.Contains(allPods, a) }) {
			what = d.kubectlName()
		}
		return runKubectl(ctx, f, p.cluster, p.namespace, append([]string{"logs", what}, args...)...)
	})
}

// newExec is the verb `exec`.
func newExec(f *factory) *cobra.Command {
	return newDebugVerb(f, &cobra.Command{
		Use:     "exec KIND/NAME [flags of kubectl exec] -- COMMAND [ARGS...]",
		Short:   "Run a command in a placed object's Pod",
		Long:    "Runs a command in a container of one Pod of an object.\n" + whereText,
		Example: "  kubectl patchbay exec statefulset/db -n shop -it -- sh",
	}, func(ctx context.Context, d *debugObject, args []string) error {
		p, err := d.choosePod(ctx, f.ErrOut)
		if err != nil {
			return err
		}
		if err := p.checkMayCreate(ctx, "exec"); err != nil {
			return err
		}
		return runKubectl(ctx, f, p.cluster, p.namespace, append([]string{"exec", "pod/" + p.pod.Name}, args...)...)
	})
}

// newPortForward is the verb `port-forward`.
func newPortForward(f *factory) *cobra.Command {
	return newDebugVerb(f, &cobra.Command{
		Use:     "port-forward KIND/NAME [LOCAL_PORT:]REMOTE_PORT... [flags of kubectl port-forward]",
		Short:   "Forward local ports to a placed object's Pod",
		Long:    "Forwards local ports to one Pod of an object. The ports of a Service are its own.\n" + whereText,
		Example: "  kubectl patchbay port-forward deployment/web -n shop 8080:80",
	}, func(ctx context.Context, d *debugObject, args []string) error {
		p, err := d.choosePod(ctx, f.ErrOut)
		if err != nil {
			return err
		}
		if err := p.checkMayCreate(ctx, "portforward"); err != nil {
			return err
		}
		what := "pod/" + p.pod.Name
		if d.ref.Group == "" && d.ref.Kind == "Service" {
			what = d.kubectlName() // kubectl translates its ports
		}
		return runKubectl(ctx, f, p.cluster, p.namespace, append([]string{"port-forward", what}, args...)...)
	})
}

// newTop is the command `top`.
func newTop(f *factory) *cobra.Command {
	pods := newDebugVerb(f, &cobra.Command{
		Use:     "pods KIND/NAME [flags of kubectl top pods]",
		Aliases: []string{"pod", "po"},
		Short:   "Print the CPU and memory that a placed object's Pods use",
		Long: "Prints the CPU and memory that the Pods of an object use, for each cluster that has it: the cluster's name is on\n" +
			"standard error.\n" + whereText,
		Example: "  kubectl patchbay top pods deployment/web -n shop --containers",
	}, func(ctx context.Context, d *debugObject, args []string) error {
		var last error
		for _, cluster := range d.clusters {
			which, err := d.podsForKubectl(ctx, cluster)
			if err == nil {
				fmt.Fprintf(f.ErrOut, "Cluster %s:\n", cluster)
				err = runKubectl(ctx, f, cluster, d.ref.Namespace, append([]string{"top", "pods", which}, args...)...)
			} else {
				fmt.Fprintf(f.ErrOut, "error: %v\n", err)
				err = app.Exited(1)
			}
			if err != nil {
				last = err // the other clusters are printed all the same
			}
		}
		return last
	})
	return newGroup("top", "Print what Pods use", "pods", pods)
}

// podsForKubectl returns the argument by which kubectl finds the object's Pods in a cluster.
func (d *debugObject) podsForKubectl(ctx context.Context, cluster string) (string, error) {
	r, err := newProxiedCluster(d.hub, d.ref.Namespace, cluster)
	if err != nil {
		return "", err
	}
	s, err := r.selection(ctx, &d.ref)
	switch {
	case err != nil:
		return "", err
	case s.pod != "":
		return s.pod, nil
	case s.selector == "":
		return "", fmt.Errorf("%s must have a selector, by which kubectl finds Pods", placedName(&d.ref))
	case s.controllers != nil && len(s.controllers) == 0:
		return "", fmt.Errorf("%s has no Pod in Cluster %s", placedName(&d.ref), cluster)
	}
	return "--selector=" + s.selector, nil
}

// kubectlName returns RESOURCE.VERSION.GROUP/NAME, as kubectl understands it without doubt.
func (d *debugObject) kubectlName() string {
	if d.ref.Group == "" {
		return d.ref.Resource + "/" + d.ref.Name
	}
	return d.ref.Resource + "." + d.ref.Version + "." + d.ref.Group + "/" + d.ref.Name
}

// newDebugVerb completes a command that runs kubectl for an object of the hub.
func newDebugVerb(f *factory, cmd *cobra.Command, run func(context.Context, *debugObject, []string) error) *cobra.Command {
	cmd.DisableFlagParsing = true // most flags are those of kubectl
	cmd.DisableFlagsInUseLine = true
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return completeDebugArguments(f, cmd, args, toComplete)
	}
	addInFlag(cmd, f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		parsed, err := parseDebugArguments(cmd, args)
		if err != nil {
			return err
		}
		if parsed.help {
			return cmd.Help()
		}
		d, err := findDebugObject(f, cmd, parsed.object, parsed.cluster)
		if err != nil {
			return err
		}
		return run(cmd.Context(), d, parsed.kubectl)
	}
	return cmd
}

// completeDebugArguments completes the object, and the value of --in. cobra completes no flags of a command that parses
// them itself.
func completeDebugArguments(f *factory, cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if slices.Contains(args, "--") {
		return nil, cobra.ShellCompDirectiveDefault // the command of an exec
	}
	if len(args) > 0 && args[len(args)-1] == "--"+inFlag {
		if _, err := parseDebugArguments(cmd, args[:len(args)-1]); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return flagValue(f.clusterNames)(cmd, args, toComplete)
	}
	d, err := parseDebugArguments(cmd, args)
	if err != nil || strings.HasPrefix(toComplete, "-") || d.object != "" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return firstArgument(f.placedArguments)(cmd, nil, toComplete)
}
