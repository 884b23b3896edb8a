// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/invite"
)

// importOptions are the arguments and the flags of `import`.
type importOptions struct {
	cluster, context, kubeconfig string
	yes, allowRestart            bool
	timeout                      time.Duration
	command                      string // the same call with --yes
	objects                      []objectArgument
}

// newImport is the verb `import`.
func newImport(f *factory) *cobra.Command {
	i := &importOptions{}
	cmd := &cobra.Command{
		Use:   "import NAMESPACE[/KIND[/NAME]]... --in CLUSTER",
		Short: "Take objects that run in a cluster under the hub, without a restart",
		Long: "Creates objects of a cluster at the hub, and lets the cluster's agent adopt them. They keep their UIDs, and\n" +
			"Pods do not restart. Without --yes the command changes nothing: it prints each object, and what the adoption\n" +
			"would change in the cluster. Objects with an owner, and those that each cluster has of its own, stay there.\n" +
			"The kubeconfig has a context for the cluster, in which you may label namespaces and objects. You can repeat the\n" +
			"command; it then continues.",
		Example: "  kubectl patchbay import --in=east shop                        # a whole namespace\n" +
			"  kubectl patchbay import --in=east shop/deployment/web shop/configmaps --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if i.objects, err = parseObjectArguments(cmd, args); err != nil {
				return err
			}
			if err := i.validate(); err != nil {
				return err
			}
			i.command = commandWithYes(cmd, args, "in", "in-context", "in-kubeconfig", "allow-restart", "timeout")
			return i.run(cmd.Context(), f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&i.cluster, "in", "", "the Cluster that runs the objects")
	flags.StringVar(&i.context, "in-context", "", "the kubeconfig's context of the cluster; default: the name of the Cluster, or the current context of --in-kubeconfig")
	flags.StringVar(&i.kubeconfig, "in-kubeconfig", "", "the kubeconfig file with the cluster's context; default: the hub's file")
	flags.BoolVar(&i.allowRestart, "allow-restart", false, "also import objects whose Pods the adoption restarts")
	flags.BoolVar(&i.yes, "yes", false, "import; without this flag the command prints what it would do")
	flags.DurationVar(&i.timeout, "timeout", 5*time.Minute, "the time to wait for the adoption")
	cmd.ValidArgsFunction = i.completeNamespaceArguments(f)
	registerFlagCompletion(cmd, "in", flagValue(f.clusterNames))
	registerFlagCompletion(cmd, "in-context", f.completeContexts)
	return cmd
}

// validate returns all errors of the flags.
func (i *importOptions) validate() error {
	var errs []error
	if i.cluster == "" {
		errs = append(errs, errors.New(`flag --in: must be the name of a Cluster, such as "east": got ""`))
	} else if err := invite.ValidateClusterName(i.cluster); err != nil {
		errs = append(errs, fmt.Errorf("flag --in: %w", err))
	}
	if i.timeout <= 0 {
		errs = append(errs, fmt.Errorf("flag --timeout: must be more than 0, such as 5m: got %v", i.timeout))
	}
	return errors.Join(errs...)
}

// run prints the plan, and with --yes imports the objects.
func (i *importOptions) run(ctx context.Context, f *factory) error {
	hub, err := f.unthrottledPlacementClient()
	if err != nil {
		return err
	}
	hubKinds, err := f.config.ToRESTMapper()
	if err != nil {
		return fmt.Errorf("create discovery client: %w", err)
	}
	inContext := i.context
	if i.kubeconfig == "" {
		inContext = cmp.Or(i.context, i.cluster)
	}
	there := f.forCluster(i.kubeconfig, inContext)
	cluster, err := there.unthrottledPlacementClient()
	if err != nil {
		return fmt.Errorf("cluster %s (--in-context, --in-kubeconfig): %w", i.cluster, err)
	}
	if err := checkCluster(ctx, hub, cluster, i.cluster); err != nil {
		return err
	}
	selected, err := selectObjects(ctx, there, cluster, i.objects)
	if err != nil {
		return err
	}
	planner := &importPlanner{hub: hub, cluster: cluster, hubKinds: hubKinds, name: i.cluster, allowRestart: i.allowRestart}
	plan, err := planner.Plan(ctx, selected)
	if err != nil {
		return err
	}
	if err := plan.print(f.Out); err != nil {
		return err
	}
	return i.carryOut(ctx, f, plan, &adopter{hub: hub, cluster: cluster, name: i.cluster, timeout: i.timeout, out: f.Out})
}

