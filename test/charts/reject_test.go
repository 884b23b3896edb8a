// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package charts

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// rejection is a case of testdata/rejected.yaml.
type rejection struct {
	Reason string         `json:"reason"`
	Values map[string]any `json:"values"`
	Want   string         `json:"want"`
}

// What cannot work is rejected before it is in the cluster, with the words of the operator.
func TestRejections(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/rejected.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]rejection
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 20 {
		t.Fatalf("got %d cases", len(cases))
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := render(t, tc.Values)
			if err == nil {
				t.Fatalf("%s It must be rejected", tc.Reason)
			}
			// Helm writes the name of the template before the message, and an advice after it.
			_, got, _ := strings.Cut(err.Error(), "execution error at (")
			_, got, _ = strings.Cut(got, "): ")
			got, _, _ = strings.Cut(got, "\n\n")
			if diff := cmp.Diff(tc.Want, got+"\n"); diff != "" {
				t.Errorf("%s -want +got\n%s\n%v", tc.Reason, diff, err)
			}
		})
	}
}

// The rules of one value are in the schema, and Helm names the value.
func TestValuesThatAreRejected(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, values, want string }{
		"Unknown":    {"A value with a mistake must not be ignored.", `{replica: 1}`, "'replica'"},
		"Registry":   {"A scheme is no part of an image's name.", `{registry: "https://registry.example"}`, "at '/registry'"},
		"PullPolicy": {"The API server would reject it.", `{imagePullPolicy: Sometimes}`, "at '/imagePullPolicy'"},
		"Delegate":   {"The file is in one folder.", `{defaultDelegate: /etc/cni/net.d/10-calico.conflist}`, "at '/defaultDelegate'"},
		"NoEnding":   {"The runtime reads no such file.", `{defaultDelegate: 10-calico}`, "at '/defaultDelegate'"},
		"OwnFile":    {"Patchbay would wait for its own answer.", `{defaultDelegate: 00-patchbay.conflist}`, "at '/defaultDelegate'"},
		"LogLevel":   {"Programs have two levels.", `{parts: {node: {logLevel: trace}}}`, "at '/parts/node/logLevel'"},
		"Percentage": {"The field is a number or a percentage.", `{parts: {node: {updateStrategy: {maxUnavailable: some}}}}`, "at '/parts/node/updateStrategy/maxUnavailable'"},
		"Zero":       {"No daemon could be replaced.", `{parts: {node: {updateStrategy: {maxUnavailable: 0}}}}`, "at '/parts/node/updateStrategy/maxUnavailable'"},
		"Replicas":   {"Somebody must answer the API server.", `{parts: {controller: {replicas: 0}}}`, "at '/parts/controller/replicas'"},
		"Cluster":    {"It is the name of an object.", `{parts: {placementAgent: {enabled: true, cluster: East}}}`, "at '/parts/placementAgent/cluster'"},
		"Digest":     {"The API server would accept a wrong one, and no node could pull it.", `{parts: {node: {image: {digest: 1234}}}}`, "at '/parts/node/image/digest'"},
		"Args":       {"Programs have no arguments but flags.", `{parts: {node: {args: [debug]}}}`, "at '/parts/node/args/0'"},
		"Folder":     {"A folder of the node has an absolute path.", `{parts: {node: {cniBinDir: bin}}}`, "at '/parts/node/cniBinDir'"},
		"Deadline":   {"A DaemonSet has no deadline.", `{parts: {node: {progressDeadlineSeconds: 60}}}`, "progressDeadlineSeconds"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var values map[string]any
			if err := yaml.Unmarshal([]byte(tc.values), &values); err != nil {
				t.Fatal(err)
			}
			if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s got %v, want it to contain %q", tc.reason, err, tc.want)
			}
		})
	}
}
