// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names in the agent's manifests.
const (
	agentNamespace = "patchbay-system"
	hubSecret      = "patchbay-agent-hub"
	certificate    = "patchbay-agent-certificate"
	hubToken       = "patchbay-agent-token"
)

// install applies the agent's manifests and the way to the hub.
func (j *joining) install(ctx context.Context, c client.Client) error {
	if err := j.mayInstall(ctx, c); err != nil {
		return err
	}
	objects, err := j.objects()
	if err != nil {
		return err
	}
	for _, o := range objects {
		apply := client.ApplyConfigurationFromUnstructured(o)
		if err := c.Apply(ctx, apply, client.FieldOwner(fieldOwner), client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// mayInstall refuses where an agent works for another hub or under another name; with
// force it takes away the credential that the agent has from there.
func (j *joining) mayInstall(ctx context.Context, c client.Client) error {
	if j.force {
		return forget(ctx, c)
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: agentNamespace, Name: hubSecret}, secret); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("get Secret %s/%s: %w", agentNamespace, hubSecret, err)
	}
	was, err := clientcmd.Load(secret.Data["kubeconfig"])
	if err != nil {
		return fmt.Errorf("read the kubeconfig in Secret %s/%s (use --force to write it anew): %w", agentNamespace, hubSecret, err)
	}
	for name, cluster := range was.Clusters {
		if name != j.cluster || !slices.Contains(j.addresses(), cluster.Server) {
			return fmt.Errorf("this cluster is %s of the hub %s, and its agent would leave that: use --force if it is to", name, cluster.Server)
		}
	}
	return nil
}

// forget takes away what the agent proves itself with at its hub.
func forget(ctx context.Context, c client.Client) error {
	for _, name := range []string{certificate, hubToken} {
		old := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: name}}
		if err := c.Delete(ctx, old); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete Secret %s/%s: %w", agentNamespace, name, err)
		}
	}
	return nil
}