// carryOut imports what the plan has, if that is wanted and nothing is refused.
func (i *importOptions) carryOut(ctx context.Context, f *factory, plan *importPlan, a *adopter) error {
	switch {
	case plan.isRefused():
		return errSomeRefused
	case len(plan.objects) == 0:
		return fmt.Errorf("nothing was changed: %s has no object to import among those", i.cluster)
	case !i.yes:
		_, err := fmt.Fprintf(f.Out, "Nothing was changed. To import: %s\n", i.command)
		return err
	}
	return a.Run(ctx, plan)
}

// checkCluster checks that the hub has the Cluster and reaches it, and that the context leads to that cluster and
// not to another one: the hub would create a second copy of the objects in its own cluster.
func checkCluster(ctx context.Context, hub, cluster client.Client, name string) error {
	c := &v1alpha1.Cluster{}
	if err := hub.Get(ctx, client.ObjectKey{Name: name}, c); err != nil {
		return fmt.Errorf("read Cluster %s of the hub: %w", name, err)
	}
	if !isReachable(c) {
		return fmt.Errorf("the Cluster %s is not reachable: its agent must run and be accepted: see kubectl patchbay cluster list", name)
	}
	if err := checkAgentOf(ctx, cluster, name); err != nil {
		return err
	}
	return checkSameHub(ctx, hub, cluster, name)
}

// isReachable reports whether the hub reaches a Cluster.
func isReachable(c *v1alpha1.Cluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReachable)
}

// checkAgentOf checks that a cluster's agent has joined its hub by that name: the name is in the kubeconfig of
// the hub and in the agent's certificate.
func checkAgentOf(ctx context.Context, cluster client.Client, name string) error {
	var found []string
	secret := &corev1.Secret{}
	switch err := cluster.Get(ctx, client.ObjectKey{Namespace: agentNamespace, Name: hubSecretName}, secret); {
	case err == nil:
		kubeconfig, err := clientcmd.Load(secret.Data["kubeconfig"])
		if err != nil {
			return fmt.Errorf("read the kubeconfig in Secret %s/%s: %w", agentNamespace, hubSecretName, err)
		}
		for of := range kubeconfig.Clusters {
			found = append(found, of)
		}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("find out which cluster the context leads to: read Secret %s/%s: %w", agentNamespace, hubSecretName, err)
	}
	secret = &corev1.Secret{}
	switch err := cluster.Get(ctx, client.ObjectKey{Namespace: agentNamespace, Name: certificateSecretName}, secret); {
	case err == nil:
		found = append(found, certifiedName(secret))
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("find out which cluster the context leads to: read Secret %s/%s: %w", agentNamespace, certificateSecretName, err)
	}
	found = slices.DeleteFunc(found, func(of string) bool { return of == "" })
	if len(found) == 0 {
		return fmt.Errorf("flag --in-context: must lead to the cluster %s: that of the context has no agent", name)
	}
	if !slices.Contains(found, name) {
		return fmt.Errorf("flag --in-context: must lead to the cluster %s: the agent of the context's cluster has joined as %s", name, strings.Join(found, ", "))
	}
	return nil
}

// certifiedName returns the name of the Cluster in an agent's certificate; "" if there is none.
func certifiedName(secret *corev1.Secret) string {
	block, _ := pem.Decode(secret.Data[corev1.TLSCertKey])
	if block == nil {
		return ""
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return ""
	}
	name, ok := strings.CutPrefix(certificate.Subject.CommonName, v1alpha1.ClusterUserPrefix)
	if !ok {
		return ""
	}
	return name
}

// agentPodPrefix begins the names of the Pods of an agent's Deployment.
const agentPodPrefix = "patchbay-agent-"

// checkSameHub checks that the agent of a cluster has joined this hub, and not another one by the same name: the
// heartbeat at the hub names the agent's Pod.
func checkSameHub(ctx context.Context, hub, cluster client.Client, name string) error {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + name, Name: v1alpha1.HeartbeatLease}
	if err := hub.Get(ctx, key, lease); err != nil {
		return fmt.Errorf("read the heartbeat of Cluster %s: %w", name, err)
	}
	var pods corev1.PodList
	if err := cluster.List(ctx, &pods, client.InNamespace(agentNamespace)); err != nil {
		return fmt.Errorf("list Pods in namespace %s of the cluster: %w", agentNamespace, err)
	}
	var agents []string
	for i := range pods.Items {
		if strings.HasPrefix(pods.Items[i].Name, agentPodPrefix) {
			agents = append(agents, pods.Items[i].Name)
		}
	}
	if holder := lease.Spec.HolderIdentity; len(agents) > 0 && (holder == nil || !slices.Contains(agents, *holder)) {
		return fmt.Errorf("flag --in-context: must lead to the cluster %s of this hub: the heartbeat at this hub is not from the agent of the context's cluster (%s)", name, strings.Join(agents, ", "))
	}
	return nil
}
