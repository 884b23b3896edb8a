// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package charts

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// The chart merges templates with templates of Helm, and the operator with Kubernetes' own code. Both must get the
// same Pods.
func TestTemplatesMergeAsInKubernetes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, part, template string }{
		"Maps": {
			reason: "Maps merge.",
			template: `
metadata: {annotations: {prometheus.io/scrape: "true"}, labels: {team: net}}
spec: {nodeSelector: {pool: edge}, securityContext: {fsGroup: 4, sysctls: [{name: a, value: b}]}}`,
		},
		"Scalars": {reason: "Numbers, texts and switches are replaced.", template: `{spec: {terminationGracePeriodSeconds: 75, priorityClassName: mine, shareProcessNamespace: false}}`},
		"Sidecar": {reason: "A container with a new name is added.", template: `{spec: {containers: [{name: logs, image: logs.example/agent:1, args: [a, b]}]}}`},
		"SidecarBeside": {
			reason:   "The order of the patch counts for what it names.",
			template: `{spec: {containers: [{name: a, image: a}, {name: patchbayd, env: [{name: POD_NAMESPACE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}}, {name: NEW, value: a}, {name: NODE_NAME, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: spec.nodeName}}}]}, {name: b, image: b}]}}`,
		},
		"Env": {
			reason: "A variable with the same name gets both sources, as with kubectl, unless the patch says otherwise.", part: "controller",
			template: `{spec: {containers: [{name: patchbay-controller, env: [{name: GOMEMLIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory}}}, {name: KUBERNETES_SERVICE_HOST, value: 192.0.2.2}]}]}}`,
		},
		"VolumeMounts": {
			reason:   "Mounts merge by their path.",
			template: `{spec: {containers: [{name: patchbayd, volumeMounts: [{name: netns, mountPath: /run/netns, mountPropagation: Bidirectional}, {name: extra, mountPath: /extra}]}], volumes: [{name: extra, emptyDir: {sizeLimit: 1Mi}}]}}`,
		},
		"Ports": {
			reason:   "Ports merge by their number, also of two protocols: Kubernetes' merge key is the number alone.",
			template: `{spec: {containers: [{name: patchbayd, ports: [{containerPort: 9644, name: other, protocol: TCP}, {containerPort: 53, protocol: UDP, name: dns}, {containerPort: 53, protocol: TCP, name: dns-tcp}]}]}}`,
		},
		"Tolerations": {reason: "Tolerations have no merge key, and are replaced.", template: `{spec: {tolerations: [{key: a, operator: Exists}]}}`},
		"Args":        {reason: "Flags are replaced.", template: `{spec: {containers: [{name: patchbayd, args: ['--node-name=$(NODE_NAME)', --host-root=/host, '--health-address=:9640']}]}}`},
		"Secrets":     {reason: "Pull secrets merge by name.", template: `{spec: {imagePullSecrets: [{name: a}, {name: b}]}}`},
		"Delete": {
			reason:   "An element can be deleted, also one that is not there.",
			template: `{spec: {containers: [{name: patchbayd, ports: [{containerPort: 9644, $patch: delete}], env: [{name: NONE, $patch: delete}]}, {name: none, $patch: delete}]}}`,
		},
		"ReplaceList": {
			reason: "A list can be replaced.",
			template: `{spec: {containers: [{name: patchbayd, env: [{$patch: replace, name: any}, {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}},
  {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}, {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}]}]}}`,
		},
		"ReplaceMap":     {reason: "A map can be replaced.", template: `{spec: {nodeSelector: {$patch: replace, a: b}, containers: [{name: patchbayd, resources: {$patch: replace, limits: {cpu: 1}}}]}}`},
		"DeleteMap":      {reason: "A map can be removed.", template: `{spec: {nodeSelector: {$patch: delete}}}`},
		"DeleteProbe":    {reason: "Without a trace, because Kubernetes rejects an empty probe.", template: `{spec: {containers: [{name: patchbayd, startupProbe: {$patch: delete}}]}}`},
		"DeleteNothing":  {reason: "A directive about what is not there changes nothing.", template: `{spec: {affinity: {$patch: delete}, dnsConfig: {nameservers: [a], options: [{name: x, $patch: delete}]}}}`},
		"RetainKeys":     {reason: "A volume gets another source.", part: "placementAgent", template: `{spec: {volumes: [{name: hub, $retainKeys: [name, projected], projected: {sources: []}}]}}`},
		"RetainKeysMore": {reason: "What is retained stays.", template: `{spec: {volumes: [{name: run, $retainKeys: [name, hostPath, emptyDir], emptyDir: {}}]}}`},
		"Empty":          {reason: "Empty maps and lists change nothing that merges.", template: `{metadata: {}, spec: {containers: [], volumes: [{name: run}], nodeSelector: {}}}`},
		"EmptyAtomic":    {reason: "An empty list without a merge key removes its elements.", template: `{spec: {tolerations: []}}`},
		"Numbers":        {reason: "Numbers and texts stay what they are.", template: `{spec: {containers: [{name: a, resources: {limits: {cpu: 1, memory: 1e9}, requests: {cpu: 0.5}}, livenessProbe: {httpGet: {port: 80}}, readinessProbe: {httpGet: {port: http}}, securityContext: {runAsUser: 2147483647}}]}}`},
		"Controller": {
			reason: "The Deployment merges by the same keys.", part: "controller",
			template: `
spec:
  serviceAccountName: patchbay-controller
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: []}, nodeAffinity: {}}
  initContainers: [{name: wait, image: wait}]
  containers: [{name: patchbay-controller, env: [{name: GOMEMLIMIT, value: 1GiB}]}]`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.part == "" {
				tc.part = "node"
			}
			var patch map[string]any
			if err := yaml.Unmarshal([]byte(tc.template), &patch); err != nil {
				t.Fatal(err)
			}
			compareMerged(t, tc.reason, tc.part, patch)
		})
	}
}

