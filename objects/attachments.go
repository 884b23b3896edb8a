// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/patchbay-cni/patchbay/network"
)

// AttachmentVersion is the apiVersion of NetworkAttachmentDefinitions.
const AttachmentVersion = "k8s.cni.cncf.io/v1"

// addAttachments maps the kind, whose resource cannot be guessed from it.
func addAttachments(m *meta.DefaultRESTMapper) {
	v := schema.GroupVersion{Group: "k8s.cni.cncf.io", Version: "v1"}
	m.AddSpecific(v.WithKind(network.KindAttachment), v.WithResource("network-attachment-definitions"),
		v.WithResource("network-attachment-definition"), meta.RESTScopeNamespace)
}
