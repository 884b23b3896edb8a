// SPDX-License-Identifier: Apache-2.0

package works

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/informers"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
)

// reportInterval is the minimum time between two reports on one Work.
const reportInterval = time.Second

// secretTimeout bounds a read of a Secret at the hub: other Works wait for the worker.
const secretTimeout = 5 * time.Second

// hubClient reads the Works of one cluster from the hub's API server, and reports on them.
type hubClient struct {
	client       client.Client
	cache        cache.Cache
	cluster      string
	namespace    string
	registration atomic.Pointer[toolscache.ResourceEventHandlerRegistration]

	lastReports sync.Map // sentReport by Work; one worker has a Work at a time
	unreported  *unreportedChanges
}

// sentReport is the last report of this process on a Work.
type sentReport struct {
	at time.Time
	// resourceVersion of the Work after it.
	resourceVersion string
	// uncertain is true until the hub has answered: it may have stored the report, or store it later.
	uncertain bool
}

// newHubClient makes a client for the Works of a cluster.
func newHubClient(config *rest.Config, cluster string) (*hubClient, error) {
	scheme, mapper, err := schemeAndMapper()
	if err != nil {
		return nil, err
	}
	h := &hubClient{cluster: cluster, namespace: v1alpha1.ClusterNamespacePrefix + cluster, unreported: newUnreportedChanges(time.Now)}
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

// hubUID returns the UID of the hub: that of its namespace kube-system.
func (h *hubClient) hubUID(ctx context.Context) (string, error) {
	ns := &corev1.Namespace{}
	if err := h.client.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, ns); err != nil {
		return "", fmt.Errorf("read the hub's UID: %w", err)
	}
	return string(ns.UID), nil
}

// syncedWork returns a Work, nil when there is none, and whether the cache is synced: before that the hub
// may have a Work that the cache lacks.
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

// cachedWork returns a Work from the cache, also before it is synced; nil when it has none. The caller
// must not change the Work.
func (h *hubClient) cachedWork(ctx context.Context, name string) *v1alpha1.Work {
	work := &v1alpha1.Work{}
	if h.cache.Get(ctx, client.ObjectKey{Namespace: h.namespace, Name: name}, work, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	return work
}

// listWorks returns all Works of the cache. The caller must not change them.
func (h *hubClient) listWorks(ctx context.Context) ([]v1alpha1.Work, error) {
	var list v1alpha1.WorkList
	if err := h.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil { // from memory
		return nil, fmt.Errorf("list Works: %w", err)
	}
	return list.Items, nil
}

// fetchSecretData reads the data of a placed Secret from the Secret beside its Work; none before the cache
// is synced.
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

// reportStatus writes a Work's status, unless the Work has it already. later is when to report again if it
// is too early for another report.
func (h *hubClient) reportStatus(ctx context.Context, work *v1alpha1.Work, status v1alpha1.WorkStatus) (later time.Duration, err error) {
	defer func() { h.unreported.report(work.Name, later == 0 && err == nil) }()
	keepTransitionTimes(&status, work.Status)
	shrinkStatus(work, &status)
	if equalAsJSON(work.Status, status) && !h.isBehind(work) {
		return 0, nil
	}
	if wait := h.reserveReport(work.Name); wait > 0 {
		return wait, nil
	}
	// The agent is the only writer of the status, so it replaces it even if the hub has changed the spec
	// meanwhile.
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
		return 0, nil // deleted meanwhile: its event follows
	}
	if err != nil {
		h.lastReports.Store(work.Name, sentReport{uncertain: true})
		return 0, fmt.Errorf("report on Work %s: %w", work.Name, err)
	}
	h.lastReports.Store(work.Name, sentReport{at: time.Now(), resourceVersion: target.ResourceVersion})
	return 0, nil
}

