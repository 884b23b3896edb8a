// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package works_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/agent/internal/volumes"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// volumeOfTenant returns a PersistentVolume that is bound to a claim of a tenant.
func volumeOfTenant(name, namespace string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": "csi.example.com"}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: name}},
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: "data", UID: "tenant-1"},
		},
	}
}

// testStolenVolumeToken attacks with the rights of agent-volumes. The agent's own orders work with the same rights.
func testStolenVolumeToken(t *testing.T, b *testAgent, user string) {
	t.Helper()
	ctx, parts := t.Context(), strings.Split(user, ":")
	own, account := parts[2], parts[3]
	rights := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "volumes-" + account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-agent-volumes"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: own, Name: account}},
	}
	if err := errors.Join(bed.Install(ctx, b.env.Config, "placement/agent-volumes", "ClusterRole"), b.Create(ctx, rights)); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(b.env.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	attacker, err := client.New(config, client.Options{Scheme: bed.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the rights are in force", func() error { return attacker.List(ctx, &corev1.PersistentVolumeList{}) })

	const fencedClaim = `{"namespace":"monitoring","name":"data","uid":"tenant-1"}`
	fence := func(recorded string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			pv.Annotations[v1alpha1.FencedClaimAnnotation] = recorded
			pv.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: own, Name: "fenced-1"}
		}
	}
	giveTo := func(namespace, name, uid string) func(*corev1.PersistentVolume) {
		return func(pv *corev1.PersistentVolume) {
			delete(pv.Annotations, v1alpha1.FencedClaimAnnotation)
			pv.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name, UID: types.UID(uid)}
		}
	}
	cases := map[string]struct {
		reason    string
		namespace string // of the claim; empty for monitoring
		fenced    bool   // before the attack
		change    func(*corev1.PersistentVolume)
		allowed   bool
	}{
		"Fence":        {reason: "The agent fences what it moves.", change: fence(fencedClaim), allowed: true},
		"FenceNothing": {reason: "A fence must record the claim.", change: fence("")},
		"FenceForOwn":  {reason: "A fence must not record another claim.", change: fence(`{"namespace":"fresh","name":"data","uid":""}`)},
		"FenceReused":  {reason: "A fence must not record another incarnation of the claim.", change: fence(`{"namespace":"monitoring","name":"data","uid":""}`)},
		"FenceKube":    {reason: "The hub places nothing in kube-system.", namespace: "kube-system", change: fence(`{"namespace":"kube-system","name":"data","uid":"tenant-1"}`)},
		"Record":       {reason: "A record without a fence would give the volume away later.", change: func(pv *corev1.PersistentVolume) { pv.Annotations[v1alpha1.FencedClaimAnnotation] = fencedClaim }},
		"Steal":        {reason: "A volume in use must not change its claim.", change: giveTo("fresh", "mine", "")},
		"Empty":        {reason: "Any new claim could take a volume without one.", change: func(pv *corev1.PersistentVolume) { pv.Spec.ClaimRef = nil }},
		"GiveBack":     {reason: "The agent takes back a fence.", fenced: true, change: giveTo("monitoring", "data", "tenant-1"), allowed: true},
		"GiveAway":     {reason: "A fenced volume must not go to another claim.", fenced: true, change: giveTo("fresh", "mine", "")},
		"GiveToNext":   {reason: "The claim's next incarnation is another one.", fenced: true, change: giveTo("monitoring", "data", "tenant-2")},
		"GiveToKube":   {reason: "A fenced volume must not go to kube-system.", fenced: true, change: giveTo("kube-system", "mine", "")},
		"Forge":        {reason: "The record of a fenced volume must stay.", fenced: true, change: fence(`{"namespace":"fresh","name":"mine","uid":""}`)},
		"Forget":       {reason: "A fence without a record has no way back.", fenced: true, change: func(pv *corev1.PersistentVolume) { delete(pv.Annotations, v1alpha1.FencedClaimAnnotation) }},
		"Annotate":     {reason: "Other annotations are for provisioners.", change: func(pv *corev1.PersistentVolume) { pv.Annotations["pv.kubernetes.io/provisioned-by"] = "other" }},
		"Label":        {reason: "Labels decide which claims select a volume.", change: func(pv *corev1.PersistentVolume) { pv.Labels = map[string]string{"a": "b"} }},
		"Finalizer":    {reason: "A finalizer would keep the volume for ever.", change: func(pv *corev1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, "example.com/never") }},
		"MountOptions": {reason: "Options may loosen what a mount allows.", change: func(pv *corev1.PersistentVolume) { pv.Spec.MountOptions = []string{"suid"} }},
		"Class":        {reason: "The class decides which claims match.", change: func(pv *corev1.PersistentVolume) { pv.Spec.StorageClassName = "other" }},
		"Retain": {reason: "The agent protects the data.", change: func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}, allowed: true},
		"RecycleFenced": {reason: "Only Retain protects the data.", fenced: true, change: func(pv *corev1.PersistentVolume) {
			pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			namespace := tc.namespace
			if namespace == "" {
				namespace = "monitoring"
			}
			pv := volumeOfTenant(strings.ToLower(name)+"-"+account, namespace)
			if tc.fenced {
				fence(fencedClaim)(pv)
				pv.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
			}
			if err := b.Create(ctx, pv); err != nil {
				t.Fatal(err)
			}
			tc.change(pv)
			if err := attacker.Update(ctx, pv); (err == nil) != tc.allowed || err != nil && !apierrors.IsForbidden(err) {
				t.Errorf("%s\ngot %v, want it allowed: %t", tc.reason, err, tc.allowed)
			}
		})
	}
	t.Run("Orders", func(t *testing.T) { testVolumeOrders(t, b, config, own) })
}

