// SPDX-License-Identifier: Apache-2.0

package nodelabels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// Config configures the labels. All fields are optional.
type Config struct {
	// Interval is the time between two comparisons of all Nodes; 30 s when zero.
	Interval time.Duration
	// Settle is how long a comparison waits after a Node or its NICs changed, so that many changes at once need
	// one comparison; 500 ms when zero.
	Settle time.Duration
	// RemovalDelay is how long a NIC is not reported before its label is removed; 1 min when zero.
	RemovalDelay time.Duration
	// MaxRetryDelay bounds the time until a Node is written again whose write failed. The first delay is
	// Interval, and each is twice the one before; 30 min when zero.
	MaxRetryDelay time.Duration
	// WritesPerSecond bounds the Nodes that are written; 20 when zero.
	WritesPerSecond rate.Limit
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.Interval, 30 * time.Second}, {&c.Settle, 500 * time.Millisecond}, {&c.RemovalDelay, time.Minute}, {&c.MaxRetryDelay, 30 * time.Minute}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.WritesPerSecond == 0 {
		c.WritesPerSecond = 20
	}
	return c
}

// labeller compares the labels of all Nodes with their NodeNetworks, and writes those that differ. The leader
// runs one.
type labeller struct {
	cfg Config
	// cached reads NodeNetworks, and Nodes as metadata.
	cached client.Reader
	// direct reads NodeNetworks from the API server, and writes Nodes.
	direct client.Client
	limit  *rate.Limiter
	// changed has one element when a Node or its NICs changed since the last comparison.
	changed chan struct{}
	// stale are the labels that are to be removed, with the time since when.
	stale map[staleLabel]time.Time
	// retries are the Nodes whose last write failed.
	retries map[types.UID]retry
}

// retry is when a Node is written again, and how long it waits for that.
type retry struct {
	at    time.Time
	delay time.Duration
}

var _ manager.Runnable = (*labeller)(nil)

// Add makes a manager keep the labels while it leads. Its cache must keep the NICs' names of NodeNetworks
// and the labels of Nodes that name NICs.
func Add(ctx context.Context, m manager.Manager, cfg Config) error {
	cfg = cfg.withDefaults()
	l := &labeller{cfg: cfg, cached: m.GetCache(), direct: m.GetClient(), limit: rate.NewLimiter(cfg.WritesPerSecond, 1), changed: make(chan struct{}, 1)}
	for _, watched := range []struct {
		object  client.Object
		differs func(before, after any) bool
	}{{nodeMetadata(), labelsDiffer}, {&v1.NodeNetwork{}, nicsDiffer}} {
		informer, err := m.GetCache().GetInformer(ctx, watched.object)
		if err != nil {
			return fmt.Errorf("watch %T: %w", watched.object, err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { l.compareSoon() }, DeleteFunc: func(any) { l.compareSoon() },
			UpdateFunc: func(before, after any) {
				if watched.differs(before, after) {
					l.compareSoon()
				}
			},
		}); err != nil {
			return fmt.Errorf("watch %T: %w", watched.object, err)
		}
	}
	return m.Add(l)
}

// nodeMetadata returns empty metadata of a Node.
func nodeMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
}

// labelsDiffer reports whether labels of NICs differ between two versions of a Node. Kubelets write their
// Nodes all the time.
func labelsDiffer(before, after any) bool {
	old, isOld := before.(*metav1.PartialObjectMetadata)
	now, isNow := after.(*metav1.PartialObjectMetadata)
	return isOld && isNow && !maps.Equal(nicLabels(old), nicLabels(now))
}

func nicLabels(node *metav1.PartialObjectMetadata) map[string]string {
	labels := map[string]string{}
	for label, value := range node.Labels {
		if strings.HasPrefix(label, v1.NICLabelPrefix) {
			labels[label] = value
		}
	}
	return labels
}