// Every field that a PodTemplateSpec has takes part: one template has them all, for the container of the program
// and for a new one.
func TestAllFieldsMergeAsInKubernetes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(path(t, "charts", "patchbay", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	template := mapOf(t, field(t, schema, "$defs", "podTemplate"))
	for part, container := range map[string]string{"node": "patchbayd", "controller": "patchbay-controller"} {
		for _, name := range []string{container, "new"} {
			t.Run(part+"/"+name, func(t *testing.T) {
				t.Parallel()
				patch := mapOf(t, example(template, ""))
				spec := mapOf(t, patch["spec"])
				firstOf(t, spec, "containers")["name"] = name
				if part == "node" { // it runs on all nodes with Linux, and cleans them up when it ends
					delete(spec, "nodeName")
					delete(spec, "os")
					spec["terminationGracePeriodSeconds"] = 61
				}
				// Sidecars and containers share the ports of the node.
				firstOf(t, firstOf(t, spec, "initContainers"), "ports")["containerPort"] = 8
				if raw, err := json.Marshal(patch); err != nil || len(raw) < 10_000 {
					t.Fatalf("the example has %d bytes, %v", len(raw), err)
				}
				compareMerged(t, "All fields.", part, patch)
			})
		}
	}
}

// example returns a value with all fields of a schema.
func example(schema map[string]any, name string) any {
	// The checks of templates accept no other values.
	switch name {
	case "restartPolicy":
		return "Always"
	case "serviceAccount":
		return "a-serviceAccountName"
	case "runAsUser":
		return 0
	case "runAsNonRoot":
		return false
	}
	if values, ok := schema["enum"].([]any); ok {
		return values[0]
	}
	if alternatives, ok := schema["anyOf"].([]any); ok {
		first, _ := alternatives[0].(map[string]any)
		return example(first, name)
	}
	kind := schema["type"]
	if kinds, ok := kind.([]any); ok {
		kind = kinds[0]
	}
	switch kind {
	case "object":
		out := map[string]any{}
		properties, _ := schema["properties"].(map[string]any)
		for name, below := range properties {
			if property, ok := below.(map[string]any); ok && !strings.HasPrefix(name, "$") {
				out[name] = example(property, name)
			}
		}
		if more, ok := schema["additionalProperties"].(map[string]any); ok {
			out["key"] = example(more, "key")
		}
		return out
	case "array":
		items, _ := schema["items"].(map[string]any)
		return []any{example(items, name)}
	case "integer", "number":
		return 7
	case "boolean":
		return true
	default:
		if strings.HasSuffix(strings.ToLower(name), "time") || strings.HasSuffix(name, "Timestamp") {
			return "2026-01-02T03:04:05Z"
		}
		return "a-" + name
	}
}

// compareMerged compares a part's template in the chart with what Kubernetes' code makes of the default one.
func compareMerged(t *testing.T, reason, part string, patch map[string]any) {
	t.Helper()
	values := func(template any) any {
		p := map[string]any{"template": template}
		if part == "placementAgent" {
			p["enabled"], p["cluster"] = true, "east"
		}
		return map[string]any{"parts": map[string]any{part: p}}
	}
	got := mapOf(t, field(t, workload(t, mustRender(t, values(patch)), part), "spec", "template"))
	base := mapOf(t, field(t, workload(t, mustRender(t, values(map[string]any{})), part), "spec", "template"))
	deletionsToNull(patch)
	raw, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	original, err := json.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, raw, corev1.PodTemplateSpec{})
	if err != nil {
		t.Fatal(err)
	}
	// As the API server reads them: the code of Kubernetes leaves directives in new elements.
	var want, read corev1.PodTemplateSpec
	if err := json.Unmarshal(merged, &want); err != nil {
		t.Fatal(err)
	}
	rendered, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(rendered, &read); err != nil {
		t.Errorf("%s a field that the API server does not know: %v", reason, err)
	}
	if diff := cmp.Diff(want, read); diff != "" {
		t.Errorf("%s template: -Kubernetes +chart\n%s", reason, diff)
	}
}

