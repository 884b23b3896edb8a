// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package charts

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// valueCase changes one value.
type valueCase struct {
	value string
	// has and hasNot are what the change adds to the rendered text, and what it removes.
	has, hasNot string
	// with are other values that this one needs.
	with string
}

// valueCases has a case for each value of the schema.
func valueCases() map[string]valueCase {
	const agent = `{parts: {placementAgent: {enabled: true, cluster: east}}}`
	cases := map[string]valueCase{
		"version":                                        {value: "v9.9.9", has: "image: patchbay.local/patchbay-controller:v9.9.9", hasNot: "patchbayd:devel"},
		"registry":                                       {value: "registry.example/net", has: "image: registry.example/net/patchbayd:devel", hasNot: "patchbay.local"},
		"imagePullPolicy":                                {value: "Always", has: "imagePullPolicy: Always", hasNot: "imagePullPolicy: IfNotPresent"},
		"imagePullSecrets":                               {value: "[{name: credentials}]", has: "imagePullSecrets:\n      - name: credentials"},
		"logLevel":                                       {value: "debug", has: "- --debug"},
		"defaultDelegate":                                {value: "10-calico.conflist", has: "- --default-delegate=10-calico.conflist"},
		"features.metrics":                               {value: "false", hasNot: "--metrics-address"},
		"features.nodeConfiguration":                     {value: "false", has: "- --node-configuration=false"},
		"features.tenantRoles":                           {value: "false", hasNot: "rbac.authorization.k8s.io/aggregate-to-"},
		"parts.node.cniBinDir":                           {value: "/k3s/bin", has: "- --cni-bin-dir=/k3s/bin", hasNot: "path: /opt/cni/bin"},
		"parts.node.cniConfDir":                          {value: "/k3s/net.d", has: "- --cni-conf-dir=/k3s/net.d", hasNot: "path: /etc/cni/net.d"},
		"parts.controller.replicas":                      {value: "1", has: "replicas: 1", hasNot: "replicas: 2"},
		"parts.placementAgent.enabled":                   {value: "true", has: "image: patchbay.local/patchbay-agent:devel", with: `{parts: {placementAgent: {cluster: east}}}`},
		"parts.placementAgent.cluster":                   {value: "north", has: "value: north", hasNot: "value: east", with: agent},
		"parts.node.updateStrategy.type":                 {value: "OnDelete", has: "type: OnDelete", hasNot: "maxUnavailable: 10%"},
		"parts.node.updateStrategy.maxUnavailable":       {value: "25%", has: "maxUnavailable: 25%", hasNot: "maxUnavailable: 10%"},
		"parts.controller.updateStrategy.type":           {value: "Recreate", has: "type: Recreate", hasNot: "maxSurge: 0"},
		"parts.controller.updateStrategy.maxUnavailable": {value: "2", has: "maxUnavailable: 2"},
		"parts.controller.updateStrategy.maxSurge": {
			value: "1", has: "maxSurge: 1", hasNot: "maxSurge: 0",
			with: `{parts: {controller: {template: {spec: {hostNetwork: false, containers: [{name: patchbay-controller, args: ["--health-address=:9641", "--webhook-address=:9642"]}]}}}}}`,
		},
		"parts.placementAgent.updateStrategy.type":           {value: "Recreate", has: "type: Recreate", with: agent},
		"parts.placementAgent.updateStrategy.maxUnavailable": {value: "0", has: "maxUnavailable: 0", with: agent},
		"parts.placementAgent.updateStrategy.maxSurge":       {value: "2", has: "maxSurge: 2", with: agent},
	}
	digest := "sha256:" + strings.Repeat("0a", 32)
	for part, program := range map[string]string{"node": "patchbayd", "controller": "patchbay-controller", "placementAgent": "patchbay-agent"} {
		with := map[bool]string{true: agent}[part == "placementAgent"]
		for name, c := range map[string]valueCase{
			"image.registry":   {value: "other.example", has: "image: other.example/" + program + ":devel", hasNot: "image: patchbay.local/" + program + ":"},
			"image.repository": {value: "mirror/one", has: "image: patchbay.local/mirror/one:devel", hasNot: "/" + program + ":"},
			"image.tag":        {value: "fix", has: program + ":fix", hasNot: program + ":devel"},
			"image.digest":     {value: digest, has: "image: patchbay.local/" + program + ":devel@" + digest},
			"args":             {value: "[--further=1]", has: "- --further=1"},
			"resources":        {value: "{limits: {memory: 3Gi}}", has: "memory: 3Gi"},
			"tolerations":      {value: "[{key: only, operator: Exists}]", has: "tolerations:\n      - key: only"},
			"logLevel":         {value: "debug", has: "- --debug"},
			"template":         {value: "{metadata: {annotations: {scrape: mine}}}", has: "scrape: mine"},
		} {
			c.with = with
			cases["parts."+part+"."+name] = c
		}
		if part != "node" {
			cases["parts."+part+".progressDeadlineSeconds"] = valueCase{value: "77", has: "progressDeadlineSeconds: 77", with: with}
		}
	}
	return cases
}

