// SPDX-License-Identifier: Apache-2.0

//go:build placement

package placement

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/placement/bed"
)

// detachDelay is how long the driver takes to detach a volume from a node.
const detachDelay = 500 * time.Millisecond

// fakeDriver is a CSI driver with one storage for both clusters. It plays provisioner, attacher and the controller that
// attaches volumes, for the claims of one namespace. It fails the test when a cluster attaches a volume that another
// one has attached, unless several may, and when a second volume is made.
type fakeDriver struct {
	// local volumes belong to a node.
	local bool
	// westDomain is the storage domain of west; "" for that of east.
	westDomain string

	name, ns string
	t        *testing.T
	mu       sync.Mutex
	attached map[string]time.Time // by cluster; when the last Pod went, zero while there is one
	made     int
	shared   bool
	exclude  bool
}

// start installs the driver in both clusters, and runs it until the test ends.
func (d *fakeDriver) start(t *testing.T, w *world, ns string) {
	t.Helper()
	d.t, d.ns, d.name, d.attached = t, ns, ns+".csi.example.com", map[string]time.Time{}
	property := "storage." + d.name + ".domain"
	domains := map[string]string{"east": "rack-1", "west": "rack-1"}
	if d.westDomain != "" {
		domains["west"] = d.westDomain
	}
	for _, name := range []string{"east", "west"} {
		c := w.Clusters[name]
		if err := bed.Install(t.Context(), c.Config, "placement/agent-volumes", "ClusterRole", "ClusterRoleBinding"); err != nil {
			t.Fatal(err)
		}
		err := c.Client.Create(t.Context(), &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: d.name, Labels: map[string]string{v1alpha1.AccessLabel: v1alpha1.AccessUse}},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.patchCluster(t, name, fmt.Sprintf(`{"spec":{"properties":{%q:%q}}}`, property, domains[name]))
		t.Cleanup(func() { w.patchCluster(t, name, fmt.Sprintf(`{"spec":{"properties":{%q:null}}}`, property)) })
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, name := range []string{"east", "west"} {
		all.Go(func() { d.run(ctx, name, w.Clusters[name].Client) })
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})
}

// run plays the driver in one cluster. What fails is tried again.
func (d *fakeDriver) run(ctx context.Context, cluster string, c client.Client) {
	for ctx.Err() == nil {
		if err := errors.Join(d.provision(ctx, c), d.attach(ctx, cluster, c)); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
			d.t.Logf("driver in %s: %v", cluster, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// provision makes a volume for a claim without one.
func (d *fakeDriver) provision(ctx context.Context, c client.Client) error {
	pvc := &corev1.PersistentVolumeClaim{}
	err := c.Get(ctx, client.ObjectKey{Namespace: d.ns, Name: "data"}, pvc)
	if err != nil || pvc.Spec.VolumeName != "" || pvc.DeletionTimestamp != nil {
		return client.IgnoreNotFound(err)
	}
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(pvc.UID)},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: pvc.Spec.AccessModes,
			StorageClassName: d.name, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: d.ns, Name: "data", UID: pvc.UID},
		},
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: d.name, VolumeHandle: string(pvc.UID), FSType: "ext4"}
	if d.local {
		pv.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}},
		}}}}
	}
	if err := c.Create(ctx, pv); err != nil {
		return client.IgnoreAlreadyExists(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.exclude = !slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany)
	if d.made++; d.made > 1 {
		d.t.Errorf("the driver made volume %s: a claim got an empty volume in a second cluster", pv.Name)
	}
	return nil
}

// attach attaches the volume while a Pod on a node uses it, and detaches it a while after the last one.
func (d *fakeDriver) attach(ctx context.Context, cluster string, c client.Client) error {
	pods, pvc := &corev1.PodList{}, &corev1.PersistentVolumeClaim{}
	if err := c.List(ctx, pods, client.InNamespace(d.ns)); err != nil {
		return err
	}
	used := slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.Spec.NodeName != "" })
	err := c.Get(ctx, client.ObjectKey{Namespace: d.ns, Name: "data"}, pvc)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	name := "csi-" + d.ns
	if used && pvc.Status.Phase == corev1.ClaimBound {
		if err := d.noteAttached(cluster); err != nil {
			return err
		}
		return client.IgnoreAlreadyExists(c.Create(ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: d.name, NodeName: "node", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new(pvc.Spec.VolumeName)},
			},
		}))
	}
	if used || !d.noteUnused(cluster) {
		return nil
	}
	if err := c.Delete(ctx, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}}); client.IgnoreNotFound(err) != nil {
		return err
	}
	d.mu.Lock()
	delete(d.attached, cluster)
	d.mu.Unlock()
	return nil
}

// noteAttached notes that a cluster attaches the volume, and fails the test if it must not.
func (d *fakeDriver) noteAttached(cluster string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attached[cluster] = time.Time{}
	if len(d.attached) < 2 {
		return nil
	}
	if d.shared = true; d.exclude {
		d.t.Errorf("%v attach the volume at a time", slices.Sorted(maps.Keys(d.attached)))
	}
	return nil
}

// noteUnused notes that no Pod of a cluster uses the volume, and reports whether it is to be detached now.
func (d *fakeDriver) noteUnused(cluster string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, ok := d.attached[cluster]
	if ok && since.IsZero() {
		d.attached[cluster] = time.Now()
		return false
	}
	return ok && time.Since(since) >= detachDelay
}

// awaitAttached waits until exactly these clusters have attached the volume.
func (d *fakeDriver) awaitAttached(t *testing.T, clusters ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%v have attached the volume", clusters), func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		got := slices.Sorted(maps.Keys(d.attached))
		return errorUnless(slices.Equal(got, clusters), "attached in %v", got)
	})
}

// wasShared reports whether two clusters had attached the volume at a time.
func (d *fakeDriver) wasShared() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shared
}
