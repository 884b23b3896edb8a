// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/api/operator/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/attachments"
	"github.com/patchbay-cni/patchbay/operator/internal/apply"
	"github.com/patchbay-cni/patchbay/operator/internal/render"
)

// Uninstaller does one step of an uninstallation after the other. It remembers nothing.
type Uninstaller struct {
	// Client reads from the API server, not from a cache.
	Client client.Client
	// Now is the clock.
	Now func() time.Time
}

// Protect adds the finalizer to an Installation before its first object is applied.
func (u *Uninstaller) Protect(ctx context.Context, i *v1alpha1.Installation) error {
	before := i.DeepCopy()
	if !controllerutil.AddFinalizer(i, v1alpha1.UninstallFinalizer) {
		return nil
	}
	if err := u.patch(ctx, i, before); err != nil {
		return fmt.Errorf("add the finalizer to Installation %s: %w", i.Name, err)
	}
	return nil
}

// Next does the next step and returns it.
func (u *Uninstaller) Next(ctx context.Context, i *v1alpha1.Installation) (Step, error) {
	r := newReader(u.Client, i, u.Now())
	step, err := next(r.facts, func(needed ...fact) error { return r.read(ctx, needed...) })
	if err != nil {
		return Step{}, err
	}
	return step, u.do(ctx, i, &step)
}

// do does a step.
func (u *Uninstaller) do(ctx context.Context, i *v1alpha1.Installation, step *Step) error {
	switch step.Action {
	case RequestCleanUp:
		return u.requestCleanUp(ctx, i)
	case Delete:
		return u.deleteAll(ctx, step)
	case RemoveFinalizers:
		return u.removeFinalizers(ctx, step)
	case Wait, Finish:
	}
	return nil
}

// Finish does the last step of an Installation whose status has it, and removes its finalizer: it is gone then.
func (u *Uninstaller) Finish(ctx context.Context, i *v1alpha1.Installation, step *Step) error {
	if err := u.deleteAll(ctx, step); err != nil {
		return err
	}
	before := i.DeepCopy()
	controllerutil.RemoveFinalizer(i, v1alpha1.UninstallFinalizer)
	if err := u.patch(ctx, i, before); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove the finalizer of Installation %s: %w", i.Name, err)
	}
	return nil
}

// patch writes the metadata of an object that has changed. It fails if another client has written it meanwhile.
func (u *Uninstaller) patch(ctx context.Context, o, before client.Object) error {
	return u.Client.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(render.Manager))
}

// requestCleanUp annotates the DaemonSet with the UID of the Installation.
func (u *Uninstaller) requestCleanUp(ctx context.Context, i *v1alpha1.Installation) error {
	return u.annotate(ctx, string(i.UID))
}

// WithdrawCleanUp removes the request of an uninstallation that a user has given up: a later deletion of the DaemonSet,
// by any client, would count as one.
func (u *Uninstaller) WithdrawCleanUp(ctx context.Context) error { return u.annotate(ctx, nil) }

// annotate sets CleanUpAnnotation of the DaemonSet, or removes it.
func (u *Uninstaller) annotate(ctx context.Context, value any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.CleanUpAnnotation: value}}})
	if err != nil {
		return err
	}
	ds := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}}
	ds.Namespace, ds.Name = render.Namespace, daemonName
	err = u.Client.Patch(ctx, ds, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(render.Manager))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotate DaemonSet %s: %w", daemonName, err)
	}
	return nil
}

// deleteAll deletes the objects of a step, each only if it is still the one that was read.
func (u *Uninstaller) deleteAll(ctx context.Context, step *Step) error {
	propagation := metav1.DeletePropagationBackground
	if step.Foreground {
		propagation = metav1.DeletePropagationForeground
	}
	for k := range step.Objects {
		o := &step.Objects[k]
		err := apply.Delete(ctx, u.Client, o, client.Preconditions{UID: &o.UID}, client.PropagationPolicy(propagation))
		if apierrors.IsConflict(err) { // another object of this name: the next pass has it
			continue
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete %s: %w", describe(o), err)
		}
	}
	return nil
}

// removeFinalizers removes Patchbay's finalizers, and deletes orphans. An orphan is deleted first: without its finalizer,
// it would not be found again after an interruption.
func (u *Uninstaller) removeFinalizers(ctx context.Context, step *Step) error {
	for k := range step.Objects {
		if err := u.removeFinalizer(ctx, &step.Objects[k], v1.InUseFinalizer); err != nil {
			return err
		}
	}
	for k := range step.DanmEps {
		if err := u.releaseDanmEp(ctx, &step.DanmEps[k], false); err != nil {
			return err
		}
	}
	for k := range step.Orphans {
		if err := u.releaseDanmEp(ctx, &step.Orphans[k], true); err != nil {
			return err
		}
	}
	return nil
}

// releaseDanmEp removes the finalizer of the DanmEp that was read, after its deletion if it is an orphan.
func (u *Uninstaller) releaseDanmEp(ctx context.Context, a *attachments.Attachment, isOrphan bool) error {
	ep := &metav1.PartialObjectMetadata{}
	ep.SetGroupVersionKind(v1.SchemeGroupVersion().WithKind("DanmEp"))
	ep.Namespace, ep.Name = a.DanmEp.Namespace, a.DanmEp.Name
	if isOrphan {
		err := apply.Delete(ctx, u.Client, ep, client.Preconditions{UID: &a.UID})
		if apierrors.IsConflict(err) { // another object of this name: the next pass has it
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete DanmEp %s: %w", a.DanmEp, err)
		}
	}
	err := u.Client.Get(ctx, a.DanmEp, ep)
	if apierrors.IsNotFound(err) || err == nil && ep.UID != a.UID { // the next pass sees whether it is gone
		return nil
	}
	if err != nil {
		return fmt.Errorf("read DanmEp %s: %w", a.DanmEp, err)
	}
	return u.removeFinalizer(ctx, ep, v1.NodeFinalizer)
}

// removeFinalizer removes one finalizer. An object that has changed meanwhile is for the next pass.
func (u *Uninstaller) removeFinalizer(ctx context.Context, o *metav1.PartialObjectMetadata, finalizer string) error {
	before := o.DeepCopy()
	if !controllerutil.RemoveFinalizer(o, finalizer) {
		return nil
	}
	if err := u.patch(ctx, o, before); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("remove the finalizer %s of %s: %w", finalizer, describe(o), err)
	}
	return nil
}
