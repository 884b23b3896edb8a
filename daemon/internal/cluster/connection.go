// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/kube"
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
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	mapper := kube.NewMapper()
	direct, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	c, err := cache.New(cfg, cache.Options{
		Scheme: scheme, Mapper: mapper,
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            kube.StripUnusedFields,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:     {Field: fields.OneTermEqualSelector("spec.nodeName", node)},
			&v1.NodeNetwork{}: {Transform: kube.StripNodeNetwork},
			&corev1.Node{}:    {Field: fields.OneTermEqualSelector("metadata.name", node)},
			&v1.DanmEp{}:      {Field: fields.OneTermEqualSelector("spec.Host", node), Transform: slimDanmEp},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	return &Connection{Direct: direct, Cache: c, Node: node, rest: cfg}, nil
}

// slimDanmEp keeps what tells a DanmEp from others.
func slimDanmEp(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetLabels(nil)
		o.SetAnnotations(nil)
		o.SetFinalizers(nil)
	}
	return kube.StripUnusedFields(obj)
}

// partialMetadata returns an empty metadata-only object of a registered kind.
func partialMetadata(gvk metav1.TypeMeta) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: gvk}
}

// podTypeMeta names the kind Pod.
func podTypeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
}

// nodeTypeMeta names the kind Node.
func nodeTypeMeta() metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node"}
}

// requestTimeout bounds one request while a sandbox waits for it: kubelet gives
// the whole sandbox two minutes.
const requestTimeout = 10 * time.Second

// NodeUID returns the UID of this node's Node object: a machine that was
// deleted and joined again under its old name is another Node.
func (c *Connection) NodeUID(ctx context.Context) (string, error) {
	node := partialMetadata(nodeTypeMeta())
	if err := c.Direct.Get(ctx, client.ObjectKey{Name: c.Node}, node); err != nil {
		return "", fmt.Errorf("get Node %s: %w", c.Node, attachError(err))
	}
	return string(node.UID), nil
}

// forbiddenGracePeriod is how long the API server has to refuse the daemon before that
// counts: one that starts refuses everybody for a moment.
const forbiddenGracePeriod = 3 * time.Second

// DaemonSetDeleted reports whether a DaemonSet is gone or being deleted. A daemon
// that the API server does not let ask any more is being removed, too: deleting
// all of an installation takes its rights away in no particular order.
func (c *Connection) DaemonSetDeleted(ctx context.Context, namespace, name string) (bool, error) {
	ds := partialMetadata(metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"})
	for refused := time.Now(); ; {
		err := c.Direct.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, ds)
		switch {
		case err == nil:
			return ds.DeletionTimestamp != nil, nil
		case apierrors.IsNotFound(err):
			return true, nil
		case !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err):
			return false, fmt.Errorf("get DaemonSet %s/%s: %w", namespace, name, err)
		case time.Since(refused) > forbiddenGracePeriod:
			return true, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("get DaemonSet %s/%s: %w", namespace, name, ctx.Err())
		case <-time.After(forbiddenGracePeriod / 10):
		}
	}
}

// attachError gives an API server's error the meaning that attach's ports know:
// ErrNotFound, or ErrTryAgain when the request was not refused for good.
func attachError(err error) error {
	switch {
	case err == nil, errors.Is(err, attach.ErrNotFound), errors.Is(err, attach.ErrTryAgain):
		return err
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %w", attach.ErrNotFound, err)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return err
	}
	return fmt.Errorf("%w: %w", attach.ErrTryAgain, err)
}

// watchError says what could not be watched. At the daemon's end that is anything whose
// informer has stopped already; then it is the error of ctx.
func watchError(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("watch %s: %w", what, err)
}
