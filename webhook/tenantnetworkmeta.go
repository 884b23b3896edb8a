// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
	"github.com/patchbay-cni/patchbay/network"
)

// What the API server makes of generateName (k8s.io/apiserver/pkg/storage/names): it
// cuts it, and appends random letters and digits, so that a name is 63 at most.
const (
	maxGenerated = 58
	randomSuffix = "xxxxx"
)

// checkMeta refuses metadata that the API server would refuse: it looks only after
// admission, so until then the name may be anything, and would stand in the status of a
// TenantConfig beside the names of others.
func checkMeta(obj *v1.TenantNetwork, isNew bool) error {
	trial := obj.ObjectMeta.DeepCopy()
	trial.ManagedFields, trial.Generation = nil, 1 // the API server's own
	if trial.Name == "" && trial.GenerateName != "" {
		trial.Name = generated(trial.GenerateName) + randomSuffix
	}
	path := field.NewPath("metadata")
	faults := validation.ValidateObjectMeta(trial, true, validation.NameIsDNSSubdomain, path)
	if v := trial.ResourceVersion; isNew && v != "" && v != "0" {
		faults = append(faults, field.Invalid(path.Child("resourceVersion"), v, "is the API server's to set: leave it out of a new object"))
	}
	if len(faults) == 0 {
		return nil
	}
	return &network.InvalidError{Faults: faults}
}

// nameOf is the object's name; one that is to be generated ends in "*".
func nameOf(obj *v1.TenantNetwork) string {
	if obj.Name == "" {
		return generated(obj.GenerateName) + "*"
	}
	return obj.Name
}

// generated is what of a generateName is in the name.
func generated(prefix string) string { return prefix[:min(len(prefix), maxGenerated)] }
