// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The context has the hub's credentials and a path at the hub, and the current context stays.
func TestContext(t *testing.T) {
	t.Parallel()
	const root = "https://hub:6443/apis/debug.placement.patchbay.io/v1alpha1"
	cases := map[string]struct {
		reason       string
		args         []string
		server, want string
	}{
		"All":       {reason: "without a namespace all are reached", args: []string{"east"}, server: root + "/clusters/east/proxy"},
		"Namespace": {reason: "rights in one namespace are enough for its path", args: []string{"east", "--namespace=web"}, server: root + "/namespaces/web/clusters/east/proxy"},
		"Context":   {reason: "the flag selects the hub", args: []string{"east", "--context=hub"}, server: root + "/clusters/east/proxy"},
		"Missing":   {reason: "the message names the context", args: []string{"east", "--context=none"}, want: `context "none" must exist`},
		"Name":      {reason: "the path contains the name", args: []string{"a/b"}, want: "must be the name of a Cluster"},
		"Twice":     {reason: "a cluster behind a hub is no hub", args: []string{"east", "--context=hub/west"}, want: "must be the hub's"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "config")
			before := clientcmdapi.NewConfig()
			before.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://hub:6443/", CertificateAuthorityData: []byte("PEM")}
			before.Clusters["hub/west"] = &clientcmdapi.Cluster{Server: root + "/clusters/west/proxy"}
			before.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: "secret"}
			before.Contexts["hub"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "me", Namespace: "shop"}
			before.Contexts["hub/west"] = &clientcmdapi.Context{Cluster: "hub/west", AuthInfo: "me"}
			before.CurrentContext = "hub"
			if err := clientcmd.WriteToFile(*before, file); err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err := Run(t.Context(), append([]string{"context", "--kubeconfig=" + file}, tc.args...), &out, &out)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			after, err := clientcmd.LoadFromFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, x := after.Clusters["hub/east"], after.Contexts["hub/east"]
			if c == nil || x == nil || c.Server != tc.server || string(c.CertificateAuthorityData) != "PEM" || x.AuthInfo != "me" || after.CurrentContext != "hub" {
				t.Errorf("%s: got %+v, %+v, current context %s", tc.reason, c, x, after.CurrentContext)
			}
		})
	}
}
