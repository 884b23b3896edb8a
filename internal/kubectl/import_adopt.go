// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/handover"
)

// adopter carries out an import. Each step can be repeated, and a later call continues where one has stopped. No
// step removes anything.
type adopter struct {
	hub, cluster client.Client
	name         string // of the Cluster
	timeout      time.Duration
	out          io.Writer
}

// Run imports the objects of a plan.
func (a *adopter) Run(ctx context.Context, plan *importPlan) error {
	for _, ns := range plan.open {
		if err := a.label(ctx, ns.DeepCopy(), v1alpha1.AccessCreate); err != nil {
			return fmt.Errorf("label Namespace %s of %s: %w", ns.Name, a.name, err)
		}
	}
	for _, ns := range plan.missing {
		if err := a.createNamespace(ctx, ns); err != nil {
			return err
		}
	}
	var errs []error
	for _, o := range plan.objects {
		if o.done {
			continue
		}
		if err := a.begin(ctx, o); err != nil {
			return fmt.Errorf("import %s (the objects before it are imported; repeat the command to continue): %w", o.name(), err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	for _, o := range plan.objects {
		if o.done {
			continue
		}
		if err := a.finish(ctx, o); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(append([]error{errors.New("not all objects are adopted yet; nothing was removed. Correct what is named, and repeat the command")}, errs...)...)
	}
	return nil
}

// label sets the label with which a cluster's admin gives access; nil removes it.
func (a *adopter) label(ctx context.Context, o client.Object, access any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "labels": map[string]any{v1alpha1.AccessLabel: access},
	}})
	if err != nil {
		return err
	}
	return a.cluster.Patch(ctx, o, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner))
}

// createNamespace creates a namespace at the hub, with the Pod Security levels of the cluster's.
func (a *adopter) createNamespace(ctx context.Context, there *corev1.Namespace) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: there.Name, Labels: map[string]string{}}}
	for key, value := range there.Labels {
		if strings.HasPrefix(key, "pod-security.kubernetes.io/") {
			ns.Labels[key] = value
		}
	}
	if err := a.hub.Create(ctx, ns, client.FieldOwner(fieldOwner)); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("create Namespace %s at the hub: %w", ns.Name, err)
	}
	return nil
}

// begin allows the adoption in the cluster, and creates the object at the hub. The order matters: an object that
// the agent may not adopt would report Refused.
func (a *adopter) begin(ctx context.Context, o *importedObject) error {
	if handover.SourceUID(o.live) != "" {
		return nil // it is adopted, and the rest is left
	}
	if err := a.label(ctx, o.live.DeepCopy(), v1alpha1.AccessAdopt); err != nil {
		return fmt.Errorf("label it in %s: %w", a.name, err)
	}
	if err := a.requestAdoption(ctx, o); err != nil {
		return errors.Join(err, a.takeLabelBack(ctx, o))
	}
	return nil
}

// requestAdoption creates the object at the hub, or annotates the one that is there.
func (a *adopter) requestAdoption(ctx context.Context, o *importedObject) error {
	if o.forHub == nil {
		if err := a.annotateAdoption(ctx, o, string(v1alpha1.ConflictAdopt)); err != nil {
			return fmt.Errorf("annotate it at the hub: %w", err)
		}
		return nil
	}
	atHub := o.forHub.DeepCopy()
	if err := a.hub.Create(ctx, atHub, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("create it at the hub: %w", err)
	}
	o.hubUID = atHub.GetUID()
	return nil
}

// takeLabelBack gives the object in the cluster the label that it had before begin. Otherwise the agent might adopt it
// later, for another object at the hub by that name.
func (a *adopter) takeLabelBack(ctx context.Context, o *importedObject) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), labelTimeout)
	defer cancel()
	var before any
	if access, ok := o.live.GetLabels()[v1alpha1.AccessLabel]; ok {
		before = access
	}
	if err := a.label(ctx, o.live.DeepCopy(), before); err != nil {
		return fmt.Errorf("its label %s in %s must be removed, because the agent may adopt it for another object: %w", v1alpha1.AccessLabel, a.name, err)
	}
	return nil
}

// labelTimeout bounds the removal of a label after the user has interrupted the command.
const labelTimeout = 10 * time.Second

// annotateAdoption sets the annotation of the object at the hub that requests its adoption; nil removes it.
func (a *adopter) annotateAdoption(ctx context.Context, o *importedObject, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.hubUID, "annotations": map[string]any{v1alpha1.ConflictAnnotation: value}}})
	if err != nil {
		return err
	}
	atHub := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.live.GetNamespace(), Name: o.live.GetName()}}
	atHub.SetGroupVersionKind(o.live.GroupVersionKind())
	return a.hub.Patch(ctx, atHub, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner))
}

// finish waits until the agent has adopted the object, checks that it is the same one, and makes the agent the only
// owner of its fields.
func (a *adopter) finish(ctx context.Context, o *importedObject) error {
	row, err := a.waitUntilAdopted(ctx, o)
	if err != nil {
		return err
	}
	if err := a.settleOwnership(ctx, o); err != nil {
		return fmt.Errorf("%s is adopted; finish it by a repetition of the command: %w", o.name(), err)
	}
	if err := a.annotateAdoption(ctx, o, nil); err != nil {
		return fmt.Errorf("%s is adopted; remove its annotation %s by a repetition of the command: %w", o.name(), v1alpha1.ConflictAnnotation, err)
	}
	return a.report(ctx, o, row)
}

