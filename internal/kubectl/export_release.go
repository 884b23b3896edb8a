// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// exporter carries out an export. It deletes no object at the hub before all of its Works have the policy Orphan.
type exporter struct {
	hub     client.Client
	timeout time.Duration
	out     io.Writer
}

// Run exports the objects of a plan.
func (e *exporter) Run(ctx context.Context, plan *exportPlan) error {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for _, o := range plan.pinned {
		if err := e.annotate(ctx, o, v1alpha1.ClustersAnnotation, strings.Join(o.clusters(), ",")); err != nil {
			return err
		}
	}
	for _, o := range plan.objects {
		err := e.annotate(ctx, o, v1alpha1.OnDeleteAnnotation, string(v1alpha1.OnDeleteOrphan))
		if err != nil && !apierrors.IsNotFound(err) { // an earlier call may have exported it
			return err
		}
	}
	if err := e.waitForAll(ctx, plan.pinned, e.notPinned, "nothing was deleted; repeat the command"); err != nil {
		return err
	}
	if err := e.waitForAll(ctx, plan.objects, e.notReady, "nothing was deleted; repeat the command"); err != nil {
		return err
	}
	if err := e.waitForAll(ctx, plan.objects, e.delete, "it was not deleted; repeat the command"); err != nil {
		return err
	}
	return e.waitForAll(ctx, plan.objects, e.notReleased, "it is deleted at the hub, and the clusters keep it; the hub continues")
}

// atHub returns an object of the hub.
func (o *exportedObject) atHub() *metav1.PartialObjectMetadata {
	ref := o.assignment.Spec.Object
	at := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
	at.SetGroupVersionKind(schema.GroupVersionKind{Group: ref.Group, Version: ref.Version, Kind: ref.Kind})
	return at
}

// annotate sets an annotation of the object, unless it was created again. A pinned object keeps its own clusters.
func (e *exporter) annotate(ctx context.Context, o *exportedObject, key, value string) error {
	at := o.atHub()
	if err := e.hub.Get(ctx, client.ObjectKeyFromObject(at), at); err != nil {
		return fmt.Errorf("read %s: %w", o.name(), err)
	}
	present, ok := at.Annotations[key]
	if ok && (key == v1alpha1.ClustersAnnotation || present == value && at.UID == o.assignment.Spec.Object.UID) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.assignment.Spec.Object.UID, "annotations": map[string]string{key: value}}})
	if err != nil {
		return err
	}
	if err := e.hub.Patch(ctx, at, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("annotate %s with %s=%s: %w", o.name(), key, value, err)
	}
	return nil
}

