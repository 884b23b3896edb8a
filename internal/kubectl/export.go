// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// exportOptions are the arguments and the flags of `export`.
type exportOptions struct {
	cluster, dir string
	yes          bool
	timeout      time.Duration
	command      string // the same call with --yes
	objects      []objectArgument
}

// newExport is the verb `export`.
func newExport(f *factory) *cobra.Command {
	e := &exportOptions{}
	cmd := &cobra.Command{
		Use:   "export NAMESPACE[/KIND[/NAME]]...",
		Short: "Let placed objects continue in their clusters without the hub",
		Long: "Deletes objects at the hub, and keeps them in their clusters as they are: with their UIDs, and without labels,\n" +
			"annotations and field ownership of Patchbay. What only these objects need (ConfigMaps, Secrets, Services) is\n" +
			"exported with them. Without --yes the command changes nothing at the hub: it prints each object and its\n" +
			"clusters. With --output-dir it writes the manifests that each cluster has.",
		Example: "  kubectl patchbay export shop/deployment/web\n" +
			"  kubectl patchbay export shop --in=east --output-dir=manifests --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if e.objects, err = parseObjectArguments(cmd, args); err != nil {
				return err
			}
			if e.timeout <= 0 {
				return fmt.Errorf("flag --timeout: must be more than 0, such as 5m: got %v", e.timeout)
			}
			e.command = commandWithYes(cmd, args, "in", "output-dir", "timeout")
			return e.run(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&e.cluster, "in", "", "export only objects that are in this Cluster, and in no other")
	flags.StringVar(&e.dir, "output-dir", "", "the folder to write manifests to, as CLUSTER/NAMESPACE/KIND-NAME.yaml; Secrets are left out")
	flags.BoolVar(&e.yes, "yes", false, "export; without this flag the command prints what it would do")
	flags.DurationVar(&e.timeout, "timeout", 5*time.Minute, "the time to wait until the clusters have let go of the objects")
	cmd.ValidArgsFunction = flagValue(f.exportArguments)
	registerFlagCompletion(cmd, "in", flagValue(f.clusterNames))
	return cmd
}

// run prints the plan, and with --yes exports the objects.
func (e *exportOptions) run(ctx context.Context, f *factory) error {
	hub, err := f.unthrottledPlacementClient()
	if err != nil {
		return err
	}
	planner := &exportPlanner{hub: hub, cluster: e.cluster, kindOf: f.restMapping}
	plan, err := planner.Plan(ctx, e.objects)
	if err != nil {
		return err
	}
	if err := plan.print(f.Out); err != nil {
		return err
	}
	if len(plan.objects) == 0 {
		return errors.New("nothing was changed: no object among those is placed")
	}
	if e.dir != "" {
		if err := writeManifests(ctx, hub, e.dir, plan.objects); err != nil {
			return err
		}
	}
	switch {
	case plan.isRefused():
		return errSomeRefused
	case !e.yes:
		_, err := fmt.Fprintf(f.Out, "Nothing was changed at the hub. To export: %s\n", e.command)
		return err
	}
	return (&exporter{hub: hub, timeout: e.timeout, out: f.Out}).Run(ctx, plan)
}

// writeManifests writes what clusters have of objects, one file each. Secrets are left out.
func writeManifests(ctx context.Context, hub client.Client, dir string, objects []*exportedObject) error {
	for _, o := range objects {
		ref := o.assignment.Spec.Object
		if ref.Group == "" && ref.Kind == "Secret" {
			continue
		}
		for _, cluster := range o.clusters() {
			w := &v1alpha1.Work{}
			key := client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + cluster, Name: o.assignment.Name}
			if err := hub.Get(ctx, key, w); apierrors.IsNotFound(err) {
				continue // the cluster has nothing yet
			} else if err != nil {
				return fmt.Errorf("read Work %s: %w", key, err)
			}
			for _, m := range w.Spec.Manifests {
				raw, err := yaml.JSONToYAML(m.Object.Raw)
				if err != nil {
					return fmt.Errorf("write the manifest of %s: %w", o.name(), err)
				}
				file := filepath.Join(dir, cluster, ref.Namespace, strings.ToLower(schema.GroupKind{Group: ref.Group, Kind: ref.Kind}.String())+"-"+ref.Name+".yaml")
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o750), os.WriteFile(file, raw, 0o600)); err != nil {
					return fmt.Errorf("write the manifest of %s: %w", o.name(), err)
				}
			}
		}
	}
	return nil
}
