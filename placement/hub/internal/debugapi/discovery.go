// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// group is the document /apis/GROUP.
func group() *metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: v1alpha1.DebugGroup + "/" + v1alpha1.DebugVersion, Version: v1alpha1.DebugVersion}
	return &metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: v1alpha1.DebugGroup,
		Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
	}
}

// resources is the document /apis/GROUP/VERSION. It has subresources only, which the garbage collector, the namespace
// controller and `kubectl get` ignore: nothing can be listed or watched here.
func resources() *metav1.APIResourceList {
	return &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: v1alpha1.DebugGroup + "/" + v1alpha1.DebugVersion,
		APIResources: []metav1.APIResource{
			{Name: "clusters/attach", Kind: "ClusterAttachOptions", Verbs: metav1.Verbs{"create"}},
			{Name: "clusters/proxy", Kind: "ClusterProxyOptions", Verbs: metav1.Verbs{"create", "get", "patch", "update"}},
		},
	}
}

func writeJSON(w http.ResponseWriter, o any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o)
}
