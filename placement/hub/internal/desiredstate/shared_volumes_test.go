// SPDX-License-Identifier: Apache-2.0

package desiredstate

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/kinds"
	"github.com/patchbay-cni/patchbay/placement/hub/internal/scope"
)

// A hostile cluster reports the volume of another tenant for a claim of its own: no other cluster gets it.
func TestSharedVolumeStays(t *testing.T) {
	t.Parallel()
	source := v1alpha1.VolumeSource{Driver: "csi.example.com", Handle: "1", AccessModes: []string{"ReadWriteOnce"}}
	for name, tc := range map[string]struct {
		reason  string
		shared  []string
		refused bool
	}{
		"alone":           {"No other claim has the volume.", nil, false},
		"same storage":    {"South has it for another claim.", []string{"south"}, true},
		"other storage":   {"North has other storage: its handle is another volume.", []string{"north"}, false},
		"unknown storage": {"The domain of a cluster without the property is unknown.", []string{"plain"}, true},
		"no Cluster":      {"The domain of a cluster that is out of the inventory is unknown.", []string{"gone"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &scope.Scope{Key: kinds.Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Namespace: "ours", Name: "data"}}
			s.Object = &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": "claim-1"}}}
			s.Clusters = map[string]*v1alpha1.Cluster{}
			for name, domain := range map[string]string{"east": "rack-1", "west": "rack-1", "south": "rack-1", "north": "rack-2", "plain": ""} {
				c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
				if domain != "" {
					c.Spec.Properties = map[string]v1alpha1.PropertyValue{"storage.csi.example.com.domain": v1alpha1.PropertyValue(domain)}
				}
				s.Clusters[name] = c
			}
			a := &v1alpha1.Assignment{}
			a.Spec.Targets = []v1alpha1.Target{{Cluster: "east", State: v1alpha1.TargetActive}}
			report := &v1alpha1.VolumeReport{Action: v1alpha1.VolumeFence, Source: &source}
			s.Claims = map[string]scope.Claim{"data": {
				Targets: a.Spec.Targets, Volumes: map[string]*v1alpha1.VolumeReport{"east": report},
				Shared: map[string][]string{scope.VolumeKey(&source): tc.shared},
			}}
			if got := volumeRefusal(s, "east", "west"); (got != "") != tc.refused || tc.refused && !strings.Contains(got, tc.shared[0]+" reports the same volume") {
				t.Errorf("%s\nvolumeRefusal: got %q, want a refusal: %t", tc.reason, got, tc.refused)
			}

			// The other report comes when the volume is released already.
			w := &v1alpha1.Work{}
			w.Spec.Volume = &v1alpha1.VolumeOrder{Action: v1alpha1.VolumeFence, Source: &source}
			w.Status.Manifests = []v1alpha1.ManifestStatus{{Volume: report}}
			s.Works, s.Assignment = map[string]*v1alpha1.Work{"east": w}, a.DeepCopy()
			a.Spec.Volume = &v1alpha1.VolumeTransfer{ClaimUID: "claim-1", Source: source, From: "east", To: "west", State: v1alpha1.VolumeReleased}
			want := v1alpha1.VolumeBinding
			if tc.refused {
				want = v1alpha1.VolumeReleased
			}
			if m, ok := transferVolume(s, a, Decision{VolumeHome: "west"}); !ok || a.Spec.Volume.State != want || tc.refused && m.RequeueAfter == 0 {
				t.Errorf("%s\ntransferVolume: got %+v, %t, and state %s, want %s", tc.reason, m, ok, a.Spec.Volume.State, want)
			}
		})
	}
}