// A value that changes nothing is a promise that nobody keeps.
func TestEveryValueHasAnEffect(t *testing.T) {
	t.Parallel()
	cases := valueCases()
	if diff := cmp.Diff(schemaValues(t), slices.Sorted(maps.Keys(cases))); diff != "" {
		t.Errorf("values with a test: -schema +test\n%s", diff)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var value any
			values := map[string]any{}
			if err := yaml.Unmarshal([]byte(tc.value), &value); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(tc.with), &values); err != nil {
				t.Fatal(err)
			}
			before, err := render(t, values)
			if err != nil && tc.hasNot != "" {
				t.Fatal(err)
			}
			set(values, strings.Split(name, "."), value)
			after, err := render(t, values)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(after, tc.has) || tc.has != "" && strings.Contains(before, tc.has) {
				t.Errorf("the change must add %q: it is there before: %v, after: %v", tc.has, strings.Contains(before, tc.has), strings.Contains(after, tc.has))
			}
			if tc.hasNot != "" && (!strings.Contains(before, tc.hasNot) || strings.Contains(after, tc.hasNot)) {
				t.Errorf("the change must remove %q: it is there before: %v, after: %v", tc.hasNot, strings.Contains(before, tc.hasNot), strings.Contains(after, tc.hasNot))
			}
		})
	}
}

// set sets the value below keys.
func set(values map[string]any, keys []string, value any) {
	for _, key := range keys[:len(keys)-1] {
		below, ok := values[key].(map[string]any)
		if !ok {
			below = map[string]any{}
			values[key] = below
		}
		values = below
	}
	values[keys[len(keys)-1]] = value
}

// schemaValues returns the paths of all values that the schema has.
func schemaValues(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(path(t, "charts", "patchbay", "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	var paths []string
	var walk func(schema map[string]any, path string)
	walk = func(schema map[string]any, path string) {
		properties, ok := schema["properties"].(map[string]any)
		if !ok {
			paths = append(paths, path)
		}
		for name, below := range properties {
			walk(mapOf(t, below), strings.TrimPrefix(path+"."+name, "."))
		}
	}
	walk(schema, "")
	paths = slices.DeleteFunc(paths, func(path string) bool { return path == "global" }) // Helm's own
	slices.Sort(paths)
	return paths
}

// values.yaml is what users read: it has every value, as a default or as an example in a comment.
func TestValuesFileIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(path(t, "charts", "patchbay", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	for _, value := range schemaValues(t) {
		keys := strings.Split(value, ".")
		var found any = values
		for _, key := range keys {
			below, _ := found.(map[string]any)
			found = below[key]
		}
		if found == nil && !strings.Contains(string(text), "# "+keys[len(keys)-1]+": ") && keys[1] != "placementAgent" {
			t.Errorf("values.yaml must have %s", value)
		}
	}
}

// The rights are for the account that the template has.
func TestRightsFollowTheAccount(t *testing.T) {
	t.Parallel()
	var values map[string]any
	text := `{parts: {controller: {template: {spec: {serviceAccountName: mine}}}}}`
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	bindings := 0
	for name, o := range mustRender(t, values) {
		subjects, _ := o["subjects"].([]any)
		for _, s := range subjects {
			bindings++
			want := "mine"
			if strings.HasSuffix(name, "/patchbayd") {
				want = "patchbayd"
			}
			if got := field(t, s, "name"); got != want {
				t.Errorf("%s: binds %v, want %s", name, got, want)
			}
		}
	}
	if bindings < 5 {
		t.Errorf("got %d subjects", bindings)
	}
}
