// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// testClaim is the claim of all tests, which has the volume pv-1.
func testClaim() Claim {
	return Claim{Namespace: "shop", Name: "data", UID: "claim-1", Hub: "hub-1", Source: "source-1"}
}

// cluster has the claim, its volume and the driver, as changed.
func cluster(change func(*corev1.PersistentVolume, *storagev1.CSIDriver), more ...runtime.Object) (*Operator, *fake.Clientset, *time.Time) {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1", UID: "volume-1"}}
	pv.Spec = corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
		ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "claim-1"},
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "handle-1"}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com", Labels: map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessUse}}}
	if change != nil {
		change(pv, driver)
	}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "claim-1"}}
	pvc.Spec.VolumeName, pvc.Status.Phase = "pv-1", corev1.ClaimBound
	kube := fake.NewClientset(append([]runtime.Object{pv, driver, pvc}, more...)...)
	now := time.Now()
	return &Operator{Core: kube.CoreV1(), Storage: kube.StorageV1(), Namespace: "patchbay-system", Now: func() time.Time { return now }}, kube, &now
}

func testSource() *v1alpha1.VolumeSource {
	return &v1alpha1.VolumeSource{Driver: "csi.example.com", Handle: "handle-1", AccessModes: []string{"ReadWriteOnce"}}
}

func podWithClaim() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0"}}
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	return pod
}

func TestKeepReportsWhyAVolumeStays(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, want string
		change       func(*corev1.PersistentVolume, *storagev1.CSIDriver)
	}{
		"movable": {reason: "Another cluster can attach it."},
		"node-local": {"Its data is on a node.", "nodeAffinity", func(pv *corev1.PersistentVolume, _ *storagev1.CSIDriver) {
			pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{}
		}},
		"not CSI": {"Nothing identifies it elsewhere.", "not of a CSI driver", func(pv *corev1.PersistentVolume, _ *storagev1.CSIDriver) { pv.Spec.CSI = nil }},
		"Secret": {
			"A reference could name any Secret of the other cluster.", "refers to Secrets",
			func(pv *corev1.PersistentVolume, _ *storagev1.CSIDriver) {
				pv.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Name: "key"}
			},
		},
		"driver without label": {"The cluster's admin has not allowed it.", "kubectl label csidriver", func(_ *corev1.PersistentVolume, d *storagev1.CSIDriver) { d.Labels = nil }},
		"no attachments": {
			"Nothing would tell that it is detached.", "attachRequired",
			func(_ *corev1.PersistentVolume, d *storagev1.CSIDriver) { d.Spec.AttachRequired = new(bool) },
		},
		"other claim": {"It belongs to another claim.", "is not bound to", func(pv *corev1.PersistentVolume, _ *storagev1.CSIDriver) { pv.Spec.ClaimRef.UID = "other" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, _, _ := cluster(tc.change)
			r := o.Apply(t.Context(), &v1alpha1.VolumeOrder{Action: v1alpha1.VolumeKeep}, testClaim())
			if (r.Unmovable == "") != (tc.want == "") || !strings.Contains(r.Unmovable, tc.want) || (r.Source == nil) != (tc.want != "") {
				t.Errorf("%s\nreport: got %+v, want %q", tc.reason, *r, tc.want)
			}
		})
	}
}

