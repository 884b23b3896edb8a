// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/daemon/internal/kubeclient"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Client implements attach.KubeClient.
type Client struct {
	*EventRecorder

	pods     *Getter
	networks Networks
}

// Networks returns the models of networks.
type Networks interface {
	// Get returns a model. The error wraps attach.ErrNotFound or attach.ErrTryAgain, or names the
	// invalid field.
	Get(ctx context.Context, ref network.Ref) (*network.Network, error)
}

var _ attach.KubeClient = (*Client)(nil)

// NewClient starts a watch of this node's Pods and returns a Client.
func NewClient(ctx context.Context, conn *kubeclient.Connection, networks Networks, events *EventRecorder) (*Client, error) {
	informer, err := conn.Cache.GetInformer(ctx, podMetadata(), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch Pods: %w", err)
	}
	return &Client{
		EventRecorder: events, networks: networks,
		pods: &Getter{Cached: conn.Cache, Direct: conn.Direct, Synced: informer.HasSynced},
	}, nil
}

// Pods returns the Client's Getter.
func (c *Client) Pods() *Getter { return c.pods }

// Pod implements attach.KubeClient.
func (c *Client) Pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	return c.pods.Get(ctx, namespace, name, uid)
}

// PodWithSpec implements attach.KubeClient.
func (c *Client) PodWithSpec(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return c.pods.getWithSpec(ctx, pod)
}

// Network implements attach.KubeClient.
func (c *Client) Network(ctx context.Context, ref network.Ref) (*network.Network, error) {
	return c.networks.Get(ctx, ref)
}
