// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/internal/kube"
)

// The size of cached objects decides how much memory tens of thousands of them need.
func TestCachedObjectsAreSlim(t *testing.T) {
	t.Parallel()
	full := metav1.ObjectMeta{
		Namespace: "ns", Name: "n", UID: "u", ResourceVersion: "7",
		Labels:        map[string]string{"app": "a", "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "z"},
		Annotations:   map[string]string{"a": "b"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}
	bare := metav1.ObjectMeta{Namespace: "ns", Name: "n", UID: "u", ResourceVersion: "7"}
	linux := bare
	linux.Labels = map[string]string{"kubernetes.io/os": "linux", "topology.kubernetes.io/zone": "z"}
	cases := map[string]struct {
		reason    string
		transform func(any) (any, error)
		in, want  any
	}{
		"DanmEp": {
			reason: "A DanmEp keeps who has which address.", transform: slimEndpoint,
			in: &v1.DanmEp{ObjectMeta: full, Spec: v1.DanmEpSpec{
				NetworkName: "net", NetworkUID: "nu", NetworkType: "ipvlan", EndpointID: "e", Host: "h", HostUID: "hu", Pod: "p", PodUID: "pu",
				CID: "c", Netns: "/run/netns/x", APIType: v1.KindDanmNet,
				Interface: v1.DanmEpInterface{Name: "eth0", Address: "10.0.0.1/24", AddressIPv6: "fd00::1/64", MacAddress: "m", Proutes: map[string]string{"a": "b"}},
			}},
			want: &v1.DanmEp{ObjectMeta: bare, Spec: v1.DanmEpSpec{
				NetworkName: "net", NetworkUID: "nu", EndpointID: "e", Host: "h", HostUID: "hu", Pod: "p", PodUID: "pu", APIType: v1.KindDanmNet,
				Interface: v1.DanmEpInterface{Name: "eth0", Address: "10.0.0.1/24", AddressIPv6: "fd00::1/64"},
			}},
		},
		"Node": {
			reason: "A Node keeps its UID, operating system and zone.", transform: slimNode,
			in: &metav1.PartialObjectMetadata{ObjectMeta: full}, want: &metav1.PartialObjectMetadata{ObjectMeta: linux},
		},
		"Other": {
			reason: "The tombstone of a missed deletion is not changed.", transform: slimEndpoint,
			in: "tombstone", want: "tombstone",
		},
		"Network": {
			reason: "Annotations are requests, so they stay.", transform: kube.StripUnusedFields,
			in:   &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{v1.RebuildAnnotation: ""}, ManagedFields: full.ManagedFields}},
			want: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{v1.RebuildAnnotation: ""}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.transform(tc.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