// isBehind tells whether a cached Work may be older than the last report on it: the hub may have another status.
func (h *hubClient) isBehind(work *v1alpha1.Work) bool {
	value, _ := h.lastReports.Load(work.Name)
	last, _ := value.(sentReport)
	sent, errSent := strconv.ParseUint(last.resourceVersion, 10, 64)
	cached, errCached := strconv.ParseUint(work.ResourceVersion, 10, 64)
	return last.uncertain || errSent == nil && errCached == nil && cached < sent
}

// reportNotApplied reports why the agent does not carry out a Work, and keeps the rest of its status.
func (h *hubClient) reportNotApplied(ctx context.Context, work *v1alpha1.Work, applied metav1.Condition, halted *v1alpha1.HaltedWork) (time.Duration, error) {
	status := *work.Status.DeepCopy()
	status.Halted = halted
	meta.SetStatusCondition(&status.Conditions, applied)
	return h.reportStatus(ctx, work, status)
}

// reportWaiting reports that a Work waits until another Work, which is halted, is resumed. what tells what
// waits.
func (h *hubClient) reportWaiting(ctx context.Context, work *v1alpha1.Work, what, halted string) (time.Duration, error) {
	later, err := h.reportNotApplied(ctx, work, newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonHubMismatch, fmt.Sprintf(
		"%s: Work %s does not match this cluster's record: the hub was restored, or is another one. Run at the hub: kubectl patchbay hub resume --for-cluster %s",
		what, halted, h.cluster)), &v1alpha1.HaltedWork{})
	return cmp.Or(later, blockedCheckInterval), err
}

// reportRejected reports why the agent does not record a Work. It returns an error that no user can solve.
func (h *hubClient) reportRejected(ctx context.Context, work *v1alpha1.Work, err error) (time.Duration, error) {
	applied, ok := rejectedCondition(err)
	if !ok {
		return 0, err
	}
	return h.reportNotApplied(ctx, work, applied, nil)
}

// rejectedCondition returns the condition Applied of a Work that the agent does not record; false if the
// error is not about the Work.
func rejectedCondition(err error) (metav1.Condition, bool) {
	e, ok := errors.AsType[*records.TooLargeError](err)
	if !ok {
		return metav1.Condition{}, false
	}
	return newCondition(v1alpha1.ConditionApplied, false, v1alpha1.ReasonTooLarge, e.Error()), true
}

// keepTransitionTimes keeps the lastTransitionTime of conditions with an unchanged status, as
// meta.SetStatusCondition does for one condition.
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

// shrinkStatus shrinks a Work's status until the Work has at most MaxObjectBytes: it truncates the statuses
// of the objects, then removes the associated Pods, then the statuses.
func shrinkStatus(work *v1alpha1.Work, status *v1alpha1.WorkStatus) {
	whole := v1alpha1.Work{ObjectMeta: work.ObjectMeta, Spec: work.Spec}
	whole.ManagedFields = nil
	left := v1alpha1.MaxObjectBytes - records.ReservedBytes - jsonSize(whole)
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

// reserveReport returns how long a report must wait; 0 when the caller may send it now.
func (h *hubClient) reserveReport(name string) time.Duration {
	if last, ok := h.lastReports.Load(name); ok {
		if last, ok := last.(sentReport); ok && time.Since(last.at) < reportInterval {
			return reportInterval - time.Since(last.at)
		}
	}
	h.lastReports.Store(name, sentReport{at: time.Now(), uncertain: true})
	return 0
}

// watchWorks calls changed for each Work that is added, changed or deleted.
func (h *hubClient) watchWorks(ctx context.Context, changed func(name string)) error {
	informer, err := h.cache.GetInformer(ctx, &v1alpha1.Work{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Works: %w", err)
	}
	registration, err := informer.AddEventHandler(informers.Handler(func(o metav1.Object) { changed(o.GetName()) }))
	if err != nil {
		return fmt.Errorf("watch Works: %w", err)
	}
	h.registration.Store(&registration)
	return nil
}

// synced tells whether the cache has all Works, and watchWorks has called changed for each of them.
func (h *hubClient) synced() bool {
	registration := h.registration.Load()
	return registration != nil && (*registration).HasSynced()
}
