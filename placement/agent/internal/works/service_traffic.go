// SPDX-License-Identifier: Apache-2.0

package works

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/endpoints"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/objectwatcher"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/podindex"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/records"
)

// serviceTraffic carries out spec.traffic of the Works of Services.
type serviceTraffic struct {
	slices  discoveryclient.EndpointSlicesGetter
	pods    *podindex.Index
	records *records.Store
	watcher *objectwatcher.Watcher
}

// trafficResult is what carrying out spec.traffic did.
type trafficResult struct {
	// status to report; nil when the Work has no traffic.
	status *v1alpha1.WorkTrafficStatus
	// later is when to do it again without an event; 0 is never.
	later time.Duration
	err   error
}

// sync writes the EndpointSlices with endpoints of other clusters, and returns the report on those of this one. Only a
// report with the revision acknowledges: after an error, it keeps the earlier one. What is ready in this cluster is
// reported all the same, so that other clusters send nothing to Pods that are gone.
func (t *serviceTraffic) sync(ctx context.Context, work *v1alpha1.Work, rec *v1alpha1.AppliedWork, results []manifestResult) trafficResult {
	spec := &rec.Spec.Work
	if !isService(spec.Source) || spec.Traffic == nil && (work == nil || work.Status.Traffic == nil) {
		return trafficResult{}
	}
	service := endpoints.Service{Namespace: spec.Source.Namespace, Name: spec.Source.Name}
	if len(results) > 0 && results[0].isRecorded() && results[0].live.GetDeletionTimestamp() == nil {
		service.UID = results[0].live.GetUID()
	}
	result, err := t.write(ctx, spec, service)
	if err == nil {
		return result
	}
	before := &v1alpha1.WorkTrafficStatus{}
	if work != nil && work.Status.Traffic != nil {
		before = work.Status.Traffic.DeepCopy()
	}
	if result.status == nil { // the endpoints are unknown
		result.status = before
	}
	result.status.Revision, result.status.Message, result.err = before.Revision, before.Message, err
	if endpoints.NeedsUser(err) {
		result.status.Message = truncateText(err.Error(), maxTrafficMessage)
		result.err, result.later = nil, soonest(result.later, blockedCheckInterval)
	}
	return result
}

// maxTrafficMessage is the largest size of a message about EndpointSlices.
const maxTrafficMessage = 1 << 10

func isService(source v1alpha1.ObjectReference) bool {
	return source.Group == "" && source.Kind == "Service"
}

func (t *serviceTraffic) write(ctx context.Context, spec *v1alpha1.WorkSpec, service endpoints.Service) (trafficResult, error) {
	if spec.Traffic != nil {
		t.watcher.EnsureWatch(ctx, endpoints.Resource(), service.Namespace)
	}
	local, own, err := endpoints.List(ctx, t.slices, service)
	if err != nil {
		return trafficResult{}, err
	}
	var desired []discoveryv1.EndpointSlice
	if spec.Traffic != nil && service.UID != "" {
		desired = endpoints.Desired(service, spec.Traffic.Endpoints, spec.Traffic.Subnets)
	}
	writeErr := endpoints.Write(ctx, t.slices, service, desired, own)
	if spec.Traffic == nil {
		return trafficResult{}, writeErr
	}
	result := trafficResult{status: &v1alpha1.WorkTrafficStatus{Revision: spec.Revision}}
	result.status.Endpoints, result.status.Truncated = endpoints.Report(local, spec.Traffic.Subnets, func(pod *corev1.ObjectReference) string {
		name, seen := t.workOf(spec, pod)
		switch {
		case !seen:
			result.later = unseenPodInterval
		case name == "" && result.later == 0: // its owner may be seen later
			result.later = blockedCheckInterval
		}
		return name
	})
	return result, writeErr
}

// unseenPodInterval is how soon the agent reports a Pod that its index lacks.
const unseenPodInterval = time.Second

// workOf returns the name of the Work of the object that runs a Pod; "" for none. Seen is false if the index lacks the
// Pod.
func (t *serviceTraffic) workOf(spec *v1alpha1.WorkSpec, pod *corev1.ObjectReference) (name string, seen bool) {
	found, exists, err := t.pods.Pods.GetByKey(spec.Source.Namespace + "/" + pod.Name)
	object, ok := found.(metav1.Object)
	if err != nil || !exists || !ok || object.GetUID() != pod.UID {
		return "", false
	}
	for _, uid := range t.pods.OwnerChain(object) {
		if name, ok := t.records.WorkForObject("", uid); ok {
			rec := t.records.Get(name)
			if rec != nil && rec.Spec.Work.HubUID == spec.HubUID && rec.Spec.Work.Source.Namespace == spec.Source.Namespace {
				return name, true
			}
		}
	}
	return "", true
}

// clear deletes the EndpointSlices of a Service that the agent releases, which are never updated. Those of a Service that
// it deletes are deleted with it.
func (t *serviceTraffic) clear(ctx context.Context, rec *v1alpha1.AppliedWork) error {
	source := rec.Spec.Work.Source
	order := rec.Spec.Work.Removal
	if rec.Spec.Work.Traffic == nil || !isService(source) || order == nil || order.Policy != v1alpha1.OnDeleteOrphan {
		return nil
	}
	service := endpoints.Service{Namespace: source.Namespace, Name: source.Name}
	_, own, err := endpoints.List(ctx, t.slices, service)
	if err != nil {
		if apierrors.IsForbidden(err) { // the namespace, or the right, is gone
			return nil
		}
		return err
	}
	return endpoints.Write(ctx, t.slices, service, nil, own)
}
