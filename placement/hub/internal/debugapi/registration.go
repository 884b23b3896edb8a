// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// serviceName is the name of the Service in SystemNamespace by which the API server finds this API.
const serviceName = "patchbay-hub"

// ServerName is the name in the serving certificate, which the API server expects.
const ServerName = serviceName + "." + v1alpha1.SystemNamespace + ".svc"

// registration registers the API at the hub's API server.
type registration struct {
	direct client.Client
	// host is the DNS name or the IPv4 address by which the API server reaches the hub; "" when a person has made the
	// Service.
	host string
	port int
}

// publish makes or updates the Service and the APIService.
func (r *registration) publish(ctx context.Context, caBundle []byte) error {
	for _, desired := range r.objects(caBundle) {
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(desired.GroupVersionKind())
		err := r.direct.Get(ctx, client.ObjectKeyFromObject(desired), stored)
		if err == nil && isApplied(stored, desired) {
			continue
		}
		if client.IgnoreNotFound(err) == nil {
			err = r.direct.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(v1alpha1.HubFieldManager), client.ForceOwnership)
		}
		if err != nil {
			return fmt.Errorf("register the debug API by %s %s: %w", desired.GetKind(), desired.GetName(), err)
		}
	}
	return nil
}

// isApplied tells whether a stored object has the desired spec.
func isApplied(stored, desired *unstructured.Unstructured) bool {
	has, _, _ := unstructured.NestedMap(stored.Object, "spec")
	want, _, _ := unstructured.NestedMap(desired.Object, "spec")
	for key, value := range want {
		if key != "ports" && !equality.Semantic.DeepEqual(has[key], value) {
			return false
		}
	}
	return true
}

// objects returns the Service, if the hub makes it, and the APIService.
func (r *registration) objects(caBundle []byte) []*unstructured.Unstructured {
	labels := map[string]any{v1alpha1.ManagedLabel: "true"}
	api := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": v1alpha1.DebugVersion + "." + v1alpha1.DebugGroup, "labels": labels},
		"spec": map[string]any{
			"group": v1alpha1.DebugGroup, "version": v1alpha1.DebugVersion,
			"groupPriorityMinimum": int64(100), "versionPriority": int64(10),
			"service":  map[string]any{"namespace": v1alpha1.SystemNamespace, "name": serviceName, "port": int64(r.port)},
			"caBundle": base64.StdEncoding.EncodeToString(caBundle),
		},
	}}
	if r.host == "" {
		return []*unstructured.Unstructured{api}
	}
	return []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"namespace": v1alpha1.SystemNamespace, "name": serviceName, "labels": labels},
		"spec":     map[string]any{"type": "ExternalName", "externalName": r.host},
	}}, api}
}

// Unregister is a runnable of the leader of a hub without a debug API. It removes the registration that an earlier start
// has made: while the API server cannot reach a registered API, it deletes no namespaces.
type Unregister struct {
	// Direct is a client without a cache.
	Direct client.Client
}

// Start implements manager.Runnable.
func (u Unregister) Start(ctx context.Context) error {
	_ = wait.PollUntilContextCancel(ctx, unregisterRetry, true, func(ctx context.Context) (bool, error) {
		err := u.remove(ctx)
		if err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to remove the registration of the debug API; retrying")
		}
		return err == nil, nil
	})
	return nil
}

// unregisterRetry is the time between two attempts.
const unregisterRetry = 10 * time.Second

func (u Unregister) remove(ctx context.Context) error {
	registered := (&registration{host: "unused"}).objects(nil)
	for _, o := range slices.Backward(registered) {
		stored := &unstructured.Unstructured{}
		stored.SetGroupVersionKind(o.GroupVersionKind())
		err := u.Direct.Get(ctx, client.ObjectKeyFromObject(o), stored)
		if err == nil && stored.GetLabels()[v1alpha1.ManagedLabel] == "true" {
			uid := stored.GetUID()
			err = u.Direct.Delete(ctx, stored, client.Preconditions{UID: &uid})
		}
		if err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) { // an API server without aggregation
			return fmt.Errorf("remove the registration of the debug API: %w", err)
		}
	}
	return nil
}
