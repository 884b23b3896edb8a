// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

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
