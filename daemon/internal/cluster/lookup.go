// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/network"
)

// Lookup answers what attaching needs to know of the cluster.
type Lookup struct {
	Pods     *Pods
	Networks *NetworkCache
	Events   *Events
}

// NewLookup returns a Lookup over the caches; its Events are written until ctx ends.
func NewLookup(ctx context.Context, conn *Connection, networks *NetworkCache) (*Lookup, error) {
	pods, err := conn.Cache.GetInformer(ctx, partialMetadata(podTypeMeta()), cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watch Pods: %w", err)
	}
	events, err := NewEvents(ctx, conn)
	if err != nil {
		return nil, err
	}
	return &Lookup{
		Pods:     &Pods{Cached: conn.Cache, Fresh: conn.Direct, Synced: pods.HasSynced},
		Networks: networks, Events: events,
	}, nil
}

// Pod implements attach.Cluster.
func (l *Lookup) Pod(ctx context.Context, namespace, name, uid string) (*corev1.Pod, error) {
	return l.Pods.Get(ctx, namespace, name, uid)
}

// Network implements attach.Cluster.
func (l *Lookup) Network(ctx context.Context, ref network.Ref) (*network.Network, error) {
	return l.Networks.Get(ctx, ref)
}

// ReportFailure implements attach.Cluster.
func (l *Lookup) ReportFailure(pod *corev1.Pod, err error) {
	l.Events.ReportFailure(pod, err)
}

// ReportConflict implements attach.Cluster.
func (l *Lookup) ReportConflict(pod *corev1.Pod, net *network.Network, err error) {
	l.Events.ReportConflict(pod, net, err)
}

var _ attach.KubeClient = (*Lookup)(nil)