// nicsDiffer reports whether the NICs differ between two versions of a NodeNetwork.
func nicsDiffer(before, after any) bool {
	old, isOld := before.(*v1.NodeNetwork)
	now, isNow := after.(*v1.NodeNetwork)
	return isOld && isNow && !slices.Equal(nicsOf(old), nicsOf(now))
}

func (l *labeller) compareSoon() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// Start implements manager.Runnable.
func (l *labeller) Start(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	for {
		if err := l.compare(ctx, time.Now()); err != nil && ctx.Err() == nil {
			log.Error(err, "Failed to label Nodes")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(l.cfg.Interval):
		case <-l.changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(l.cfg.Settle):
		}
	}
}

// compare writes the Nodes whose labels differ from their NICs.
func (l *labeller) compare(ctx context.Context, now time.Time) error {
	reports := &v1.NodeNetworkList{}
	if err := l.cached.List(ctx, reports, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list cached NodeNetworks: %w", err)
	}
	nodes := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
	if err := l.cached.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list cached Nodes: %w", err)
	}
	nics := make(map[string][]string, len(reports.Items))
	for i := range reports.Items {
		nics[reports.Items[i].Name] = nicsOf(&reports.Items[i])
	}
	var changes []change
	changes, l.stale = plan(nodes.Items, nics, l.stale, now, l.cfg.RemovalDelay)
	return l.apply(ctx, changes, now)
}

// apply writes the changes. A Node that cannot be written does not keep the others from their labels, and waits
// for a time that doubles: the API server may refuse each write, for example because the controller may not
// patch Nodes.
func (l *labeller) apply(ctx context.Context, changes []change, now time.Time) error {
	retries, failed, first := map[types.UID]retry{}, 0, error(nil)
	for _, c := range changes {
		last, again := l.retries[c.uid]
		if again && now.Before(last.at) {
			retries[c.uid] = last
			continue
		}
		if err := l.limit.Wait(ctx); err != nil {
			return err
		}
		err := l.write(ctx, c)
		if err == nil {
			continue
		}
		delay := min(max(2*last.delay, l.cfg.Interval), l.cfg.MaxRetryDelay)
		retries[c.uid] = retry{at: now.Add(delay), delay: delay}
		failed++
		if first == nil {
			first = fmt.Errorf("label Node %s, and again in %s: %w", c.name, delay, err)
		}
	}
	l.retries = retries
	if failed > 1 {
		return fmt.Errorf("%w (and %d more Nodes)", first, failed-1)
	}
	return first
}

// write writes the labels of a Node. A Node of another UID is a new one: the next comparison labels it.
func (l *labeller) write(ctx context.Context, c change) error {
	if err := l.keepReported(ctx, c); err != nil || len(c.labels) == 0 {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": c.uid, "labels": c.labels}})
	if err != nil {
		return fmt.Errorf("encode labels: %w", err)
	}
	node := nodeMetadata()
	node.Name = c.name
	err = l.direct.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsNotFound(err) || isOfAnotherUID(err):
		return nil
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: check that deployments/controller/rbac.yaml and deployments/admission/nodelabels.yaml are installed", err)
	}
	return err
}

// keepReported removes from a change the removal of labels whose NICs the node reports at the API server. The
// cache may be behind it, and kubelet may end Pods that require a label which their Node lacks.
func (l *labeller) keepReported(ctx context.Context, c change) error {
	if !c.removes() {
		return nil
	}
	nn := &v1.NodeNetwork{}
	if err := l.direct.Get(ctx, client.ObjectKey{Name: c.name}, nn); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("get NodeNetwork: %w", err)
	}
	for _, nic := range nicsOf(nn) {
		if value, ok := c.labels[v1.NICLabelPrefix+nic]; ok && value == nil {
			delete(c.labels, v1.NICLabelPrefix+nic)
		}
	}
	return nil
}

// isOfAnotherUID reports whether the API server refused a write because it names another UID than the object has.
func isOfAnotherUID(err error) bool {
	rejected, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && rejected.ErrStatus.Details != nil && slices.ContainsFunc(rejected.ErrStatus.Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "metadata.uid"
	})
}
