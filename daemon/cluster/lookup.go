// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/patchbay-cni/patchbay/daemon/attach"
	"github.com/patchbay-cni/patchbay/network"
)

// Lookup answers what attaching needs to know of the cluster.
type Lookup struct {
	Pods     *Pods
	Networks *Networks
	Events   *Events
}

var _ attach.Cluster = (*Lookup)(nil)

// Pod implements attach.Cluster.
func (l *Lookup) Pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	return l.Pods.Get(ctx, namespace, name, uid)
}

// Network implements attach.Cluster.
func (l *Lookup) Network(ctx context.Context, ref network.Ref) (*network.Network, error) {
	return l.Networks.Get(ctx, ref)
}

// Refuse implements attach.Cluster.
func (l *Lookup) Refuse(pod *corev1.Pod, err error) {
	l.Events.Refuse(pod, err)
}