// waitForAll waits until nothing is missing of any object. After the end of ctx it names what is missing.
func (e *exporter) waitForAll(ctx context.Context, objects []*exportedObject, missing func(context.Context, *exportedObject) (string, error), consequence string) error {
	for _, o := range objects {
		last := "the hub has not answered"
		err := wait.PollUntilContextCancel(ctx, adoptionPollInterval, true, func(ctx context.Context) (bool, error) {
			now, err := missing(ctx, o)
			if err == nil {
				last = now
			}
			return now == "", err
		})
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%s: not within %s: %s (%s)", o.name(), e.timeout, last, consequence)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// notPinned returns what is missing before objects that need this one may leave the hub; "" once its annotation places it.
func (e *exporter) notPinned(ctx context.Context, o *exportedObject) (string, error) {
	a, err := e.readAssignment(ctx, o)
	if err != nil {
		return "", err
	}
	if a.Spec.Decision.Source != v1alpha1.SourceAnnotation {
		return "the hub has not placed it by its annotation yet", nil
	}
	return "", nil
}

func (e *exporter) readAssignment(ctx context.Context, o *exportedObject) (*v1alpha1.Assignment, error) {
	a := &v1alpha1.Assignment{}
	if err := e.hub.Get(ctx, client.ObjectKeyFromObject(o.assignment), a); err != nil {
		return nil, fmt.Errorf("read Assignment %s/%s: %w", o.assignment.Namespace, o.assignment.Name, err)
	}
	return a, nil
}

// notReady returns what is missing before the object may be deleted at the hub; "" for nothing: it has the annotation,
// and its Assignment and all of its Works have the policy Orphan. An object that an earlier call has exported may have gone.
func (e *exporter) notReady(ctx context.Context, o *exportedObject) (string, error) {
	_, missing, err := e.readReady(ctx, o)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	return missing, err
}

// readReady reads the object, and what is missing before it may be deleted at the hub as it was read.
func (e *exporter) readReady(ctx context.Context, o *exportedObject) (at *metav1.PartialObjectMetadata, missing string, err error) {
	at = o.atHub()
	if err := e.hub.Get(ctx, client.ObjectKeyFromObject(at), at); err != nil {
		return nil, "", fmt.Errorf("read %s: %w", o.name(), err)
	}
	if at.UID != o.assignment.Spec.Object.UID {
		return nil, "", fmt.Errorf("%s was deleted and created again meanwhile: repeat the command", o.name())
	}
	if value := at.Annotations[v1alpha1.OnDeleteAnnotation]; value != string(v1alpha1.OnDeleteOrphan) {
		return nil, "", fmt.Errorf("%s: metadata.annotations[%s] must be %s, but another client has set it to %q: stop that client, and repeat the command",
			o.name(), v1alpha1.OnDeleteAnnotation, v1alpha1.OnDeleteOrphan, value)
	}
	a, err := e.readAssignment(ctx, o)
	if err != nil {
		return nil, "", err
	}
	if a.Spec.Decision.OnDelete != v1alpha1.OnDeleteOrphan {
		return at, "the hub has not read the annotation " + v1alpha1.OnDeleteAnnotation + " yet: check that patchbay-hub runs in this version", nil
	}
	for _, t := range a.Spec.Targets {
		w := &v1alpha1.Work{}
		err := e.hub.Get(ctx, client.ObjectKey{Namespace: v1alpha1.ClusterNamespacePrefix + string(t.Cluster), Name: a.Name}, w)
		if apierrors.IsForbidden(err) {
			continue // the Assignment decides; the Work has it, too, in case the Assignment is lost
		}
		if client.IgnoreNotFound(err) != nil {
			return nil, "", fmt.Errorf("read the Work in %s: %w", t.Cluster, err)
		}
		if err == nil && (w.Spec.OnDelete != v1alpha1.OnDeleteOrphan || w.Spec.Removal != nil && w.Spec.Removal.Policy != v1alpha1.OnDeleteOrphan) {
			return at, fmt.Sprintf("the Work in %s does not say yet that the cluster keeps it", t.Cluster), nil
		}
	}
	return at, "", nil
}

// delete deletes the object at the hub, as it was read when nothing was missing: another client may have changed the
// annotation since the first read. Objects that it owns at the hub stay: they are placed for themselves. It returns why
// the object is not deleted yet; "" when it is.
func (e *exporter) delete(ctx context.Context, o *exportedObject) (string, error) {
	read, missing, err := e.readReady(ctx, o)
	if missing != "" || apierrors.IsNotFound(err) {
		return missing, nil
	}
	if err != nil {
		return "", err
	}
	at := &unstructured.Unstructured{} // the client deletes a PartialObjectMetadata only if its scheme has the kind
	at.SetGroupVersionKind(o.atHub().GroupVersionKind())
	at.SetNamespace(read.Namespace)
	at.SetName(read.Name)
	err = e.hub.Delete(ctx, at, client.Preconditions{UID: &read.UID, ResourceVersion: &read.ResourceVersion}, client.PropagationPolicy(metav1.DeletePropagationOrphan))
	if apierrors.IsConflict(err) {
		return "other clients change it at the hub", nil
	}
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("delete %s at the hub: %w", o.name(), err)
	}
	return "", nil
}

// notReleased returns which clusters have not let go of the object; "" when the hub has forgotten it.
func (e *exporter) notReleased(ctx context.Context, o *exportedObject) (string, error) {
	at := o.atHub()
	err := e.hub.Get(ctx, client.ObjectKeyFromObject(at), at)
	if apierrors.IsNotFound(err) || err == nil && at.UID != o.assignment.Spec.Object.UID {
		_, err := fmt.Fprintf(e.out, "%s is exported: it continues in %s\n", o.name(), strings.Join(o.clusters(), ", "))
		return "", err
	}
	if err != nil {
		return "", fmt.Errorf("read %s: %w", o.name(), err)
	}
	a := &v1alpha1.Assignment{}
	if err := e.hub.Get(ctx, client.ObjectKeyFromObject(o.assignment), a); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read Assignment %s/%s: %w", o.assignment.Namespace, o.assignment.Name, err)
	}
	var left []string
	for _, t := range a.Spec.Targets {
		left = append(left, string(t.Cluster))
	}
	return "it is not let go in " + strings.Join(left, ", "), nil
}