// deletionsToNull replaces maps that are to be deleted by null, with which kubectl deletes them. The schemas of chart and
// operator allow no null, and the directive alone would leave an empty map.
func deletionsToNull(value any) {
	switch v := value.(type) {
	case []any:
		for _, element := range v {
			deletionsToNull(element)
		}
	case map[string]any:
		for key, element := range v {
			if fields, ok := element.(map[string]any); ok && fields["$patch"] == "delete" {
				v[key] = nil
				continue
			}
			deletionsToNull(element)
		}
	}
}

// What the chart does not merge as Kubernetes does, it rejects, and names it.
func TestTemplatesThatAreRejected(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, template string
		want             []string
	}{
		"Unknown":         {"A field with a mistake must not be ignored.", `{spec: {hostNetwrok: true}}`, []string{"parts/node/template/spec", "hostNetwrok"}},
		"Type":            {"A text is no list.", `{spec: {containers: all}}`, []string{"parts/node/template/spec/containers", "want array"}},
		"NoKey":           {"An element without its merge key is none or all of them.", `{spec: {containers: [{image: a}]}}`, []string{"parts/node/template/spec/containers/0", "name"}},
		"NoPath":          {"A mount without its path, too.", `{spec: {containers: [{name: patchbayd, volumeMounts: [{name: a}]}]}}`, []string{"mountPath"}},
		"Directive":       {"An unknown directive.", `{spec: {nodeSelector: {$patch: merge}}}`, []string{"parts.node.template.spec.nodeSelector.$patch: must be replace or delete", `got "merge"`}},
		"DirectiveInList": {"The same in a list.", `{spec: {volumes: [{name: run, $patch: drop}]}}`, []string{"parts.node.template.spec.volumes[0].$patch: must be replace or delete", `got "drop"`}},
		"Order":           {"The chart has no order of its own.", `{spec: {$setElementOrder/containers: [{name: a}]}}`, []string{"parts/node/template/spec", "$setElementOrder/containers"}},
		"Names":           {"Lists of names merge nowhere in a default.", `{metadata: {$deleteFromPrimitiveList/finalizers: [a]}}`, []string{"parts/node/template/metadata", "$deleteFromPrimitiveList/finalizers"}},
		"RetainKeys":      {"As in Kubernetes.", `{spec: {volumes: [{name: run, $retainKeys: [name], emptyDir: {}}]}}`, []string{"parts.node.template.spec.volumes[0].$retainKeys: must list all fields that stay", "emptyDir"}},
		"Null":            {"Helm drops some nulls, so that none is accepted.", `{spec: {hostNetwork: null}}`, []string{"parts/node/template/spec/hostNetwork", "got null"}},
		"NullInList":      {"Also in lists.", `{spec: {containers: [{name: patchbayd, resources: null}]}}`, []string{"parts/node/template/spec/containers/0/resources", "got null"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var patch map[string]any
			if err := yaml.Unmarshal([]byte(tc.template), &patch); err != nil {
				t.Fatal(err)
			}
			_, err := render(t, map[string]any{"parts": map[string]any{"node": map[string]any{"template": patch}}})
			if err == nil {
				t.Fatalf("%s must be rejected", tc.reason)
			}
			if i := slices.IndexFunc(tc.want, func(text string) bool { return !strings.Contains(err.Error(), text) }); i >= 0 {
				t.Errorf("%s got %v, want it to contain %q", tc.reason, err, tc.want[i])
			}
		})
	}
}
