// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
)

// fakeClusters answers as a hub whose clusters have a Deployment web with the UID "web", its ReplicaSet with the UID
// "rs", and Pods.
func fakeClusters(t *testing.T, pods map[string][]string) *rest.Config {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		below, _ := strings.CutPrefix(r.URL.Path, debugRoot+"/namespaces/shop/clusters/")
		cluster, path, _ := strings.Cut(below, "/proxy")
		items, ok := pods[cluster]
		switch {
		case !ok:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"ServiceUnavailable","code":503,"message":"its agent is not connected"}`)
		case path == "/apis/apps/v1/namespaces/shop/deployments/web":
			fmt.Fprint(w, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"uid":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}}}}`)
		case path == "/apis/apps/v1/namespaces/shop/replicasets" && r.URL.Query().Get("labelSelector") == "app=web":
			fmt.Fprint(w, `{"items":[{"metadata":{"name":"web-1","uid":"rs","ownerReferences":[{"controller":true,"uid":"web"}]}},{"metadata":{"uid":"other"}}]}`)
		case path == "/api/v1/namespaces/shop/pods" && r.URL.Query().Get("labelSelector") == "app=web":
			fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(items, ","))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}
}

func podOf(owner, name, ready string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"ownerReferences":[{"controller":true,"uid":%q}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":%q}]}}`, name, owner, ready)
}

// A verb uses a ready Pod of the first cluster that has one.
func TestChoosePod(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		pods     map[string][]string // by cluster; others are not reached
		clusters []string
		want     string // CLUSTER/POD, or a part of the error
		errOut   string
	}{
		"ByName":    {reason: "the choice is the same each time", pods: map[string][]string{"east": {podOf("rs", "b", "True"), podOf("rs", "a", "True")}}, clusters: []string{"east"}, want: "east/a", errOut: "1 of 2"},
		"Ready":     {reason: "a ready Pod is better", pods: map[string][]string{"east": {podOf("rs", "a", "False"), podOf("rs", "b", "True")}}, clusters: []string{"east"}, want: "east/b"},
		"Next":      {reason: "another cluster has a ready Pod", pods: map[string][]string{"east": {podOf("rs", "a", "False")}, "west": {podOf("rs", "b", "True")}}, clusters: []string{"east", "west"}, want: "west/b"},
		"NoneReady": {reason: "a Pod that is not ready is better than none", pods: map[string][]string{"east": {}, "west": {podOf("rs", "b", "False")}}, clusters: []string{"east", "west"}, want: "west/b"},
		"Strangers": {reason: "another workload has the same labels", pods: map[string][]string{"east": {podOf("other", "a", "True"), podOf("rs", "b", "False")}}, clusters: []string{"east"}, want: "east/b"},
		"Away":      {reason: "a cluster that is not reached is named", pods: map[string][]string{"west": {podOf("rs", "b", "True")}}, clusters: []string{"east", "west"}, want: "west/b", errOut: "Cluster east: the hub does not reach it"},
		"AllAway":   {reason: "no cluster is reached", clusters: []string{"east"}, want: "the hub does not reach it"},
		"NoPod":     {reason: "the object has no Pods", pods: map[string][]string{"east": {}}, clusters: []string{"east"}, want: "Deployment shop/web has no Pod in Cluster east"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &debugObject{
				ref:      v1alpha1.ObjectReference{Group: "apps", Version: "v1", Kind: "Deployment", Resource: "deployments", Namespace: "shop", Name: "web"},
				clusters: tc.clusters, hub: fakeClusters(t, tc.pods),
			}
			var errOut bytes.Buffer
			p, err := d.choosePod(t.Context(), &errOut)
			got := fmt.Sprint(err)
			if err == nil {
				got = p.cluster + "/" + p.pod.Name
			}
			if !strings.Contains(got, tc.want) || !strings.Contains(errOut.String(), tc.errOut) {
				t.Errorf("%s: got %s, want %s; on standard error %q, want %q", tc.reason, got, tc.want, errOut.String(), tc.errOut)
			}
		})
	}
}
