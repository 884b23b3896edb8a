// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-cni/patchbay/test/lab"
)

func newNode(name *string) *cobra.Command {
	node := &cobra.Command{
		Use: "node", Short: "Add nodes, cut their cables and their power", Args: rejectUnknown,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	node.AddCommand(newNodeAdd(name))
	for _, c := range []struct {
		use, short string
		do         func(context.Context, *lab.Lab, string) error
	}{
		{"cut NODE", "Take both network cables out", func(_ context.Context, l *lab.Lab, n string) error { return l.CutNode(n) }},
		{"heal NODE", "Put the cables back", func(_ context.Context, l *lab.Lab, n string) error { return l.HealNode(n) }},
		{"kill NODE", "Cut the power; the disk stays", func(ctx context.Context, l *lab.Lab, n string) error { return l.KillNode(ctx, n) }},
		{"start NODE", "Switch it on and wait until it is ready", func(ctx context.Context, l *lab.Lab, n string) error { return l.StartNode(ctx, n) }},
	} {
		node.AddCommand(&cobra.Command{
			Use: c.use, Short: c.short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error { return withLab(cmd, *name, args[0], c.do) },
		})
	}
	return node
}

func newNodeAdd(name *string) *cobra.Command {
	var as lab.NodeType
	cmd := &cobra.Command{
		Use: "add NODE", Short: "Make one more node, such as node-3", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withLab(cmd, *name, args[0], func(ctx context.Context, l *lab.Lab, node string) error {
				return l.AddNode(ctx, node, as)
			})
		},
	}
	cmd.Flags().StringVar((*string)(&as.Kind), "kind", string(lab.KindUML), "uml, or qemu for a node with SR-IOV functions")
	cmd.Flags().StringVar((*string)(&as.Runtime), "runtime", string(lab.RuntimeContainerd), "containerd of the machine's package, or containerd-2 (make containerd-2)")
	return cmd
}

func newRestart(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "restart PART",
		Short: "Restart etcd, kube-apiserver, …, patchbayd or patchbay-controller (with new images), NODE/containerd or NODE/kubelet",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withLab(cmd, *name, args[0], func(ctx context.Context, l *lab.Lab, part string) error { return l.Restart(ctx, part) })
		},
	}
}

func newLogs(name *string) *cobra.Command {
	return &cobra.Command{
		Use:   "logs DIR",
		Short: "Collect all logs and the state of everything in a folder",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withLab(cmd, *name, args[0], func(ctx context.Context, l *lab.Lab, dir string) error { return l.Logs(ctx, dir) })
		},
	}
}

// withLab opens the lab for one operation of limited time.
func withLab(cmd *cobra.Command, name, arg string, do func(context.Context, *lab.Lab, string) error) error {
	const patience = 15 * time.Minute // a node in QEMU takes minutes to become ready on a busy machine
	ctx, cancel := context.WithTimeout(cmd.Context(), patience)
	defer cancel()
	l, err := lab.Open(name)
	if err != nil {
		return err
	}
	l.SetProgress(cmd.OutOrStdout())
	return do(ctx, l, arg)
}
