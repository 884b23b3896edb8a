// SPDX-License-Identifier: Apache-2.0

// Package awkward writes into every field of an object what somebody may write by mistake or
// on purpose, and checks that clients can decode whatever the API server accepts: a list that
// has one object which they cannot decode fails as a whole.
package awkward

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// awkwardStrings are values of strings.
func awkwardStrings() []string {
	return []string{
		"", "x", "0", "10", "-1", "1d", "-1s", "1h30m", "9999999h", "99999999999999999999s", "1.5.5s",
		"25%", "3000000000%", "-1%", "1Gi", "-1Gi", "1e3", "1e1.5", "1e2147483648", strings.Repeat("9", 40),
		"2026-01-02T15:04:05Z", "2026-01-02T15:04:05.123456Z", "2026-01-02T15:04:05.1Z", "2026-01-02T15:04:05+02:00",
		"2026-01-02t15:04:05z", "2026-01-02T15:04:05x5Z", "2026-01-02T15:04:05,5Z", "2026-01-02T15:04:05+25:00",
		"2026-01-02T15:04:05+02:60", "2026-01-02T24:00:00Z", "2026-01-02T15:04:60Z", "2026-02-30T15:04:05Z",
	}
}

// awkwardNumbers are values of integers, as JSON has them.
func awkwardNumbers() []string {
	return []string{
		"0", "-1", "1000000", "1000001", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
		"-9223372036854775809", "1.0", "1e2", "1e10", "1e19", "1.5", "-0.0",
	}
}

// Check writes awkward values into each field of the examples, which are YAML of one kind. Each
// field of the kind must be in one of them. Nothing but the examples is stored.
// Fields in rejected need no example: the API server takes no new object with a value of them.
func Check(t *testing.T, env *apitest.Env, scheme *runtime.Scheme, rejected []string, examples ...string) {
	t.Helper()
	c := checker{env: env, codecs: serializer.NewCodecFactory(scheme)}
	covered := map[string]bool{}
	for _, example := range examples {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(example), &o.Object); err != nil {
			t.Fatal(err)
		}
		c.loadDefinition(t, o)
		stored := c.createExample(t, o)
		byValue := map[string][]leafField{}
		for _, l := range leafFields(o, &c.schema) {
			covered[l.field] = true
			for _, value := range l.values() {
				key := fmt.Sprint(l.path[0]) + " " + value
				byValue[key] = append(byValue[key], l)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(byValue)) {
			_, value, _ := strings.Cut(key, " ")
			c.writeAccepted(t, stored, byValue[key], value)
		}
	}
	for _, field := range leafPaths("", &c.schema) {
		if !covered[field] && !slices.Contains(rejected, field) {
			t.Errorf("%s: no example has a value of it", field)
		}
	}
}

// checker writes objects of one kind.
type checker struct {
	env    *apitest.Env
	codecs serializer.CodecFactory
	schema apiextensionsv1.JSONSchemaProps
	path   string // of the kind's objects in the API
	client rest.Interface
}

// loadDefinition looks for the definition of an object's kind.
func (c *checker) loadDefinition(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	gvk := o.GroupVersionKind()
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	var d apiextensionsv1.CustomResourceDefinition
	if err := c.env.Client.Get(t.Context(), client.ObjectKey{Name: plural.GroupResource().String()}, &d); err != nil {
		t.Fatal(err)
	}
	c.schema = *d.Spec.Versions[0].Schema.OpenAPIV3Schema
	c.path = "/apis/" + gvk.GroupVersion().String() + "/" + plural.Resource
	if d.Spec.Scope == apiextensionsv1.NamespaceScoped {
		o.SetNamespace(metav1.NamespaceDefault)
		c.path = "/apis/" + gvk.GroupVersion().String() + "/namespaces/" + o.GetNamespace() + "/" + plural.Resource
	}
	config := rest.CopyConfig(c.env.Config)
	config.GroupVersion, config.NegotiatedSerializer = new(gvk.GroupVersion()), clientgoscheme.Codecs.WithoutConversion()
	config.QPS = -1
	var err error
	if c.client, err = rest.UnversionedRESTClientFor(config); err != nil {
		t.Fatal(err)
	}
}

