// SPDX-License-Identifier: Apache-2.0

package debugpath

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// onlyWeb is a cluster in whose namespace web the hub has placed objects.
func onlyWeb(p Placed) error {
	if p.Namespace != "web" {
		return errors.New("nothing is placed in " + p.Namespace)
	}
	return nil
}

func TestCheck(t *testing.T) {
	t.Parallel()
	const web = "/api/v1/namespaces/web/"
	cases := map[string]struct {
		reason               string
		method, path, within string
		want                 string // part of the error; "" for none
	}{
		"List":             {"objects of a placed namespace", "GET", web + "pods", "", ""},
		"Head":             {"a HEAD reads less than a GET", "HEAD", web + "pods", "", ""},
		"Within":           {"the path is for this namespace", "GET", web + "pods", "web", ""},
		"Group":            {"kinds of other groups", "GET", "/apis/apps/v1/namespaces/web/deployments/web", "web", ""},
		"Metrics":          {"kubectl top pods", "GET", "/apis/metrics.k8s.io/v1beta1/namespaces/web/pods", "web", ""},
		"Logs":             {"kubectl logs", "GET", web + "pods/a/log", "web", ""},
		"Exec":             {"kubectl exec over SPDY", "POST", web + "pods/a/exec", "web", ""},
		"PortForward":      {"kubectl port-forward", "POST", web + "pods/a/portforward", "web", ""},
		"Debug":            {"an ephemeral container reads any Secret", "PATCH", web + "pods/a/ephemeralcontainers", "web", "change the object at the hub"},
		"DebugByPut":       {"the same by another method", "PUT", web + "pods/a/ephemeralcontainers", "", "change the object at the hub"},
		"DebugByPost":      {"the same by another method", "POST", web + "pods/a/ephemeralcontainers", "", "change the object at the hub"},
		"Namespace":        {"the Namespace itself", "GET", "/api/v1/namespaces/web", "web", ""},
		"Nodes":            {"kubectl top nodes and k9s", "GET", "/api/v1/nodes", "", ""},
		"CanI":             {"kubectl auth can-i", "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "web", ""},
		"API":              {"discovery", "GET", "/api", "web", ""},
		"Versions":         {"discovery", "GET", "/apis/apps/v1", "web", ""},
		"OpenAPI":          {"kubectl explain", "GET", "/openapi/v3/apis/apps/v1", "web", ""},
		"Version":          {"kubectl version", "GET", "/version", "web", ""},
		"TrailingSlash":    {"client-go sends one", "GET", "/apis/", "web", ""},
		"Other":            {"nothing is placed there", "GET", "/api/v1/namespaces/default/pods", "", "nothing is placed"},
		"OutsideWithin":    {"the path is for another namespace", "GET", web + "pods", "shop", "namespace must be shop"},
		"OtherNamespace":   {"a Namespace where nothing is placed", "GET", "/api/v1/namespaces/default", "", "nothing is placed"},
		"AllNamespaces":    {"a list of all has those of others", "GET", "/api/v1/pods", "", "must be in a namespace"},
		"Namespaces":       {"names of others' namespaces", "GET", "/api/v1/namespaces", "", "must be in a namespace"},
		"NodesWithin":      {"nodes are not in the namespace", "GET", "/api/v1/nodes", "web", "must be in namespace web"},
		"NodeProxy":        {"kubelet's API is root on the node", "GET", "/api/v1/nodes/a/proxy/run", "", "must be in a namespace"},
		"Secrets":          {"Secrets never", "GET", web + "secrets", "", "secrets and tokens"},
		"Secret":           {"Secrets never", "GET", web + "secrets/a", "web", "secrets and tokens"},
		"SecretStatus":     {"no part of a Secret", "GET", web + "secrets/a/status", "web", "secrets and tokens"},
		"AllSecrets":       {"Secrets never", "GET", "/api/v1/secrets", "", "secrets and tokens"},
		"OtherSecrets":     {"a kind of this name in another group", "GET", "/apis/example.com/v1/namespaces/web/secrets", "", "secrets and tokens"},
		"Token":            {"a token is a credential", "POST", web + "serviceaccounts/default/token", "", "secrets and tokens"},
		"OldWatch":         {"obsolete", "GET", "/api/v1/watch/namespaces/web/secrets", "", "obsolete prefix"},
		"OldProxy":         {"obsolete", "GET", "/api/v1/proxy/nodes/a", "", "obsolete prefix"},
		"Create":           {"objects are made at the hub", "POST", web + "pods", "", "change the object at the hub"},
		"Delete":           {"objects are deleted at the hub", "DELETE", web + "pods/a", "", "change the object at the hub"},
		"Evict":            {"an eviction deletes", "POST", web + "pods/a/eviction", "", "change the object at the hub"},
		"ExecElsewhere":    {"only Pods of the core group have it", "POST", "/apis/example.com/v1/namespaces/web/pods/a/exec", "", "change the object at the hub"},
		"WriteDiscovery":   {"discovery is read", "POST", "/apis/apps/v1", "", "must be GET"},
		"Metrics2":         {"metrics of the API server are not placed objects", "GET", "/metrics", "", "must begin with"},
		"Root":             {"nothing else is needed", "GET", "/", "", "must begin with"},
		"Dots":             {"an API server may clean the path", "GET", web + "pods/../secrets", "", "empty segments"},
		"Dot":              {"the same", "GET", web + "./secrets", "", "empty segments"},
		"DoubleSlash":      {"the same", "GET", "/api/v1/namespaces/web//secrets", "", "empty segments"},
		"LeadingSlashes":   {"the same", "GET", "//api/v1/namespaces/web/secrets", "", "empty segments"},
		"Escape":           {"a dot that is decoded later", "GET", web + "%2e%2e/secrets", "", "no escapes"},
		"EscapedLetter":    {"secrets", "GET", web + "%73ecrets", "", "no escapes"},
		"Backslash":        {"some servers take it for a slash", "GET", web + `pods\..\secrets`, "", "no escapes"},
		"Semicolon":        {"some servers cut parameters off", "GET", web + "pods;a=b", "", "no escapes"},
		"Null":             {"control characters", "GET", web + "pods\x00", "", "no escapes"},
		"NotASCII":         {"names are ASCII", "GET", web + "ſecrets", "", "no escapes"},
		"Relative":         {"a path begins with a slash", "GET", "api/v1", "", "must begin with /"},
		"Long":             {"names are shorter", "GET", web + strings.Repeat("a", maxLength), "", "at most"},
		"Upper":            {"an extension may not care for case", "GET", web + "Secrets", "", "secrets and tokens"},
		"UpperNamespaces":  {"it is a cluster-scoped kind to an API server", "GET", "/api/v1/Namespaces/web/secrets", "", "must be in a namespace"},
		"NamespaceStatus":  {"a subresource of the Namespace", "GET", "/api/v1/namespaces/web/status", "web", ""},
		"ServiceProxy":     {"a Service's own path", "GET", web + "services/http:a:80/proxy/b/c", "web", ""},
		"PodProxy":         {"a Pod's own path", "GET", web + "pods/a:80/proxy/b", "web", ""},
		"HubProxy":         {"the cluster is a hub, which checks again", "GET", "/apis/debug.placement.patchbay.io/v1alpha1/namespaces/web/clusters/a/proxy/api/v1/namespaces/web/pods", "web", ""},
		"HubAttach":        {"nothing follows the agent's path", "GET", "/apis/debug.placement.patchbay.io/v1alpha1/namespaces/web/clusters/a/attach/b", "web", "must end after clusters"},
		"OtherProxy":       {"an extension may forward it to an API server", "GET", "/apis/example.com/v1/namespaces/web/clusters/a/proxy/api/v1/namespaces/web/secrets", "web", "must end after clusters"},
		"OtherProxyRoot":   {"the same without a path", "GET", "/apis/example.com/v1/namespaces/web/pods/a/proxy", "web", "must end after pods"},
		"OtherNested":      {"the same by another name", "GET", "/apis/example.com/v1/namespaces/web/widgets/a/tunnel/api/v1/secrets", "web", "must end after widgets"},
		"PodNested":        {"only proxy forwards", "GET", web + "pods/a/log/b", "web", "must end after pods"},
		"FinalizeTheSpace": {"it deletes the Namespace", "PUT", "/api/v1/namespaces/web/finalize", "", "change the object at the hub"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Parse(tc.method, tc.path)
			if err == nil {
				err = r.Check(tc.within, onlyWeb)
			}
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: %s %s: got %v, want %q", tc.reason, tc.method, tc.path, err, tc.want)
			}
		})
	}
}

