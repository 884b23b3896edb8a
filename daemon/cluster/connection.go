// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/objects"
)

// Connection is how the daemon reaches the API server: a client whose reads are
// always answered by the API server, and caches that may be stale.
type Connection struct {
	// Direct reads with quorum and writes.
	Direct client.Client
	// Cache holds the metadata of networks, of this node's Pods and DanmEps, and of
	// its Node, and all NodeNetworks. It must be started.
	Cache cache.Cache
	// Node is the name of this node.
	Node string

	rest *rest.Config
}

// Connect prepares clients and caches for the daemon of the named node. It does
// not talk to the API server yet.
func Connect(cfg *rest.Config, node string) (*Connection, error) {
	cfg = rest.CopyConfig(cfg)
	// Requests are bounded by workers, and the API server shares itself out
	// with priority and fairness: waiting here besides would only add latency.
	cfg.QPS = -1
	scheme, err := objects.NewScheme()
	if err != nil {
		return nil, err
	}
	mapper := objects.NewMapper()
	direct, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	c, err := cache.New(cfg, cache.Options{
		Scheme: scheme, Mapper: mapper,
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            objects.Slim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:     {Field: fields.OneTermEqualSelector("spec.nodeName", node)},
			&v1.NodeNetwork{}: {Transform: objects.SlimNodeNetwork},
			&corev1.Node{}:    {Field: fields.OneTermEqualSelector("metadata.name", node)},
			&v1.DanmEp{}:      {Field: fields.OneTermEqualSelector("spec.Host", node), Transform: slimEndpoint},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	return &Connection{Direct: direct, Cache: c, Node: node, rest: cfg}, nil
}

// metadata returns an empty metadata-only object of a registered kind.
func metadata(gvk metav1.TypeMeta) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: gvk}
}

// podMeta names the kind Pod.
func podMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
}