// testVolumeOrders carries out each order of a transfer with the agent's rights.
func testVolumeOrders(t *testing.T, b *testAgent, config *rest.Config, own string) {
	t.Helper()
	ctx := t.Context()
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "csi.example.com", Labels: map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessUse}}}
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "orders-" + own}}
	pv := volumeOfTenant(pvc.Name, "team")
	pvc.Spec.AccessModes, pvc.Spec.VolumeName = pv.Spec.AccessModes, pv.Name
	pvc.Spec.Resources.Requests = pv.Spec.Capacity
	if err := errors.Join(client.IgnoreAlreadyExists(b.Create(ctx, driver)), b.Create(ctx, pvc)); err != nil {
		t.Fatal(err)
	}
	pv.Spec.ClaimRef.Name, pv.Spec.ClaimRef.UID = pvc.Name, pvc.UID
	pvc.Status.Phase = corev1.ClaimBound
	if err := errors.Join(b.Create(ctx, pv), b.Status().Update(ctx, pvc)); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	o := &volumes.Operator{Core: kube.CoreV1(), Storage: kube.StorageV1(), Namespace: own, Now: func() time.Time { return now }}
	claim := volumes.Claim{Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID, Hub: "hub-1", Source: "source-1"}
	source := &v1alpha1.VolumeSource{Driver: "csi.example.com", Handle: pv.Name, AccessModes: []string{"ReadWriteOnce"}, Capacity: new(resource.MustParse("1Gi"))}
	apply := func(action v1alpha1.VolumeAction) {
		t.Helper()
		eventually(t, string(action)+" is carried out", func() error {
			now = now.Add(time.Minute)
			if r := o.Apply(ctx, &v1alpha1.VolumeOrder{Action: action, Source: source}, claim); r.Action != action {
				return fmt.Errorf("got %+v", *r)
			}
			return nil
		})
	}
	for _, action := range []v1alpha1.VolumeAction{v1alpha1.VolumeFence, v1alpha1.VolumeKeep, v1alpha1.VolumeRetain, v1alpha1.VolumeFence} {
		apply(action)
	}
	// Kubernetes' controller would take its finalizer off.
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := b.Patch(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: pv.Name}}, patch); err != nil {
		t.Fatal(err)
	}
	apply(v1alpha1.VolumeDiscard)
	if err := o.Prepare(ctx, &v1alpha1.VolumeOrder{Action: v1alpha1.VolumeBind, Source: source}, claim); err != nil {
		t.Errorf("bind: %v", err)
	}
}
