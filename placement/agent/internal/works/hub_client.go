// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// reportInterval is the least time between two reports of one Work.
const reportInterval = time.Second

// secretTimeout is how long the hub may take to answer: other Works wait for the worker.
const secretTimeout = 5 * time.Second

// hubClient is the hub's API server, as one cluster's agent sees it.
type hubClient struct {
	client       client.Client
	cache        cache.Cache
	namespace    string
	registration atomic.Pointer[toolscache.ResourceEventHandlerRegistration]

	lastReports sync.Map // report by Work, which one worker has at a time
}

// newHubClient connects to the hub of a cluster.
func newHubClient(config *rest.Config, cluster string) (*hubClient, error) {
	scheme, mapper, err := schemeAndMapper()
	if err != nil {
		return nil, err
	}
	h := &hubClient{namespace: v1alpha1.ClusterNamespacePrefix + cluster}
	if h.client, err = client.New(config, client.Options{Scheme: scheme, Mapper: mapper}); err != nil {
		return nil, fmt.Errorf("make the hub's client: %w", err)
	}
	h.cache, err = cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper, DefaultNamespaces: map[string]cache.Config{h.namespace: {}},
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("make the hub's cache: %w", err)
	}
	return h, nil
}

// hubUID asks the hub who it is.
func (h *hubClient) hubUID(ctx context.Context) (string, error) {
	ns := &corev1.Namespace{}
	if err := h.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("read the hub's UID: %w", err)
	}
	return string(ns.UID), nil
}

// syncedWork returns a Work, nil when there is none, and whether the cache has been filled at
// all: before that a missing Work means nothing.
func (h *hubClient) syncedWork(ctx context.Context, name string) (*v1alpha1.Work, bool) {
	if !h.synced() {
		return nil, false
	}
	work := &v1alpha1.Work{}
	err := h.cache.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, work) // from memory
	if err != nil {
		return nil, apierrors.IsNotFound(err)
	}
	return work, true
}

// cachedWork returns a Work as the cache has it now, also before it has all; nil when there is none.
// It is not to be changed.
func (h *hubClient) cachedWork(ctx context.Context, name string) *v1alpha1.Work {
	work := &v1alpha1.Work{}
	if h.cache.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, work, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	return work
}

// listWorks returns all Works as the cache has them. They are not to be changed.
func (h *hubClient) listWorks(ctx context.Context) ([]v1alpha1.Work, error) {
	var list v1alpha1.WorkList
	if err := h.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // from memory
		return nil, fmt.Errorf("list Works: %w", err)
	}
	return list.Items, nil
}

// fetchSecretData reads the data of a Secret, which are beside its Work; none while the hub has not
// been reached at all.
func (h *hubClient) fetchSecretData(ctx context.Context, name string) (secretData, error) {
	if !h.synced() {
		return secretData{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, secretTimeout)
	defer cancel()
	o := &corev1.Secret{}
	if err := h.client.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, o); err != nil {
		if apierrors.IsNotFound(err) {
			return secretData{}, nil
		}
		return secretData{}, fmt.Errorf("read the data of Work %s: %w", name, err)
	}
	return secretDataFrom(o), nil
}

// reportStatus writes a Work's status, unless it has it already; later says when to come again,
// when it is too early for another report.
func (h *hubClient) reportStatus(ctx context.Context, work *v1alpha1.Work, status v1alpha1.WorkStatus) (later time.Duration, err error) {
	keepTransitionTimes(&status, work.Status)
	shrinkStatus(work, &status)
	if equalAsJSON(work.Status, status) {
		return 0, nil
	}
	if wait := h.reserveReport(work.Name); wait > 0 {
		return wait, nil
	}
	// The agent is the status' only writer: it replaces it, whatever the hub does to the
	// spec meanwhile.
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": work.UID},
		{"op": "add", "path": "/status", "value": status},
	})
	if err != nil {
		return 0, fmt.Errorf("encode status of Work %s: %w", work.Name, err)
	}
	target := &v1alpha1.Work{}
	target.Namespace, target.Name = work.Namespace, work.Name
	err = h.client.Status().Patch(ctx, target, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(v1alpha1.AgentFieldManager))
	if apierrors.IsNotFound(err) {
		return 0, nil // gone meanwhile: its event is on the way
	}
	if err != nil {
		h.lastReports.Delete(work.Name)
		return 0, fmt.Errorf("report on Work %s: %w", work.Name, err)
	}
	return 0, nil
}

// keepTransitionTimes gives conditions the times of those that say the same already, as
// meta.SetStatusCondition does for one.
func keepTransitionTimes(now *v1alpha1.WorkStatus, before v1alpha1.WorkStatus) {
	now.Conditions = mergeConditions(before.Conditions, now.Conditions)
	for i := range now.Manifests {
		var old []metav1.Condition
		if i < len(before.Manifests) && before.Manifests[i].Name == now.Manifests[i].Name {
			old = before.Manifests[i].Conditions
		}
		now.Manifests[i].Conditions = mergeConditions(old, now.Manifests[i].Conditions)
	}
}

// shrinkStatus shortens a Work's status until the Work is no larger than MaxObjectBytes: it truncates the
// statuses of its objects, then leaves out the details of Pods, then the statuses.
func shrinkStatus(work *v1alpha1.Work, status *v1alpha1.WorkStatus) {
	whole := v1alpha1.Work{ObjectMeta: work.ObjectMeta, Spec: work.Spec}
	whole.ManagedFields = nil
	left := v1alpha1.MaxObjectBytes - reservedBytes - jsonSize(whole)
	for _, shrink := range []func(m *v1alpha1.ManifestStatus){
		func(m *v1alpha1.ManifestStatus) {
			value := map[string]any{}
			if m.Status != nil && json.Unmarshal(m.Status.Raw, &value) == nil {
				raw, err := json.Marshal(truncateStatus(value, max(left, 0)/len(status.Manifests)))
				if err == nil {
					m.Status, m.Truncated = &runtime.RawExtension{Raw: raw}, true
				}
			}
		},
		func(m *v1alpha1.ManifestStatus) { m.Associated = nil },
		func(m *v1alpha1.ManifestStatus) { m.Status, m.Truncated = nil, m.Status != nil || m.Truncated },
	} {
		for i := range status.Manifests {
			if jsonSize(status) <= left {
				return
			}
			shrink(&status.Manifests[i])
		}
	}
}

// reserveReport tells how long a report must wait still; at 0 it may be sent now.
func (h *hubClient) reserveReport(name string) time.Duration {
	if last, ok := h.lastReports.Load(name); ok {
		if at, ok := last.(time.Time); ok && time.Since(at) < reportInterval {
			return reportInterval - time.Since(at)
		}
	}
	h.lastReports.Store(name, time.Now())
	return 0
}

// watchWorks calls changed for every Work that comes, changes or goes.
func (h *hubClient) watchWorks(ctx context.Context, changed func(name string)) error {
	informer, err := h.cache.GetInformer(ctx, &v1alpha1.Work{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Works: %w", err)
	}
	registration, err := informer.AddEventHandler(eventHandler(func(o metav1.Object) { changed(o.GetName()) }))
	if err != nil {
		return fmt.Errorf("watch Works: %w", err)
	}
	h.registration.Store(&registration)
	return nil
}

// synced tells whether the cache has been filled, and every Work in it told of.
func (h *hubClient) synced() bool {
	registration := h.registration.Load()
	return registration != nil && (*registration).HasSynced()
}