func TestNeedsCreate(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"/api/v1/namespaces/web/pods/a/exec": true, "/api/v1/namespaces/web/pods/a/attach": true, "/api/v1/namespaces/web/pods/a/portforward": true,
		"/api/v1/namespaces/web/services/a/proxy/b": true, "/api/v1/namespaces/web/pods/a/log": false, "/api/v1/namespaces/web/pods": false,
	} {
		if r, err := Parse(http.MethodGet, path); err != nil || r.NeedsCreate() != want {
			t.Errorf("%s: got %v, %v, want %v", path, r.NeedsCreate(), err, want)
		}
	}
}

// What acts on a Pod, or reads its output, names it.
func TestPlaced(t *testing.T) {
	t.Parallel()
	const web = "/api/v1/namespaces/web/"
	for path, want := range map[string]Placed{
		web + "pods":                              {Namespace: "web"},
		web + "pods/a":                            {Namespace: "web"},
		"/api/v1/namespaces/web":                  {Namespace: "web"},
		"/api/v1/namespaces/web/status":           {Namespace: "web"},
		web + "pods/a/log":                        {Namespace: "web", Pod: "a"},
		web + "pods/a/exec":                       {Namespace: "web", Pod: "a"},
		web + "pods/a/attach":                     {Namespace: "web", Pod: "a"},
		web + "pods/a/portforward":                {Namespace: "web", Pod: "a"},
		web + "pods/a/proxy/metrics":              {Namespace: "web", Pod: "a"},
		web + "pods/https:a:443/proxy/":           {Namespace: "web", Pod: "a"},
		web + "services/a:80/proxy/b":             {Namespace: "web", Service: "a"},
		web + "services/http:a:/proxy/b":          {Namespace: "web", Service: "a"},
		web + "services/a":                        {Namespace: "web"},
		"/apis/apps/v1/namespaces/web/pods/a/log": {Namespace: "web"},
	} {
		var got Placed
		r, err := Parse(http.MethodGet, path)
		if err == nil {
			r.Method = http.MethodPost
			if r.Subresource != "exec" && r.Subresource != "attach" && r.Subresource != "portforward" {
				r.Method = http.MethodGet
			}
			err = r.Check("", func(p Placed) error { got = p; return nil })
		}
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", path, got, err, want)
		}
	}
}

// Whatever passes names no Secret, and no namespace but web.
func FuzzCheck(f *testing.F) {
	for _, path := range []string{"/api/v1/namespaces/web/pods", "/apis/apps/v1/namespaces/a/b", "/api/v1/secrets", "/version"} {
		f.Add("GET", path)
	}
	f.Fuzz(func(t *testing.T, method, path string) {
		r, err := Parse(method, path)
		if err != nil || r.Check("web", onlyWeb) != nil {
			return
		}
		clean := "/" + strings.Trim(path, "/") + "/"
		if strings.Contains(clean, "/../") || strings.Contains(clean, "//") && clean != "//" || strings.Contains(path, "%") {
			t.Errorf("%s %q has two meanings", method, path)
		}
		if strings.Count(clean, "/") > 9 && r.Subresource != "proxy" && !r.discovery { // /apis/G/V/namespaces/NS/KIND/NAME/SUB/
			t.Errorf("%s %q has a path below a subresource", method, path)
		}
		if strings.EqualFold(r.Resource, "secrets") || r.Resource != "" && !r.isSelfReview() && r.namespace() != "web" {
			t.Errorf("%s %q passes as %+v", method, path, r)
		}
	})
}
