// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds in this package.
const GroupName = "operator.patchbay.io"

// SchemeGroupVersion returns the group and version of this package: operator.patchbay.io/v1alpha1.
func SchemeGroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// AddToScheme registers all kinds of this package and their lists.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(SchemeGroupVersion(), &Installation{}, &InstallationList{})
	metav1.AddToGroupVersion(s, SchemeGroupVersion())
	return nil
}
