// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// slim takes from a cached object what nothing here reads: managedFields can be
// larger than all the rest, and kubectl's annotation repeats the spec.
func slim(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
		annotations := o.GetAnnotations()
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		o.SetAnnotations(annotations)
	}
	return obj, nil
}

// slimNodeNetwork keeps the names and addresses of the NICs, for VTEPs.
func slimNodeNetwork(obj any) (any, error) {
	nn, ok := obj.(*v1.NodeNetwork)
	if !ok {
		return slim(obj)
	}
	nn.Status.Links = nil
	for i := range nn.Status.NICs {
		nic := &nn.Status.NICs[i]
		*nic = v1.NIC{Name: nic.Name, Addresses: nic.Addresses}
	}
	return slim(nn)
}