// A fence waits for Pods and attachments, outlasts a new agent, is taken back as it was, and precedes each deletion.
func TestFenceAndDiscard(t *testing.T) {
	t.Parallel()
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "csi-1"}}
	attachment.Spec.Source.PersistentVolumeName = new("pv-1")
	o, kube, now := cluster(nil, podWithClaim(), attachment)
	apply := func(action v1alpha1.VolumeAction, waiting string) {
		t.Helper()
		r := o.Apply(t.Context(), &v1alpha1.VolumeOrder{Action: action, Source: testSource()}, testClaim())
		if (r.Action == action) != (waiting == "") || !strings.Contains(r.Waiting, waiting) {
			t.Fatalf("%s: got %+v, want to wait for %q", action, *r, waiting)
		}
	}
	volume := func() *corev1.PersistentVolume {
		t.Helper()
		pv, err := kube.CoreV1().PersistentVolumes().Get(t.Context(), "pv-1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pv
	}
	apply(v1alpha1.VolumeFence, "Pod shop/db-0")
	if err := kube.CoreV1().Pods("shop").Delete(t.Context(), "db-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	apply(v1alpha1.VolumeFence, "VolumeAttachment csi-1")
	if err := kube.StorageV1().VolumeAttachments().Delete(t.Context(), "csi-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	apply(v1alpha1.VolumeFence, "the fence is new")
	if pv := volume(); pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || pv.Spec.ClaimRef.UID == "claim-1" {
		t.Fatalf("fenced: got policy %s, claim %v", pv.Spec.PersistentVolumeReclaimPolicy, pv.Spec.ClaimRef)
	}
	apply(v1alpha1.VolumeFence, "for a moment")
	*now = now.Add(unusedFor)
	apply(v1alpha1.VolumeFence, "")
	apply(v1alpha1.VolumeKeep, "")
	if pv := volume(); pv.Spec.ClaimRef.UID != "claim-1" || len(pv.Annotations) > 0 {
		t.Fatalf("given back: got claim %v, annotations %v", pv.Spec.ClaimRef, pv.Annotations)
	}
	apply(v1alpha1.VolumeDiscard, "the fence is new")
	apply(v1alpha1.VolumeDiscard, "for a moment")
	*now = now.Add(unusedFor)
	apply(v1alpha1.VolumeDiscard, "is being deleted")
	apply(v1alpha1.VolumeDiscard, "")
	if _, err := kube.CoreV1().PersistentVolumes().Get(t.Context(), "pv-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("discarded: got %v, want no PersistentVolume", err)
	}
}

// Pods that have ended do not keep a volume in its cluster.
func TestEndedPodsUseNothing(t *testing.T) {
	t.Parallel()
	for phase, want := range map[corev1.PodPhase]string{
		corev1.PodPending: "Pod shop/db-0 uses", corev1.PodRunning: "Pod shop/db-0 uses", corev1.PodUnknown: "Pod shop/db-0 uses",
		corev1.PodSucceeded: "the fence is new", corev1.PodFailed: "the fence is new",
	} {
		pod := podWithClaim()
		pod.Status.Phase = phase
		o, _, _ := cluster(nil, pod)
		if r := o.Apply(t.Context(), &v1alpha1.VolumeOrder{Action: v1alpha1.VolumeFence, Source: testSource()}, testClaim()); !strings.Contains(r.Waiting, want) {
			t.Errorf("a Pod that is %s: got %+v, want to wait for %q", phase, *r, want)
		}
	}
}

// shareSource is the volume of a driver that mounts by attributes.
func shareSource(share string) *v1alpha1.VolumeSource {
	source := testSource()
	source.Handle, source.Attributes = "any", map[string]string{"server": "nas", "share": share, provisionerAttribute: "one"}
	return source
}

// shareOf lists attributes of such a driver, and has a volume of a tenant.
func shareOf(listed string) func(*corev1.PersistentVolume, *storagev1.CSIDriver) {
	return func(pv *corev1.PersistentVolume, d *storagev1.CSIDriver) {
		d.Annotations = map[string]string{v1alpha1.VolumeAttributesAnnotation: listed}
		pv.Spec.CSI.VolumeAttributes = map[string]string{"server": "nas", "share": "/tenant", provisionerAttribute: "one"}
	}
}

func TestPrepareRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, want string
		order        v1alpha1.VolumeOrder
		change       func(*corev1.PersistentVolume, *storagev1.CSIDriver)
	}{
		"new volume": {
			reason: "No PersistentVolume has the handle.", order: v1alpha1.VolumeOrder{Action: v1alpha1.VolumeBind, Source: testSource()},
			change: func(pv *corev1.PersistentVolume, _ *storagev1.CSIDriver) { pv.Spec.CSI.VolumeHandle = "other" },
		},
		"stolen handle": {
			reason: "A hostile cluster reports the handle of a volume that this cluster uses.", want: "PersistentVolume pv-1 has the same volume",
			order: v1alpha1.VolumeOrder{Action: v1alpha1.VolumeBind, Source: testSource()},
		},
		"driver without label": {
			reason: "The cluster's admin has not allowed it.", want: "kubectl label csidriver",
			order: v1alpha1.VolumeOrder{Action: v1alpha1.VolumeBind, Source: testSource()}, change: func(_ *corev1.PersistentVolume, d *storagev1.CSIDriver) { d.Labels = nil },
		},
		"stolen share": {
			reason: "A driver mounts what the attributes name: another handle is the same volume.", want: "PersistentVolume pv-1 has the same attributes",
			order: v1alpha1.VolumeOrder{Action: v1alpha1.VolumeBind, Source: shareSource("/tenant")}, change: shareOf("server=nas,share"),
		},
		"other share": {
			reason: "The path differs.", order: v1alpha1.VolumeOrder{Action: v1alpha1.VolumeBind, Source: shareSource("/other")}, change: shareOf("server=nas, share"),
		},
		"attribute without permission": {
			reason: "The path could name anything on the server.", want: `list the volume's attribute "share"`,
			order: v1alpha1.VolumeOrder{Action: v1alpha1.VolumeBind, Source: shareSource("/other")}, change: shareOf("server=nas"),
		},
		"other server": {
			reason: "The admin allows one server.", want: `attribute "server" must be "filer", and is "nas"`,
			order: v1alpha1.VolumeOrder{Action: v1alpha1.VolumeBind, Source: shareSource("/other")}, change: shareOf("server=filer,share"),
		},
		"fixed attributes": {
			reason: "They are the same for all volumes, so that they identify none.",
			order:  v1alpha1.VolumeOrder{Action: v1alpha1.VolumeBind, Source: shareSource("/tenant")}, change: shareOf("server=nas,share=/tenant"),
		},
		"fenced": {
			reason: "A claim that was deleted behind a fence would come back empty.", want: "on its way to another cluster",
			order: v1alpha1.VolumeOrder{Action: v1alpha1.VolumeFence, Source: testSource()},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, kube, _ := cluster(tc.change)
			claim := testClaim()
			claim.UID = ""
			for range 2 { // an agent that was killed after it tries again
				err := o.Prepare(t.Context(), &tc.order, claim)
				if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Fatalf("%s\ngot %v, want %q", tc.reason, err, tc.want)
				}
			}
			list, err := kube.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
			if err != nil || (len(list.Items) == 2) != (tc.want == "") {
				t.Errorf("%s\ngot %d PersistentVolumes, %v", tc.reason, len(list.Items), err)
			}
		})
	}
}