// report prints that the object is imported, and what has changed in the cluster against the plan: by a
// Customization, or by another client.
func (a *adopter) report(ctx context.Context, o *importedObject, row v1alpha1.ClusterReport) error {
	live, err := a.readLive(ctx, o)
	if err != nil {
		return err
	}
	note := ""
	if !row.Ready {
		note = fmt.Sprintf("; it is not ready in %s, as before", a.name)
	}
	if _, err := fmt.Fprintf(a.out, "%s is imported%s\n", o.name(), note); err != nil {
		return err
	}
	for _, c := range handover.UserChanges(o.live, live) {
		if slices.Contains(o.changes, c) {
			continue
		}
		if _, err := fmt.Fprintf(a.out, "    it has changed since the plan: %s\n", c); err != nil {
			return err
		}
	}
	return nil
}

// waitUntilAdopted waits until the hub reports that the cluster has applied the object, and that it is ready if it
// was ready before: its controller may have to observe a new generation.
func (a *adopter) waitUntilAdopted(ctx context.Context, o *importedObject) (v1alpha1.ClusterReport, error) {
	var row v1alpha1.ClusterReport
	was, err := status.Compute(o.live)
	wasReady := err == nil && was.Status == status.CurrentStatus
	last := "the hub has not placed it: check that patchbay-hub runs"
	err = wait.PollUntilContextCancel(ctx, adoptionPollInterval, true, func(ctx context.Context) (bool, error) {
		live, err := a.readLive(ctx, o)
		if err != nil {
			return false, err
		}
		if row, last, err = a.reportOf(ctx, o, last); err != nil {
			return false, err
		}
		source := handover.SourceUID(live)
		if source != "" && source != string(o.hubUID) {
			return false, fmt.Errorf("%s was adopted in %s for another object of the hub: its UID must be %s, and is %s", o.name(), a.name, o.hubUID, source)
		}
		return row.Applied && (row.Ready || !wasReady) && source != "", nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%s is not adopted, or not ready, within %s: %s", o.name(), a.timeout, last)
	}
	return row, err
}

// adoptionPollInterval is the time between two reads of an object that is to be adopted.
const adoptionPollInterval = 300 * time.Millisecond

// readLive reads the object in the cluster. Another object by that name is an error.
func (a *adopter) readLive(ctx context.Context, o *importedObject) (*unstructured.Unstructured, error) {
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(o.live.GroupVersionKind())
	if err := a.cluster.Get(ctx, client.ObjectKeyFromObject(o.live), live); err != nil {
		return nil, fmt.Errorf("read %s in %s: %w", o.name(), a.name, err)
	}
	if live.GetUID() != o.live.GetUID() {
		return nil, fmt.Errorf("%s in %s was deleted and created again meanwhile: it had UID %s and has %s", o.name(), a.name, o.live.GetUID(), live.GetUID())
	}
	return live, nil
}

// reportOf reads what the hub reports of the object in the cluster, and what the adoption waits for.
func (a *adopter) reportOf(ctx context.Context, o *importedObject, last string) (v1alpha1.ClusterReport, string, error) {
	gvk := o.live.GroupVersionKind()
	assignment := &v1alpha1.Assignment{}
	key := client.ObjectKey{Namespace: o.live.GetNamespace(), Name: v1alpha1.WorkName(gvk.Group, gvk.Kind, o.live.GetNamespace(), o.live.GetName())}
	if err := a.hub.Get(ctx, key, assignment); err != nil {
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return v1alpha1.ClusterReport{}, last, err
	}
	if c := meta.FindStatusCondition(assignment.Status.Conditions, v1alpha1.ConditionPlaced); c != nil && c.Status != metav1.ConditionTrue {
		last = c.Reason + ": " + c.Message
	}
	for _, row := range assignment.Status.Clusters {
		if string(row.Cluster) == a.name {
			if row.Message != "" {
				last = row.Message
			}
			return row, last, nil
		}
	}
	return v1alpha1.ClusterReport{}, last, nil
}

// settleOwnership makes the agent the only owner of the fields that it applies, and takes back the permission to
// adopt the object.
func (a *adopter) settleOwnership(ctx context.Context, o *importedObject) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		live, err := a.readLive(ctx, o)
		if err != nil {
			return err
		}
		fields, changed, err := handover.OwnFields(live)
		if err != nil {
			return err
		}
		_, labelled := live.GetLabels()[v1alpha1.AccessLabel]
		if !changed && !labelled {
			return nil
		}
		meta := map[string]any{"uid": live.GetUID(), "resourceVersion": live.GetResourceVersion(), "labels": map[string]any{v1alpha1.AccessLabel: nil}}
		if changed {
			meta["managedFields"] = fields
		}
		patch, err := json.Marshal(map[string]any{"metadata": meta})
		if err != nil {
			return err
		}
		if err := a.cluster.Patch(ctx, live, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldOwner)); err != nil {
			return fmt.Errorf("let the agent own the fields that it applies, in %s: %w", a.name, err)
		}
		return nil
	})
}
