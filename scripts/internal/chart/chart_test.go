// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"

	"github.com/patchbay-cni/patchbay/test/source"
)

func deployments(t *testing.T) string {
	t.Helper()
	path, err := source.Path("deployments")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The charts in the work tree are those that the manifests give.
func TestChartsAreGenerated(t *testing.T) {
	t.Parallel()
	files, err := Files(deployments(t), Development())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(deployments(t), "..", "charts", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("charts/%s: run `make generate`: -generated +there\n%s", name, diff)
		}
	}
	if len(files) < 30 {
		t.Errorf("got %d files", len(files))
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	files, err := Files(deployments(t), Release{Version: "v1.2.3", Registry: "registry.example/net"})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"patchbay/Chart.yaml":               "version: 1.2.3\nappVersion: v1.2.3\n",
		"patchbay-crds/Chart.yaml":          "version: 1.2.3\nappVersion: v1.2.3\n",
		"patchbay/templates/_generated.tpl": "{{- define \"patchbay.registry\" -}}\nregistry.example/net\n{{- end -}}",
	} {
		if !strings.Contains(string(files[name]), text) {
			t.Errorf("%s must have %q, got\n%s", name, text, files[name])
		}
	}
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason    string
		in        object
		want, err string
	}{
		"Namespace": {
			reason: "The namespace is that of the release, wherever it is a value of its own.",
			in:     object{"metadata": map[string]any{"namespace": systemNamespace}, "values": []any{"kube-system", systemNamespace}},
			want:   "metadata:\n  namespace: {{ .Release.Namespace | quote }}\nvalues:\n- kube-system\n- {{ .Release.Namespace | quote }}\n",
		},
		"Inside": {
			reason: "A text that has it inside would name the wrong namespace.",
			in:     object{"kind": "Policy", "metadata": map[string]any{"name": "a"}, "spec": []any{"request.namespace == 'patchbay-system'"}},
			err:    "Policy a.spec[0]: must not name patchbay-system inside of a text: the chart is installed into any namespace",
		},
		"Braces": {reason: "Texts are no templates.", in: object{"text": "a {{b}}"}, want: `text: a {{ "{{" }}b}}` + "\n"},
		"Account": {
			reason: "A binding follows the template of its part.",
			in:     object{"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "patchbayd"}}},
			want:   "subjects:\n- kind: ServiceAccount\n  name: {{ include \"patchbay.serviceAccount\" (dict \"root\" $ \"part\" \"node\") }}\n",
		},
		"Aggregated": {reason: "Helm must not own what Kubernetes writes.", in: object{"aggregationRule": map[string]any{}, "rules": []any{}}, want: "aggregationRule: {}\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := template(tc.in)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("%s got error %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || err != nil {
				t.Errorf("%s %v -want +got\n%s", tc.reason, err, diff)
			}
		})
	}
}

// The keys are those that Kubernetes' own code for patches uses.
func TestMergeKeys(t *testing.T) {
	t.Parallel()
	text, err := mergeKeys()
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]string
	if err := yaml.Unmarshal([]byte(text), &keys); err != nil {
		t.Fatal(err)
	}
	if len(keys) < 15 || keys["spec.containers.volumeMounts"] != "mountPath" || keys["spec.tolerations"] != "" {
		t.Errorf("got %v", keys)
	}
	for path, key := range keys {
		meta, err := strategicpatch.NewPatchMetaFromStruct(corev1.PodTemplateSpec{})
		if err != nil {
			t.Fatal(err)
		}
		var of strategicpatch.LookupPatchMeta = meta
		names := strings.Split(path, ".")
		for i, name := range names {
			below, found, err := of.LookupPatchMetadataForSlice(name)
			if err != nil || i < len(names)-1 && found.GetPatchMergeKey() == "" {
				below, found, err = of.LookupPatchMetadataForStruct(name)
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if i == len(names)-1 && found.GetPatchMergeKey() != key {
				t.Errorf("%s: got %q, want %q", path, key, found.GetPatchMergeKey())
			}
			of = below
		}
	}
}

// What the schema of an Installation says and the chart does not know is an error, so that the chart does not accept more.
func TestConvert(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, in, want, err string }{
		"Object":      {reason: "An unknown field is an error.", in: `{type: object, properties: {a: {type: string}}}`, want: `{type: object, properties: {a: {type: string}}, additionalProperties: false}`},
		"Open":        {reason: "Kubernetes keeps what is in it.", in: `{type: object, properties: {a: {type: string}}, x-kubernetes-preserve-unknown-fields: true}`, want: `{type: object, properties: {a: {type: string}}}`},
		"Quantity":    {reason: "A quantity is a number or a text.", in: `{x-kubernetes-int-or-string: true, pattern: "^1$"}`, want: `{anyOf: [{type: number}, {type: string, pattern: "^1$"}]}`},
		"Nullable":    {reason: "null is no value of a text.", in: `{type: string, nullable: true}`, want: `{type: [string, "null"]}`},
		"Pattern":     {reason: "A rule with a pattern.", in: `{type: string, x-kubernetes-validations: [{rule: "self == \"\" || self.matches(r'^a$')"}]}`, want: `{type: string, anyOf: [{const: ""}, {pattern: "^a$"}]}`},
		"Range":       {reason: "A rule about a number or a percentage.", in: `{x-kubernetes-int-or-string: true, x-kubernetes-validations: [{rule: "type(self) == int ? self >= 1 && self <= 9 : string(self).matches('^a%$')"}]}`, want: `{anyOf: [{type: integer, minimum: 1, maximum: 9}, {type: string, pattern: "^a%$"}]}`},
		"UnknownRule": {reason: "A new rule must not be forgotten.", in: `{type: string, x-kubernetes-validations: [{rule: "self != 'x'"}]}`, err: "values: the chart must know what to make of the rule self != 'x'"},
		"Unknown":     {reason: "Nor a new keyword.", in: `{type: array, uniqueItems: true}`, err: "values: the chart must know what to make of the keyword uniqueItems"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var in, want schema
			for text, to := range map[string]*schema{tc.in: &in, tc.want: &want} {
				if err := yaml.Unmarshal([]byte(text), to); err != nil {
					t.Fatal(err)
				}
			}
			got, err := convert(in, "values")
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Errorf("%s got error %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			text, _ := yaml.Marshal(got)
			var read schema
			if err := errors.Join(err, yaml.Unmarshal(text, &read)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, read); diff != "" {
				t.Errorf("%s -want +got\n%s", tc.reason, diff)
			}
		})
	}
}
