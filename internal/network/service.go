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

// ServiceRequest is the request in a Service's annotations: endpoints for the Pods of its namespace
// with these labels, in these networks.
type ServiceRequest struct {
	// Selector is not empty.
	Selector map[string]string
	// Networks has at least one element, in the order of the annotations' names.
	Networks []Ref
}

// serviceAnnotationKeys returns the keys of the annotations without their prefix, and their kinds.
func serviceAnnotationKeys() []struct{ key, kind string } {
	return []struct{ key, kind string }{
		{"clusterNetwork", v1.KindClusterNetwork}, {"network", v1.KindDanmNet}, {"tenantNetwork", v1.KindTenantNetwork},
	}
}

// ServiceAnnotations returns the keys of the annotations on Services.
func ServiceAnnotations() (keys []string) {
	for _, prefix := range annotationPrefixes() {
		keys = append(keys, prefix+"selector", prefix+"endpoints")
		for _, k := range serviceAnnotationKeys() {
			keys = append(keys, prefix+k.key)
		}
	}
	return keys
}

// annotationPrefixes returns DANM's prefixes, the newer first.
func annotationPrefixes() []string { return []string{"danm.io/", "danm.k8s.io/"} }

// ParseService parses a Service's annotations, and returns nil if it has none of Patchbay's. Selecting
// is true for a Service with a spec.selector. The error is an *InvalidError.
func ParseService(namespace string, annotations map[string]string, selecting bool) (*ServiceRequest, error) {
	var f faults
	path := field.NewPath("metadata", "annotations")
	get := func(key string) (value, full string, ok bool) {
		newer, older := annotationPrefixes()[0]+key, annotationPrefixes()[1]+key
		value, ok = annotations[newer]
		switch other, hasOther := annotations[older]; {
		case ok && hasOther && value != other:
			f.forbidden(path.Key(older), fmt.Sprintf("must not differ from %s, which replaces it: leave this one out", newer))
		case !ok && hasOther:
			return other, older, true
		}
		return value, newer, ok
	}
	r := &ServiceRequest{}
	for _, k := range serviceAnnotationKeys() {
		value, full, ok := get(k.key)
		if !ok {
			continue
		}
		for _, fault := range validation.NameIsDNSSubdomain(value, false) {
			f.invalid(path.Key(full), value, "must be the name of a "+k.kind+": "+fault)
		}
		r.Networks = append(r.Networks, InterfaceRequest{Kind: k.kind, Network: value}.Ref(namespace))
	}
	text, full, ok := get("selector")
	switch {
	case !ok && len(r.Networks) == 0:
		return nil, nil
	case !ok:
		f.required(path.Key(full), `must select the Pods behind the Service: use a JSON map of labels, such as {"app": "web"}`)
	default:
		r.Selector = parseSelector(&f, path.Key(full), text)
	}
	if len(r.Networks) == 0 {
		f.required(path.Key("danm.io/network"), "must name the network in which the selected Pods have the addresses of the Service: set danm.io/clusterNetwork, danm.io/tenantNetwork or danm.io/network (a DanmNet)")
	}
	if selecting {
		f.forbidden(field.NewPath("spec", "selector"), "must be empty, because Kubernetes creates the endpoints of a Service with a selector: leave it out, "+full+" replaces it")
	}
	if err := f.err(""); err != nil {
		return nil, err
	}
	return r, nil
}

// parseSelector parses a JSON map of labels.
func parseSelector(f *faults, path *field.Path, text string) map[string]string {
	if len(text) > maxAnnotation {
		f.list = append(f.list, field.TooLong(path, "", maxAnnotation))
		return nil
	}
	var labels map[string]string
	if err := json.Unmarshal([]byte(text), &labels); err != nil {
		f.invalid(path, excerpt(text, 0), fmt.Sprintf(`must be a JSON map of labels, such as {"app": "web"}: %v`, err))
		return nil
	}
	if len(labels) == 0 {
		f.invalid(path, text, `must have a label, because an empty map selects every Pod: use one such as {"app": "web"}`)
	}
	f.list = append(f.list, metav1validation.ValidateLabels(labels, path)...)
	return labels
}
