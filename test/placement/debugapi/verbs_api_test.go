// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package debugapi

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/internal/kubectl"
)

// The verbs take objects of the hub, and find cluster and Pod.
func (w *world) testVerbs(t *testing.T) {
	t.Helper()
	for _, o := range []client.Object{binding("web", "ann-view", "patchbay-view", "ann"), binding("web", "bob-view", "patchbay-view", "bob")} {
		if err := w.hub.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "ann may read Assignments", func() error {
		_, err := w.plugin(t, "ann", "get", "pods", "configmap/placed")
		return err
	})
	cases := map[string]struct {
		reason, who string
		args        []string
		want        []string
		fails       bool
	}{
		"Pods":       {reason: "the Pods of the object, and no others", who: "ann", args: []string{"get", "pods", "configmap/placed"}, want: []string{"CLUSTER", "east      pod "}},
		"Wide":       {reason: "more columns", who: "ann", args: []string{"get", "pods", "configmap/placed", "-o", "wide"}, want: []string{"NODE"}},
		"NamedPod":   {reason: "a Pod that the hub does not know", who: "ann", args: []string{"get", "pods", "pod/db", "--in=east"}, want: []string{"east      db "}},
		"Logs":       {reason: "by the user's kubectl", who: "ann", args: []string{"logs", "configmap/placed", "--tail", "5"}, want: []string{"Pod pod in Cluster east (1 of 1 there)", "a line"}},
		"Format":     {reason: "another format", who: "ann", args: []string{"get", "pods", "configmap/placed", "-o", "json"}, fails: true, want: []string{"flag --output"}},
		"Elsewhere":  {reason: "a cluster that does not have it", who: "ann", args: []string{"logs", "configmap/placed", "--in=west"}, fails: true, want: []string{"must be a Cluster that has ConfigMap web/placed (east)"}},
		"Absent":     {reason: "an object that does not exist", who: "ann", args: []string{"logs", "configmap/none"}, fails: true, want: []string{"none"}},
		"UnknownPod": {reason: "a Pod of a cluster needs --in", who: "ann", args: []string{"logs", "db"}, fails: true, want: []string{"Pod web/db", "--in CLUSTER"}},
		"NoRead":     {reason: "root may not read Assignments", who: "root", args: []string{"logs", "configmap/placed"}, fails: true, want: []string{"role view in the namespace of the hub"}},
		"StrangePod": {reason: "a Pod that the hub has not placed", who: "ann", args: []string{"logs", "db", "--in=east"}, fails: true, want: []string{"exit code 1", "other Pods of the namespace"}},
		"Cluster":    {reason: "bob has no rights in the cluster", who: "bob", args: []string{"get", "pods", "configmap/placed"}, fails: true, want: []string{"the cluster forbids it", "--user=patchbay:NAME"}},
		"NoCluster":  {reason: "no such Cluster", who: "bob", args: []string{"logs", "pod/a", "--in=north"}, fails: true, want: []string{"the hub has no such Cluster"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := w.plugin(t, tc.who, tc.args...)
			if (err != nil) != tc.fails {
				t.Fatalf("%s: got %v: %s", tc.reason, err, out)
			}
			for _, want := range tc.want {
				if text := out + errors.Join(err, errors.New("")).Error(); !strings.Contains(text, want) {
					t.Errorf("%s: got %s, want it to contain %q", tc.reason, text, want)
				}
			}
		})
	}
}

// plugin runs `kubectl patchbay` as a user of the hub, and returns what it prints.
func (w *world) plugin(t *testing.T, who string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	var out bytes.Buffer
	args = append(args, "--kubeconfig="+w.kubeconfig, "--as="+who, "--namespace=web", "--cache-dir="+t.TempDir())
	err := kubectl.Run(ctx, args, &out, &out)
	return out.String(), err
}
