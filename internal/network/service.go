// SPDX-License-Identifier: Apache-2.0

package network

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
)

// ServiceRequest is what a Service's annotations ask for: endpoints of the Pods of
// its own namespace with these labels, in these networks.
type ServiceRequest struct {
	// Selector is not empty.
	Selector map[string]string
	// Networks are one at least, in the order of the annotations' names.
	Networks []Ref
}

// ServiceAnnotations are the keys of the annotations without their prefix.
func serviceAnnotationKeys() []struct{ key, kind string } {
	return []struct{ key, kind string }{
		{"clusterNetwork", v1.KindClusterNetwork}, {"network", v1.KindDanmNet}, {"tenantNetwork", v1.KindTenantNetwork},
	}
}

// annotationPrefixes are DANM's, the newer first.
func annotationPrefixes() []string { return []string{"danm.io/", "danm.k8s.io/"} }

// ParseService reads a Service's annotations; nil for one that has none of ours.
// Selecting says that it has a selector of its own. The error is an *InvalidError.
func ParseService(namespace string, annotations map[string]string, selecting bool) (*ServiceRequest, error) {
	var f faults
	path := field.NewPath("metadata", "annotations")
	get := func(key string) (value, full string, ok bool) {
		for _, prefix := range annotationPrefixes() {
			if value, ok = annotations[prefix+key]; ok {
				return value, prefix + key, true
			}
		}
		return "", annotationPrefixes()[0] + key, false
	}
	r := &ServiceRequest{}
	for _, k := range serviceAnnotationKeys() {
		value, full, ok := get(k.key)
		if !ok {
			continue
		}
		for _, fault := range validation.NameIsDNSSubdomain(value, false) {
			f.invalid(path.Key(full), value, "is the name of a "+k.kind+": "+fault)
		}
		r.Networks = append(r.Networks, InterfaceRequest{Kind: k.kind, Network: value}.Ref(namespace))
	}
	text, full, ok := get("selector")
	switch {
	case !ok && len(r.Networks) == 0:
		return nil, nil
	case !ok:
		f.required(path.Key(full), `says which Pods are behind the Service: use a JSON map of labels, such as {"app": "web"}`)
	default:
		r.Selector = parseSelector(&f, path.Key(full), text)
	}
	if len(r.Networks) == 0 {
		f.required(path.Key("danm.io/network"), "says in which network the Pods' addresses are: set danm.io/network, danm.io/tenantNetwork or danm.io/clusterNetwork")
	}
	if selecting {
		f.forbidden(field.NewPath("spec", "selector"), "Kubernetes makes the endpoints of a Service with a selector: leave it out, "+full+" takes its place")
	}
	if err := f.err("Service/" + namespace); err != nil {
		return nil, err
	}
	return r, nil
}

// parseSelector reads a JSON map of labels.
func parseSelector(f *faults, path *field.Path, text string) map[string]string {
	if len(text) > maxAnnotation {
		f.list = append(f.list, field.TooLong(path, "", maxAnnotation))
		return nil
	}
	var labels map[string]string
	if err := json.Unmarshal([]byte(text), &labels); err != nil {
		f.invalid(path, excerpt(text, 0), fmt.Sprintf(`is not a JSON map of labels: %v: use one such as {"app": "web"}`, err))
		return nil
	}
	if len(labels) == 0 {
		f.invalid(path, text, `selects every Pod: name a label, such as {"app": "web"}`)
	}
	f.list = append(f.list, metav1validation.ValidateLabels(labels, path)...)
	return labels
}
