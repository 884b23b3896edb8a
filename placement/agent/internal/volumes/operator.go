// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

const (
	// PollInterval is how often an order that is not carried out is to be applied again.
	PollInterval = time.Second
	// unusedFor is how long nothing must have used a fenced volume: a kubelet or a controller may still act on what
	// it read before the fence.
	unusedFor = 3 * PollInterval
	// maxMessageBytes is what the schema of a report allows.
	maxMessageBytes = 512
)

// Claim is a claim that the hub has placed.
type Claim struct {
	// Namespace and Name of the claim.
	Namespace, Name string
	// UID of the claim that the agent made or adopted; empty when there is none.
	UID types.UID
	// Hub and Source are the UIDs of the hub and of the claim at the hub.
	Hub, Source types.UID
}

// Operator carries out orders about volumes.
type Operator struct {
	// Core and Storage are the clients of the cluster.
	Core    corev1client.CoreV1Interface
	Storage storagev1client.StorageV1Interface
	// Namespace is the agent's own, where no user can create claims.
	Namespace string
	// Now is the clock.
	Now func() time.Time

	unusedSince sync.Map // by UID of the PersistentVolume: since when nothing has used it under the fence
}

// Apply carries out an order, after the claim was applied, and reports on the volume.
func (o *Operator) Apply(ctx context.Context, order *v1alpha1.VolumeOrder, claim Claim) *v1alpha1.VolumeReport {
	report, err := o.apply(ctx, order, claim)
	switch {
	case apierrors.IsForbidden(err) && order.Action == v1alpha1.VolumeKeep: // nothing waits
		report.Unmovable = asMessage(err)
	case err != nil:
		report.Action, report.Waiting = "", asMessage(err)
	}
	report.Unmovable, report.Waiting = truncate(report.Unmovable), truncate(report.Waiting)
	return &report
}

func (o *Operator) apply(ctx context.Context, order *v1alpha1.VolumeOrder, claim Claim) (v1alpha1.VolumeReport, error) {
	pvc, pv, err := o.read(ctx, order, claim)
	if err != nil {
		return v1alpha1.VolumeReport{Unmovable: asMessage(err)}, err
	}
	switch order.Action {
	case v1alpha1.VolumeKeep, v1alpha1.VolumeRetain:
		return o.keep(ctx, order, claim, pvc, pv)
	case v1alpha1.VolumeBind:
		return bound(order, pvc, pv), nil
	case v1alpha1.VolumeFence, v1alpha1.VolumeDiscard:
		return o.release(ctx, order, claim, pv)
	}
	return v1alpha1.VolumeReport{Waiting: fmt.Sprintf("this version of the agent does not know the action %s", order.Action)}, nil
}

// read returns the claim and its PersistentVolume; nil where there is none.
func (o *Operator) read(
	ctx context.Context, order *v1alpha1.VolumeOrder, claim Claim,
) (pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume, err error) {
	name := ""
	if claim.UID != "" {
		pvc, err = o.Core.PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			pvc = nil
		case err != nil:
			return nil, nil, fmt.Errorf("read PersistentVolumeClaim %s/%s: %w", claim.Namespace, claim.Name, err)
		case pvc.UID != claim.UID:
			return nil, nil, fmt.Errorf("PersistentVolumeClaim %s/%s: metadata.uid must be %s, and is %s: another client has created it again",
				claim.Namespace, claim.Name, claim.UID, pvc.UID)
		default:
			name = pvc.Spec.VolumeName
		}
	}
	if name == "" && order.Source != nil {
		if name, err = o.findVolume(ctx, order.Source, claim); err != nil {
			return nil, nil, err
		}
	}
	if name == "" {
		return pvc, nil, nil
	}
	pv, err = o.Core.PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return pvc, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read PersistentVolume %s: %w", name, err)
	}
	return pvc, pv, nil
}

// findVolume returns the PersistentVolume that the agent has made or fenced for a claim that has none; "" for none.
func (o *Operator) findVolume(ctx context.Context, source *v1alpha1.VolumeSource, claim Claim) (string, error) {
	list, err := o.Core.PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list PersistentVolumes: %w", err)
	}
	for i := range list.Items {
		pv := &list.Items[i]
		fenced := fencedClaim(pv)
		made := isMadeFor(pv, claim)
		if isVolume(pv, source) && (made || fenced != nil && fenced.Namespace == claim.Namespace && fenced.Name == claim.Name) {
			return pv.Name, nil
		}
	}
	return "", nil
}

