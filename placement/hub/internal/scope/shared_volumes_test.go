// SPDX-License-Identifier: Apache-2.0

package scope

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
)

// A Scope knows in which clusters another claim has a volume of the object's claim.
func TestSharedVolumes(t *testing.T) {
	t.Parallel()
	volume := func(handle string) *v1alpha1.VolumeSource {
		return &v1alpha1.VolumeSource{Driver: "csi.example.com", Handle: handle}
	}
	claim := func(ns string) v1alpha1.ObjectReference {
		return v1alpha1.ObjectReference{Version: "v1", Kind: "PersistentVolumeClaim", Namespace: ns, Name: "data"}
	}
	work := func(cluster, ns string, ordered, reported *v1alpha1.VolumeSource) *v1alpha1.Work {
		w := &v1alpha1.Work{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.ClusterNamespacePrefix + cluster, Name: ns}}
		w.Spec.Source, w.Spec.Volume = claim(ns), &v1alpha1.VolumeOrder{Action: v1alpha1.VolumeKeep, Source: ordered}
		w.Status.Manifests = []v1alpha1.ManifestStatus{{Volume: &v1alpha1.VolumeReport{Source: reported}}}
		return w
	}
	moving := func(ns string) *v1alpha1.Assignment {
		a := &v1alpha1.Assignment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data"}}
		a.Spec.Object, a.Spec.Volume = claim(ns), &v1alpha1.VolumeTransfer{Source: *volume("1"), To: "north"}
		return a
	}
	for name, tc := range map[string]struct {
		reason string
		others []client.Object
		want   []string
	}{
		"alone":        {"Only this claim has the volume, in both of its clusters.", []client.Object{work("west", "ours", volume("1"), volume("1")), moving("ours")}, nil},
		"reported":     {"Another tenant's claim has it.", []client.Object{work("south", "theirs", nil, volume("1"))}, []string{"south"}},
		"ordered":      {"Another tenant's claim is to get it.", []client.Object{work("south", "theirs", volume("1"), nil)}, []string{"south"}},
		"on the way":   {"Another tenant's claim moves with it, and its Works are lost.", []client.Object{moving("theirs")}, []string{"north"}},
		"other volume": {"Another handle is another volume.", []client.Object{work("south", "theirs", nil, volume("2"))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			own := work("east", "ours", nil, volume("1"))
			cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(tc.others, own)...).
				WithIndex(&v1alpha1.Work{}, volumeIndex, volumeIndexKeys).WithIndex(&v1alpha1.Assignment{}, volumeIndex, volumeIndexKeys).Build()
			s := &Scope{Key: kinds.Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Namespace: "ours", Name: "data"}}
			s.Claims = map[string]Claim{"data": claimOf(&v1alpha1.Assignment{}, map[string]*v1alpha1.Work{"east": own})}
			if err := readSharedVolumes(t.Context(), cached, s); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, s.Claims["data"].Shared[VolumeKey(volume("1"))]); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