// createExample stores an example with its status.
func (c *checker) createExample(t *testing.T, o *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	o.SetName(apitest.Name("awkward"))
	stored := o.DeepCopy()
	if err := c.env.Client.Create(t.Context(), stored); err != nil {
		t.Fatalf("create %s: %v", o.GetKind(), err)
	}
	status, ok := o.Object["status"]
	t.Cleanup(func() {
		ctx, last := context.WithoutCancel(t.Context()), stored.DeepCopy()
		var err error
		if last.Object["status"] = map[string]any{}; ok { // some are not deleted while it says that they are in use
			err = c.env.Client.Status().Update(ctx, last)
		}
		if err := errors.Join(err, c.env.Client.Delete(ctx, last)); err != nil {
			t.Error(err)
		}
	})
	if ok {
		stored.Object["status"] = status
		if err := c.env.Client.Status().Update(t.Context(), stored); err != nil {
			t.Fatalf("write status of %s: %v", o.GetKind(), err)
		}
	}
	return stored
}

// placeholder stands where the value goes.
const placeholder = "the value"

// writeAccepted writes one value, as JSON, into many fields at once, and leaves out those for which it
// is refused, until the rest is accepted.
func (c *checker) writeAccepted(t *testing.T, stored *unstructured.Unstructured, in []leafField, value string) {
	t.Helper()
	for len(in) > 0 {
		err := c.writeAndDecode(t, stored, in, value)
		refused := refusedFields(err)
		rest := slices.DeleteFunc(slices.Clone(in), func(l leafField) bool { return refused[l.String()] })
		switch {
		case err == nil:
			return
		case len(rest) < len(in):
			in = rest
		case len(in) > 1: // something that stands above the fields: which one is it?
			for _, l := range in {
				c.writeAccepted(t, stored, []leafField{l}, value)
			}
			return
		case apierrors.IsBadRequest(err): // it is no JSON of the kind
			return
		default:
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), in[0].name()) {
				t.Error(fmt.Errorf("%s %s: want a refusal that names the field: %w", in[0].field, value, err))
			}
			return
		}
	}
}

// refusedFields are the fields that a refusal names.
func refusedFields(err error) map[string]bool {
	fields := map[string]bool{}
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.ErrStatus.Details != nil {
		for _, cause := range status.ErrStatus.Details.Causes {
			fields[strings.NewReplacer("[", ".", "]", "", `"`, "").Replace(cause.Field)] = true
		}
	}
	return fields
}

