// SPDX-License-Identifier: Apache-2.0

package kubeclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/daemon/internal/attach"
	"github.com/patchbay-cni/patchbay/internal/app"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// Connection is the daemon's access to the API server.
type Connection struct {
	// Direct sends each read (with quorum) and each write to the API server.
	Direct client.Client
	// Cache holds all NodeNetworks, and the metadata of all networks, of this node's Pods
	// and DanmEps, and of its Node. Its content may be stale. The caller starts it.
	Cache cache.Cache
	// Kinds checks whether the API server serves the kinds that the daemon needs.
	Kinds *app.KindChecker
	// Node is the name of this node.
	Node string

	config *rest.Config
}

// Connect returns a connection for the daemon of the named node. It sends no request.
func Connect(cfg *rest.Config, node string) (*Connection, error) {
	cfg = rest.CopyConfig(cfg)
	// The number of workers bounds the requests, and the API server applies priority and
	// fairness. A client-side limit would only add latency.
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
	kinds, err := app.NewKindChecker(cfg, v1.SchemeGroupVersion(), "deployments/crds",
		"ClusterNetwork", "DanmEp", "DanmNet", "NodeNetwork", "TenantConfig", "TenantNetwork")
	if err != nil {
		return nil, err
	}
	c, err := cache.New(cfg, cache.Options{
		Scheme: scheme, Mapper: mapper, DefaultWatchErrorHandler: kinds.HandleWatchError,
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            kube.StripUnusedFields,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:     {Field: fields.OneTermEqualSelector("spec.nodeName", node)},
			&v1.NodeNetwork{}: {Transform: kube.StripNodeNetwork},
			&corev1.Node{}:    {Field: fields.OneTermEqualSelector("metadata.name", node)},
			&v1.DanmEp{}:      {Field: fields.OneTermEqualSelector("spec.Host", node), Transform: stripDanmEp},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	return &Connection{Direct: direct, Cache: c, Kinds: kinds, Node: node, config: cfg}, nil
}

// stripDanmEp removes the metadata of a DanmEp that the daemon does not read.
func stripDanmEp(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetLabels(nil)
		o.SetAnnotations(nil)
		var kept []string
		if slices.Contains(o.GetFinalizers(), v1.NodeFinalizer) {
			kept = []string{v1.NodeFinalizer}
		}
		o.SetFinalizers(kept)
	}
	return kube.StripUnusedFields(obj)
}

// EventSink returns a sink that writes Events to the API server.
func (c *Connection) EventSink() (record.EventSink, error) {
	typed, err := typedcorev1.NewForConfig(c.config)
	if err != nil {
		return nil, fmt.Errorf("make client for Events: %w", err)
	}
	return &typedcorev1.EventSinkImpl{Interface: typed.Events("")}, nil
}

// RequestTimeout bounds one request that a sandbox waits for. Kubelet gives up on a
// sandbox after two minutes.
const RequestTimeout = 10 * time.Second

// NodeMetadata returns the metadata of an empty Node.
func NodeMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node"}}
}

// NodeUID reads the UID of this node's Node object. A machine that was deleted and joined
// again under its old name has another UID. The error wraps attach.ErrNotFound or
// attach.ErrTryAgain.
func (c *Connection) NodeUID(ctx context.Context) (string, error) {
	node := NodeMetadata()
	if err := c.Direct.Get(ctx, client.ObjectKey{Name: c.Node}, node); err != nil {
		return "", fmt.Errorf("get Node %s: %w", c.Node, AttachError(err))
	}
	return string(node.UID), nil
}

// AttachError maps an error of the API server to the errors of package attach: it wraps
// attach.ErrNotFound for a missing object, and attach.ErrTryAgain for an error that a retry
// may resolve.
func AttachError(err error) error {
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

// NotFoundError returns the error of a direct read of an object of danm.io that the API server has answered
// with 404. It wraps attach.ErrNotFound if the object or its kind does not exist. It wraps
// attach.ErrTryAgain if the answer does not name the object, and the API server does not confirm that it
// lacks the kind: an answer of a proxy must not look like a missing network.
func (c *Connection) NotFoundError(ctx context.Context, kind string, err error) error {
	if !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return attach.ErrNotFound
	}
	missing, confirmErr := c.Kinds.ConfirmMissing(ctx, kind)
	if missing {
		return fmt.Errorf("%w: the API server does not serve the kind %s: apply the CustomResourceDefinitions in deployments/crds", attach.ErrNotFound, kind)
	}
	return fmt.Errorf("%w: %w", attach.ErrTryAgain, errors.Join(err, confirmErr))
}

// WatchError names the objects that could not be watched. When ctx has ended, it wraps the
// error of ctx instead of err: an informer that stopped first is no failure.
func WatchError(ctx context.Context, objects string, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return fmt.Errorf("watch %s: %w", objects, err)
}
