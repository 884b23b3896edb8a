// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Every class of fields of a PodTemplateSpec survives the merge, and the default template stays beside it.
func TestMerge(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, patch string }{
		"Annotations":     {"Prometheus and meshes read them", "metadata: {annotations: {a: b}}"},
		"Labels":          {"policies select by them", "metadata: {labels: {a: b}}"},
		"Sidecar":         {"containers merge by name", "spec: {containers: [{name: x, image: z, ports: [{containerPort: 1, protocol: UDP}, {containerPort: 2}]}]}"},
		"Init":            {"the default has none", "spec: {initContainers: [{name: x, image: z, restartPolicy: Always}]}"},
		"Volume":          {"volumes merge by name", "spec: {volumes: [{name: x, emptyDir: {medium: Memory}}]}"},
		"VolumeSource":    {"another folder of the runtime", "spec: {volumes: [{name: cni-bin, hostPath: {path: /usr/lib/cni}}]}"},
		"Mount":           {"mounts merge by path", "spec: {volumes: [{name: x, emptyDir: {}}], containers: [{name: patchbayd, volumeMounts: [{name: x, mountPath: /x}]}]}"},
		"Env":             {"variables merge by name", "spec: {containers: [{name: patchbayd, env: [{name: X, value: w}], envFrom: [{configMapRef: {name: z}}]}]}"},
		"Image":           {"a mirror of one image", "spec: {containers: [{name: patchbayd, image: mirror/patchbayd, imagePullPolicy: Always}]}"},
		"Command":         {"a wrapper", "spec: {containers: [{name: patchbayd, command: [/wrap], workingDir: /tmp}]}"},
		"Resources":       {"limits of large clusters", "spec: {containers: [{name: patchbayd, resources: {limits: {memory: 2Gi, cpu: \"4\"}}}]}"},
		"Probes":          {"slow machines", "spec: {containers: [{name: patchbayd, livenessProbe: {failureThreshold: 99}, readinessProbe: {periodSeconds: 9}, startupProbe: {periodSeconds: 8}}]}"},
		"Lifecycle":       {"hooks", "spec: {containers: [{name: patchbayd, lifecycle: {preStop: {sleep: {seconds: 3}}}}]}"},
		"SecurityContext": {"SELinux", "spec: {containers: [{name: patchbayd, securityContext: {seLinuxOptions: {type: spc_t}}}], securityContext: {fsGroup: 0}}"},
		"ServiceAccount":  {"an account of the platform", "spec: {serviceAccountName: mine}"},
		"PullSecrets":     {"they merge by name", "spec: {imagePullSecrets: [{name: x}]}"},
		"NodeSelector":    {"some nodes", "spec: {nodeSelector: {zone: a}}"},
		"Affinity":        {"beside that of the default", "spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}}"},
		"Tolerations":     {"a list without a key is replaced", "spec: {tolerations: [{key: a, operator: Exists, effect: NoSchedule}]}"},
		"TopologySpread":  {"zones", "spec: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}"},
		"PriorityClass":   {"a class of the platform", "spec: {priorityClassName: mine}"},
		"DNS":             {"resolvers", "spec: {dnsPolicy: None, dnsConfig: {nameservers: [192.0.2.1], options: [{name: ndots, value: \"2\"}]}, hostAliases: [{ip: 192.0.2.1, hostnames: [x]}]}"},
		"Time":            {"grace", "spec: {terminationGracePeriodSeconds: 99}"},
		"Runtime":         {"a class of the runtime", "spec: {runtimeClassName: x, schedulerName: z, overhead: {cpu: 1m}, shareProcessNamespace: false}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var patch map[string]any
			if err := yaml.Unmarshal([]byte(tc.patch), &patch); err != nil {
				t.Fatal(err)
			}
			got := renderedTemplate(t, tc.patch)
			requirePatch(t, "template", patch, got)
			containers, _, _ := unstructured.NestedSlice(got, "spec", "containers")
			if main := itemOf(containers, map[string]any{"name": "patchbayd"}, 0); main == nil || len(listOf(main["args"])) != 4 {
				t.Errorf("%s: the default container is not there: %v", tc.reason, main)
			}
			if volumes, _, _ := unstructured.NestedSlice(got, "spec", "volumes"); len(volumes) < 6 {
				t.Errorf("%s: the default volumes are not there: %v", tc.reason, volumes)
			}
		})
	}
}

// A template with many fields at once survives as a whole.
func TestMergeFullTemplate(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/full.template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var patch map[string]any
	if err := yaml.Unmarshal(text, &patch); err != nil {
		t.Fatal(err)
	}
	requirePatch(t, "template", patch, renderedTemplate(t, string(text)))
}