// keep takes back the fence, sets the reclaim policy if that is ordered, and reports the volume.
func (o *Operator) keep(
	ctx context.Context, order *v1alpha1.VolumeOrder, claim Claim, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume,
) (v1alpha1.VolumeReport, error) {
	switch {
	case pvc == nil:
		return v1alpha1.VolumeReport{Unmovable: fmt.Sprintf("PersistentVolumeClaim %s/%s does not exist in the cluster", claim.Namespace, claim.Name)}, nil
	case pv == nil:
		return v1alpha1.VolumeReport{Unmovable: fmt.Sprintf("PersistentVolumeClaim %s/%s has no volume yet", claim.Namespace, claim.Name)}, nil
	}
	next := pv.DeepCopy()
	if before := fencedClaim(pv); before != nil && before.UID == claim.UID {
		next.Spec.ClaimRef = before
		delete(next.Annotations, v1alpha1.FencedClaimAnnotation)
	}
	if next.Spec.ClaimRef == nil || next.Spec.ClaimRef.UID != pvc.UID {
		return v1alpha1.VolumeReport{Unmovable: fmt.Sprintf("PersistentVolume %s is not bound to PersistentVolumeClaim %s/%s", pv.Name, claim.Namespace, claim.Name)}, nil
	}
	unmovable, err := o.unmovable(ctx, pv)
	if err != nil {
		return v1alpha1.VolumeReport{}, err
	}
	report := v1alpha1.VolumeReport{Unmovable: unmovable}
	if unmovable == "" {
		report.Source = sourceOf(pv)
	}
	if order.Action == v1alpha1.VolumeRetain {
		if unmovable != "" || !isVolume(pv, order.Source) {
			report.Waiting = cmp.Or(unmovable, otherVolume(pv))
			return report, nil
		}
		next.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}
	if err := o.update(ctx, pv, next); err != nil {
		return report, err
	}
	if report.Action = order.Action; pvc.Status.Phase != corev1.ClaimBound {
		report.Action, report.Waiting = "", fmt.Sprintf("PersistentVolumeClaim %s/%s is not bound to its volume", claim.Namespace, claim.Name)
	}
	return report, nil
}

// bound reports whether the claim is bound to the volume of the order.
func bound(order *v1alpha1.VolumeOrder, pvc *corev1.PersistentVolumeClaim, pv *corev1.PersistentVolume) v1alpha1.VolumeReport {
	switch {
	case pvc == nil || pv == nil:
		return v1alpha1.VolumeReport{Waiting: "PersistentVolume and PersistentVolumeClaim do not exist yet"}
	case !isVolume(pv, order.Source):
		return v1alpha1.VolumeReport{Waiting: fmt.Sprintf("PersistentVolumeClaim %s/%s is bound to PersistentVolume %s, which is another volume", pvc.Namespace, pvc.Name, pv.Name)}
	case pvc.Status.Phase != corev1.ClaimBound || pv.Spec.ClaimRef == nil || pv.Spec.ClaimRef.UID != pvc.UID:
		return v1alpha1.VolumeReport{Waiting: fmt.Sprintf("PersistentVolumeClaim %s/%s is not bound yet", pvc.Namespace, pvc.Name)}
	}
	return v1alpha1.VolumeReport{Action: v1alpha1.VolumeBind, Source: sourceOf(pv)}
}

// release fences a volume and reports when nothing uses it. With Discard it deletes the PersistentVolume then.
func (o *Operator) release(
	ctx context.Context, order *v1alpha1.VolumeOrder, claim Claim, pv *corev1.PersistentVolume,
) (v1alpha1.VolumeReport, error) {
	discards := order.Action == v1alpha1.VolumeDiscard
	switch {
	case pv == nil && discards:
		return v1alpha1.VolumeReport{Action: order.Action}, nil
	case pv == nil:
		return v1alpha1.VolumeReport{Waiting: "the PersistentVolume does not exist: another client has deleted it, and nothing tells whether its volume is detached"}, nil
	case !isVolume(pv, order.Source):
		return v1alpha1.VolumeReport{Waiting: otherVolume(pv)}, nil
	}
	report := v1alpha1.VolumeReport{Source: sourceOf(pv)}
	if refusal, err := o.driverRefusal(ctx, report.Source); err != nil || refusal != "" {
		report.Waiting = refusal
		return report, err
	}
	next, err := fence(pv, claim, o.Namespace)
	if err != nil {
		return report, err
	}
	using, err := o.firstUser(ctx, pv, claim)
	switch {
	case err != nil:
		return report, err
	case using != "": // a running Pod could not start again behind the fence
		o.unusedSince.Delete(pv.UID)
		report.Waiting = using + " uses the volume"
		return report, nil
	case next != nil:
		o.unusedSince.Delete(pv.UID)
		report.Waiting = "the fence is new"
		return report, o.update(ctx, pv, next)
	}
	now := o.Now()
	value, _ := o.unusedSince.LoadOrStore(pv.UID, now)
	if since, ok := value.(time.Time); !ok || now.Sub(since) < unusedFor {
		report.Waiting = "nothing has used the volume for a moment"
		return report, nil
	}
	if !discards {
		report.Action = order.Action
		return report, nil
	}
	report.Waiting = "the PersistentVolume is being deleted"
	return report, o.deleteVolume(ctx, pv)
}

