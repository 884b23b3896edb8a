// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/invite"
)

// debugObject is an object whose Pods a verb needs.
type debugObject struct {
	ref v1alpha1.ObjectReference
	// clusters have the object. Those that the hub reaches come first, each by name.
	clusters []string
	hub      *rest.Config
}

// findDebugObject reads at the hub which clusters have an object: KIND/NAME, or the NAME of a Pod. With a cluster it is
// only this one, and then a Pod may be one that the hub does not know.
func findDebugObject(f *factory, cmd *cobra.Command, object, cluster string) (*debugObject, error) {
	if object != "" && !strings.Contains(object, "/") {
		object = "pod/" + object
	}
	if cluster != "" {
		if err := invite.ValidateClusterName(cluster); err != nil {
			return nil, fmt.Errorf("flag --%s: %w", inFlag, err)
		}
	}
	o, err := f.hubObject(cmd, []string{object})
	if err != nil {
		return nil, err
	}
	gvk := o.mapping.GroupVersionKind
	if o.mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return nil, fmt.Errorf("%s: %s must be an object of a namespace, which has Pods", cmd.CommandPath(), object)
	}
	d := &debugObject{ref: v1alpha1.ObjectReference{
		Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Resource: o.mapping.Resource.Resource, Namespace: o.namespace, Name: o.name,
	}}
	if d.hub, err = f.restConfig(); err != nil {
		return nil, err
	}
	if cluster != "" && gvk.GroupKind() == corev1.SchemeGroupVersion.WithKind("Pod").GroupKind() {
		d.clusters = []string{cluster}
		return d, nil
	}
	return d, d.readClusters(cmd.Context(), o, cluster)
}

// readClusters reads the clusters of the object's Assignment.
func (d *debugObject) readClusters(ctx context.Context, o hubObject, cluster string) error {
	a := &v1alpha1.Assignment{}
	a.Namespace, a.Name = o.namespace, v1alpha1.WorkName(d.ref.Group, d.ref.Kind, o.namespace, o.name)
	key := a.Namespace + "/" + a.Name
	switch err := o.client.Get(ctx, client.ObjectKeyFromObject(a), a); {
	case apierrors.IsNotFound(err):
		r := &removal{}
		if err := r.readObject(ctx, o.client, o.mapping, o.namespace, o.name); err != nil {
			if d.ref.Kind == "Pod" {
				return fmt.Errorf("%w: for a Pod of a placed object give that, such as deployment/web, or give --%s CLUSTER", err, inFlag)
			}
			return err
		}
		return fmt.Errorf("%s has no Assignment (%s): the hub does not place it: see kubectl patchbay explain", placedName(&d.ref), key)
	case meta.IsNoMatchError(err):
		return fmt.Errorf("read Assignment %s: this API server must be a hub: %w", key, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("read Assignment %s: %w: Kubernetes' role view in the namespace of the hub allows it", key, err)
	case err != nil:
		return fmt.Errorf("read Assignment %s: %w", key, err)
	}
	d.ref.Version, d.ref.Resource = a.Spec.Object.Version, a.Spec.Object.Resource
	for _, t := range a.Spec.Targets {
		if t.State != v1alpha1.TargetPending {
			d.clusters = append(d.clusters, string(t.Cluster))
		}
	}
	switch {
	case len(d.clusters) == 0:
		return fmt.Errorf("%s: no cluster has it: see kubectl patchbay explain", placedName(&d.ref))
	case cluster != "" && !slices.Contains(d.clusters, cluster):
		return fmt.Errorf("flag --%s: must be a Cluster that has %s (%s): got %s", inFlag, placedName(&d.ref), strings.Join(d.clusters, ", "), cluster)
	case cluster != "":
		d.clusters = []string{cluster}
		return nil
	}
	reachable, err := reachableClusters(ctx, o.client)
	if err != nil && !apierrors.IsForbidden(err) { // a tenant may have no permission for Clusters
		return err
	}
	slices.SortFunc(d.clusters, func(a, b string) int {
		if reachable[a] != reachable[b] {
			return map[bool]int{true: -1, false: 1}[reachable[a]]
		}
		return cmp.Compare(a, b)
	})
	return nil
}

// foundPod is a Pod of a cluster.
type foundPod struct {
	*proxiedCluster

	pod corev1.Pod
	of  int // Pods of the object in this cluster
}

// choosePod returns a Pod of the object: a ready one of the first cluster that has one and can be reached, else any.
func (d *debugObject) choosePod(ctx context.Context, errOut io.Writer) (*foundPod, error) {
	var best *foundPod
	var errs []error
	for _, cluster := range d.clusters {
		r, err := newProxiedCluster(d.hub, d.ref.Namespace, cluster)
		if err != nil {
			return nil, err
		}
		var pods []corev1.Pod
		s, err := r.selection(ctx, &d.ref)
		if err == nil {
			pods, err = r.pods(ctx, s)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(pods) > 0 && (best == nil || isReady(&pods[0])) {
			best = &foundPod{r, pods[0], len(pods)}
		}
		if best != nil && isReady(&best.pod) {
			break
		}
	}
	switch {
	case best != nil:
		for _, err := range errs {
			fmt.Fprintf(errOut, "Warning: skipped a cluster: %v\n", err)
		}
		fmt.Fprintf(errOut, "Pod %s in Cluster %s (1 of %d there)\n", best.pod.Name, best.cluster, best.of)
		return best, nil
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	}
	return nil, fmt.Errorf("%s has no Pod in Cluster %s", placedName(&d.ref), strings.Join(d.clusters, ", "))
}
