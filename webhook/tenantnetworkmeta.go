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
	if isNew {
		faults = append(faults, takeOver(obj)...)
	}
	if len(faults) == 0 {
		return nil
	}
	return &network.InvalidError{Faults: faults}
}

// takeOver returns what the policy networks.danm.io refuses in a new network. The API server
// asks that policy after this webhook has reserved.
func takeOver(obj *v1.TenantNetwork) field.ErrorList {
	var faults field.ErrorList
	if obj.Annotations[v1.TakeOverAnnotation] == "true" {
		faults = append(faults, field.Invalid(field.NewPath("metadata", "annotations").Key(v1.TakeOverAnnotation), "true", "must not be set on a network: taking over a live DANM network is not built yet"))
	}
	opts, path := obj.Spec.Options, field.NewPath("spec", "Options")
	refuse := func(path *field.Path, set bool) {
		if set {
			faults = append(faults, field.Forbidden(path, "must be empty: it is DANM's record of addresses in use, and nothing reads it"))
		}
	}
	refuse(path.Child("alloc"), opts.Alloc != "")
	refuse(path.Child("alloc6"), opts.Alloc6 != "")
	refuse(path.Child("allocation_pool", "lastIp"), opts.Pool != nil && opts.Pool.LastIP != "")
	refuse(path.Child("allocation_pool_v6", "lastIp"), opts.Pool6 != nil && opts.Pool6.LastIP != "")
	return faults
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