// fence returns a PersistentVolume as it is with the fence; nil if it has it. The claim of the volume becomes one
// that no user can create, in the agent's namespace: kubelets and controllers reject the former one.
func fence(pv *corev1.PersistentVolume, claim Claim, namespace string) (*corev1.PersistentVolume, error) {
	retains := pv.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain
	ref := fenceRef(pv, namespace)
	isFenced := pv.Spec.ClaimRef != nil && pv.Spec.ClaimRef.Namespace == ref.Namespace && pv.Spec.ClaimRef.Name == ref.Name && pv.Spec.ClaimRef.UID == ""
	if retains && isFenced {
		return nil, nil
	}
	next, before := pv.DeepCopy(), pv.Spec.ClaimRef
	next.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	if isFenced {
		next.Spec.ClaimRef = ref
		return next, nil
	}
	unused := isMadeFor(pv, claim) && before != nil && before.UID == "" // its claim was not created
	if before == nil || before.Namespace != claim.Namespace || before.Name != claim.Name || !unused && (claim.UID == "" || before.UID != claim.UID) {
		return nil, fmt.Errorf("PersistentVolume %s: spec.claimRef must be PersistentVolumeClaim %s/%s with UID %s", pv.Name, claim.Namespace, claim.Name, claim.UID)
	}
	raw, err := json.Marshal(fencedRef{before.Namespace, before.Name, before.UID})
	if err != nil {
		return nil, fmt.Errorf("encode the claim of PersistentVolume %s: %w", pv.Name, err)
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[v1alpha1.FencedClaimAnnotation] = string(raw)
	next.Spec.ClaimRef = ref
	return next, nil
}

// fenceRef returns the claim of a fenced volume, which does not exist.
func fenceRef(pv *corev1.PersistentVolume, namespace string) *corev1.ObjectReference {
	sum := sha256.Sum256([]byte(pv.UID))
	return &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: "fenced-" + hex.EncodeToString(sum[:8]),
	}
}

// firstUser returns a Pod or a VolumeAttachment that uses a volume; "" for none. It reads them from the API server. A Pod
// that has ended, such as one of a finished Job, uses none: its volumes are unmounted, and an attachment counts by itself.
func (o *Operator) firstUser(ctx context.Context, pv *corev1.PersistentVolume, claim Claim) (string, error) {
	pods, err := o.Core.Pods(claim.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list Pods in %s: %w", claim.Namespace, err)
	}
	for i := range pods.Items {
		if phase := pods.Items[i].Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
			continue
		}
		for _, v := range pods.Items[i].Spec.Volumes {
			if v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim.Name {
				return fmt.Sprintf("Pod %s/%s", claim.Namespace, pods.Items[i].Name), nil
			}
		}
	}
	attachments, err := o.Storage.VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list VolumeAttachments: %w", err)
	}
	for i := range attachments.Items {
		a := &attachments.Items[i]
		if a.Spec.Source.PersistentVolumeName != nil && *a.Spec.Source.PersistentVolumeName == pv.Name {
			return fmt.Sprintf("VolumeAttachment %s on node %s", a.Name, a.Spec.NodeName), nil
		}
	}
	return "", nil
}

// update writes a PersistentVolume if it has changed, and if it is still as it was read.
func (o *Operator) update(ctx context.Context, pv, next *corev1.PersistentVolume) error {
	if equality.Semantic.DeepEqual(next, pv) {
		return nil
	}
	if _, err := o.Core.PersistentVolumes().Update(ctx, next, metav1.UpdateOptions{FieldManager: v1alpha1.AgentFieldManager}); err != nil {
		return fmt.Errorf("change PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

// deleteVolume deletes the object of a fenced volume, whose data stays: the reclaim policy must still be Retain.
func (o *Operator) deleteVolume(ctx context.Context, pv *corev1.PersistentVolume) error {
	if pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain {
		return fmt.Errorf("PersistentVolume %s: spec.persistentVolumeReclaimPolicy must be Retain, and is %s", pv.Name, pv.Spec.PersistentVolumeReclaimPolicy)
	}
	err := o.Core.PersistentVolumes().Delete(ctx, pv.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &pv.UID, ResourceVersion: &pv.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete PersistentVolume %s: %w", pv.Name, err)
	}
	return nil
}

// asMessage returns an error for a report. A missing right names what the cluster's admin can do.
func asMessage(err error) string {
	if apierrors.IsForbidden(err) {
		return "the cluster's admin must let the agent move volumes (kubectl apply -k deployments/placement/agent-volumes): " + err.Error()
	}
	return err.Error()
}

func otherVolume(pv *corev1.PersistentVolume) string {
	return fmt.Sprintf("PersistentVolume %s is another volume than the one of the order", pv.Name)
}

func truncate(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxMessageBytes)], "")
}