// writeAndDecode writes one value into some fields, and decodes what the API server would store.
func (c *checker) writeAndDecode(t *testing.T, stored *unstructured.Unstructured, in []leafField, value string) error {
	t.Helper()
	o := stored.DeepCopy()
	for _, l := range in {
		setAt(o.Object, l.path, placeholder)
	}
	request := c.client.Post().AbsPath(c.path)
	if in[0].path[0] == "status" {
		request = c.client.Put().AbsPath(c.path, o.GetName(), "status")
	} else {
		o.SetName(o.GetName() + "-new")
		o.SetResourceVersion("")
		o.SetUID("")
	}
	raw, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	raw = bytes.ReplaceAll(raw, []byte(`"`+placeholder+`"`), []byte(value))
	result := request.Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(raw).Do(t.Context())
	if err := result.Error(); err != nil { // Raw would not say why
		return err
	}
	answer, err := result.Raw()
	if err != nil {
		t.Fatal(err)
	}
	gvk := o.GroupVersionKind()
	list := fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"items":[%s]}`, gvk.GroupVersion(), gvk.Kind+"List", answer)
	if _, _, err := c.codecs.UniversalDeserializer().Decode(list, nil, nil); err != nil {
		t.Error(fmt.Errorf("the API server accepts %s in %v, and no client can decode it: %w", value, in, err))
	}
	return nil
}

// leafField is a field that has no fields.
type leafField struct {
	path   []any  // in the example: keys and indexes
	field  string // in the schema
	schema *apiextensionsv1.JSONSchemaProps
}

// String is the path as refusals name it.
func (l leafField) String() string {
	var steps []string
	for _, step := range l.path {
		steps = append(steps, fmt.Sprint(step))
	}
	return strings.Join(steps, ".")
}

// name is the last key of the path.
func (l leafField) name() string {
	for _, step := range slices.Backward(l.path) {
		if key, ok := step.(string); ok {
			return key
		}
	}
	return ""
}

// values are what to write into the field, as JSON.
func (l leafField) values() []string {
	all := []string{"null"}
	if l.schema.Type == "string" || l.schema.XIntOrString {
		for _, text := range awkwardStrings() {
			all = append(all, strconv.Quote(text))
		}
	}
	if l.schema.Type == "integer" || l.schema.XIntOrString {
		all = append(all, awkwardNumbers()...)
	}
	return all
}

// leafFields are the fields that an object has.
func leafFields(o *unstructured.Unstructured, root *apiextensionsv1.JSONSchemaProps) []leafField {
	var found []leafField
	var walk func(value any, l leafField)
	walk = func(value any, l leafField) {
		below := func(step any, field string, s *apiextensionsv1.JSONSchemaProps, value any) {
			walk(value, leafField{append(slices.Clip(l.path), step), field, s})
		}
		switch value := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				if s, ok := l.schema.Properties[key]; ok {
					below(key, l.field+"."+key, &s, value[key])
				} else if l.schema.AdditionalProperties != nil {
					below(key, l.field+"{}", l.schema.AdditionalProperties.Schema, value[key])
				}
			}
		case []any:
			for i := range value {
				below(i, l.field+"[]", l.schema.Items.Schema, value[i])
			}
		default:
			found = append(found, l)
		}
	}
	for _, part := range topLevelFields(root) {
		if value, ok := o.Object[part]; ok {
			s := root.Properties[part]
			walk(value, leafField{[]any{part}, "." + part, &s})
		}
	}
	return found
}

// leafPaths are the fields of a schema that have no fields.
func leafPaths(path string, s *apiextensionsv1.JSONSchemaProps) []string {
	var found []string
	names := slices.Sorted(maps.Keys(s.Properties))
	if path == "" {
		names = topLevelFields(s)
	}
	for _, name := range names {
		field := s.Properties[name]
		found = append(found, leafPaths(path+"."+name, &field)...)
	}
	switch {
	case s.AdditionalProperties != nil:
		return append(found, leafPaths(path+"{}", s.AdditionalProperties.Schema)...)
	case s.Items != nil:
		return append(found, leafPaths(path+"[]", s.Items.Schema)...)
	case len(names) == 0 && s.Type != "object":
		return []string{path}
	}
	return found
}

// topLevelFields are the top fields of a kind that are its own.
func topLevelFields(root *apiextensionsv1.JSONSchemaProps) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(root.Properties)), func(name string) bool {
		return slices.Contains([]string{"apiVersion", "kind", "metadata"}, name)
	})
}

// setAt replaces the value at a path that is there, and returns what it is in.
func setAt(in any, path []any, value any) any {
	if len(path) == 0 {
		return value
	}
	switch in := in.(type) {
	case map[string]any:
		if name, ok := path[0].(string); ok {
			in[name] = setAt(in[name], path[1:], value)
		}
	case []any:
		if i, ok := path[0].(int); ok {
			in[i] = setAt(in[i], path[1:], value)
		}
	}
	return in
}