// Directives remove and replace what the default has.
func TestDirectives(t *testing.T) {
	t.Parallel()
	got := renderedTemplate(t, `
spec:
  nodeSelector: {$patch: replace, zone: a}
  containers:
    - name: patchbayd
      livenessProbe: {$patch: delete}
      ports: [{containerPort: 9644, $patch: delete}]
`)
	if selector, _, _ := unstructured.NestedStringMap(got, "spec", "nodeSelector"); len(selector) != 1 || selector["zone"] != "a" {
		t.Errorf("nodeSelector %v, want it replaced", selector)
	}
	containers, _, _ := unstructured.NestedSlice(got, "spec", "containers")
	main := itemOf(containers, map[string]any{"name": "patchbayd"}, 0)
	if _, ok := main["livenessProbe"]; ok || len(listOf(main["ports"])) != 1 {
		t.Errorf("container %v, want no probe and one port", main)
	}
	if text := fmt.Sprint(got); strings.Contains(text, "$patch") {
		t.Errorf("a directive is left: %s", text)
	}
}

// The rights of a program follow the account in its template.
func TestServiceAccount(t *testing.T) {
	t.Parallel()
	plan, err := New(readInstallation(t, "parts: {controller: {template: {spec: {serviceAccountName: mine}}}}"))
	if err != nil {
		t.Fatal(err)
	}
	bindings := 0
	for _, o := range plan.Objects {
		subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects")
		for _, s := range subjects {
			subject, _ := s.(map[string]any)
			switch name := subject["name"]; {
			case name == "mine":
				bindings++
			case name != nodeName:
				t.Errorf("%s %s is for %v", o.GetKind(), o.GetName(), name)
			}
		}
	}
	if bindings != 4 {
		t.Errorf("got %d bindings for the account, want 4", bindings)
	}
}

// Kubernetes writes the rules of aggregated ClusterRoles: to apply an empty list would undo that each time.
func TestAggregatedRolesHaveNoRules(t *testing.T) {
	t.Parallel()
	plan, err := New(readInstallation(t, "parts: {placementAgent: {enabled: true, cluster: east}}"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, o := range plan.Objects {
		if _, ok := o.Object["aggregationRule"]; !ok {
			continue
		}
		found++
		if _, ok := o.Object["rules"]; ok {
			t.Errorf("%s has rules", o.GetName())
		}
	}
	if found == 0 {
		t.Error("there is no aggregated ClusterRole")
	}
}

// renderedTemplate returns the template of the DaemonSet with a patch.
func renderedTemplate(t *testing.T, patch string) map[string]any {
	t.Helper()
	var value any
	if err := yaml.Unmarshal([]byte(patch), &value); err != nil {
		t.Fatal(err)
	}
	spec, err := yaml.Marshal(map[string]any{"parts": map[string]any{"node": map[string]any{"template": value}}})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := New(readInstallation(t, string(spec)))
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(plan.Objects, func(o Object) bool { return o.GetKind() == "DaemonSet" })
	template, _, err := unstructured.NestedMap(plan.Objects[i].Object, "spec", "template")
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// requirePatch requires that all values of a patch are there. Items of lists are found by their keys.
func requirePatch(t *testing.T, path string, want, got any) {
	t.Helper()
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s: got %v, want %v", path, got, want)
			return
		}
		for key, value := range w {
			requirePatch(t, path+"."+key, value, g[key])
		}
	case []any:
		g, _ := got.([]any)
		for i, value := range w {
			item, ok := value.(map[string]any)
			if !ok {
				if !slices.ContainsFunc(g, func(v any) bool { return fmt.Sprint(v) == fmt.Sprint(value) }) {
					t.Errorf("%s: got %v, want %v in it", path, got, value)
				}
				continue
			}
			requirePatch(t, fmt.Sprintf("%s[%d]", path, i), item, any(itemOf(g, item, i)))
		}
	default:
		if fmt.Sprint(want) != fmt.Sprint(got) {
			t.Errorf("%s: got %v, want %v", path, got, want)
		}
	}
}

func listOf(value any) []any {
	list, _ := value.([]any)
	return list
}

// itemOf returns the item of a list with the same key, or at the index in a list without keys.
func itemOf(list []any, like map[string]any, index int) map[string]any {
	for _, key := range []string{"mountPath", "name", "containerPort", "key", "topologyKey", "ip", "weight", "operator"} {
		value, ok := like[key]
		if !ok {
			continue
		}
		for _, item := range list {
			if fields, ok := item.(map[string]any); ok && fmt.Sprint(fields[key]) == fmt.Sprint(value) {
				return fields
			}
		}
		return nil
	}
	if index >= len(list) {
		return nil
	}
	item, _ := list[index].(map[string]any)
	return item
}
