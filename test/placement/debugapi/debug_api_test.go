// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package debugapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/test/source"
)

// People reach a cluster through the hub as far as hub and cluster allow it.
func TestDebugThroughTheHub(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	t.Run("Walls", w.testWalls)
	t.Run("Kubectl", w.testKubectl)
	t.Run("Verbs", w.testVerbs)
	t.Run("Watch", w.testWatch)
	t.Run("Exec", w.testExec)
	t.Run("Attach", w.testAttach)
	t.Run("Discovery", w.testDiscovery)
	t.Run("Reconnect", w.testReconnect)
	t.Run("Faults", w.testFaults)
	t.Run("CutWhileAttaching", w.testCutWhileAttaching)
	t.Run("NotAccepted", w.testNotAccepted)
}

func (w *world) testWalls(t *testing.T) {
	t.Helper()
	const pods, all = "/api/v1/namespaces/web/pods", "/api/v1/pods"
	cases := map[string]struct {
		reason            string
		who, method, path string
		code              int
		message           string
	}{
		"Namespace":         {"ann has rights in web, at the hub and in the cluster", "ann", "GET", inWeb + pods, 200, `"name":"pod"`},
		"Version":           {"kubectl reads discovery documents first", "ann", "GET", inWeb + "/version", 200, "gitVersion"},
		"All":               {"ann has no rights in all namespaces of the hub", "ann", "GET", inAll + pods, 403, "cannot get resource"},
		"OtherNamespace":    {"ann's path is for web", "ann", "GET", inWeb + "/api/v1/namespaces/default/pods", 403, "namespace must be web"},
		"AllNamespaces":     {"a list of all namespaces has those of others", "root", "GET", inAll + all, 403, "must be in a namespace"},
		"NotPlaced":         {"the hub has placed no object in default", "root", "GET", inAll + "/api/v1/namespaces/default/pods", 403, "object that the hub has placed"},
		"System":            {"the agent's own namespace has its credential", "root", "GET", inAll + "/api/v1/namespaces/patchbay-system/configmaps", 403, "object that the hub has placed"},
		"Cluster":           {"the cluster gives bob no rights", "bob", "GET", inAll + pods, 403, `User \"patchbay:bob\" cannot list`},
		"Secrets":           {"no Secret passes, even for the cluster's admin", "root", "GET", inAll + "/api/v1/namespaces/web/secrets", 403, "secrets and tokens"},
		"Secret":            {"no Secret passes", "root", "GET", inAll + "/api/v1/namespaces/web/secrets/secret", 403, "secrets and tokens"},
		"SecretWatch":       {"a watch has the Secrets, too", "root", "GET", inAll + "/api/v1/namespaces/web/secrets?watch=true", 403, "secrets and tokens"},
		"OldSecretWatch":    {"an obsolete form of it", "root", "GET", inAll + "/api/v1/watch/namespaces/web/secrets", 403, "obsolete prefix"},
		"SecretsEverywhere": {"without a namespace", "root", "GET", inAll + "/api/v1/secrets", 403, "secrets and tokens"},
		"Token":             {"a token is a credential", "root", "POST", inAll + "/api/v1/namespaces/web/serviceaccounts/default/token", 403, "secrets and tokens"},
		"Debug":             {"an ephemeral container reads any Secret", "root", "PATCH", inAll + pods + "/pod/ephemeralcontainers", 403, ""},
		"DebugByPut":        {"the same by another method", "root", "PUT", inAll + pods + "/pod/ephemeralcontainers", 403, ""},
		"OtherExtension":    {"it may forward the path", "root", "GET", inAll + "/apis/example.com/v1/namespaces/web/clusters/a/proxy/api/v1/secrets", 403, "must end after"},
		"StrangersList":     {"RBAC of the cluster decides on lists", "root", "GET", inAll + pods, 200, `"name":"db"`},
		"StrangersLog":      {"the hub has not placed db", "root", "GET", inAll + pods + "/db/log", 403, "other Pods of the namespace"},
		"StrangersPort":     {"the hub has not placed db", "root", "GET", inAll + pods + "/db:80/proxy/", 403, "other Pods of the namespace"},
		"StrangersExec":     {"the hub has not placed db", "root", "POST", inAll + pods + "/db/exec?command=sh", 403, "other Pods of the namespace"},
		"StrangersForward":  {"the hub has not placed db", "root", "POST", inAll + pods + "/db/portforward", 403, "other Pods of the namespace"},
		"StrangersAttach":   {"the hub has not placed db", "root", "POST", inAll + pods + "/db/attach", 403, "other Pods of the namespace"},
		"StrangersService":  {"the hub has not placed db", "root", "GET", inAll + "/api/v1/namespaces/web/services/db:80/proxy/", 403, "must be an object that the hub has placed"},
		"Dots":              {"an API server may clean the path", "root", "GET", inAll + "/api/v1/namespaces/web/pods/../secrets", 403, ""},
		"EncodedDots":       {"the same, encoded", "root", "GET", inAll + "/api/v1/namespaces/web/pods/%2e%2e/secrets", 403, ""},
		"EncodedSlash":      {"a slash that is decoded later", "root", "GET", inAll + "/api/v1/namespaces/web%2Fsecrets", 403, ""},
		"Case":              {"kinds are in lower case", "root", "GET", inAll + "/api/v1/namespaces/web/Secrets", 403, "secrets and tokens"},
		"Write":             {"what is placed is changed at the hub", "root", "DELETE", inAll + "/api/v1/namespaces/web/configmaps/placed", 403, ""},
		"Node":              {"exec into nodes is not part of it", "root", "GET", inAll + "/api/v1/nodes/node/proxy/pods", 403, "must be in a namespace"},
		"Nodes":             {"the cluster's admin may read nodes", "root", "GET", inAll + "/api/v1/nodes", 200, `"name":"node"`},
		"Stranger":          {"eve has no rights at the hub", "eve", "GET", inWeb + pods, 403, "cannot get resource"},
		"NoCluster":         {"there is no such Cluster", "root", "GET", strings.Replace(inAll, "east", "north", 1) + pods, 404, "north"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			header := http.Header{"X-Remote-User": {"root"}, "X-Patchbay-User": {"root"}, "X-Patchbay-Namespace": {"web"}}
			response, err := w.do(t, tc.who, tc.method, tc.path, header)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			if response.StatusCode != tc.code || !strings.Contains(string(text), tc.message) {
				t.Errorf("%s: got %s %s, want %d with %q", tc.reason, response.Status, text, tc.code, tc.message)
			}
		})
	}
}

// kubectl works with the path as the server's address.
func (w *world) testKubectl(t *testing.T) {
	t.Helper()
	for _, tc := range []struct {
		reason, want string
		args         []string
	}{
		{"a table of objects", "placed", []string{"get", "configmaps"}},
		{"logs", "a line", []string{"logs", "pod"}},
		{"a server-side question", "yes", []string{"auth", "can-i", "create", "pods/exec"}},
	} {
		out, err := w.kubectl(t, append([]string{"--as=ann", "--namespace=web", "--server=" + w.hubConfig.Host + inWeb}, tc.args...)...)
		if err != nil || !strings.Contains(out, tc.want) {
			t.Errorf("%s: kubectl %v: %v: %s", tc.reason, tc.args, err, out)
		}
	}
}

func (w *world) kubectl(t *testing.T, args ...string) (string, error) {
	t.Helper()
	bin, err := source.Path("bin", "kubernetes", "kubectl")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.kubeconfig, "HOME="+t.TempDir())
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A watch passes each event on at once.
func (w *world) testWatch(t *testing.T) {
	t.Helper()
	response, err := w.do(t, "ann", "GET", inWeb+"/api/v1/namespaces/web/configmaps?watch=true&resourceVersion=0&fieldSelector=metadata.name=later", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	w.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "later"}})
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || !strings.Contains(line, `"ADDED"`) {
		t.Errorf("got %q, %v", line, err)
	}
}

// An upgraded connection reaches the kubelet, and only with the verb create at the hub.
func (w *world) testExec(t *testing.T) {
	t.Helper()
	const path = "/api/v1/namespaces/web/pods/pod/exec?command=sh&stdin=true&stdout=true"
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}
	response, err := w.do(t, "ann", "POST", inWeb+path, upgrade)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	conn, ok := response.Body.(io.ReadWriter)
	if !ok {
		text, _ := io.ReadAll(response.Body)
		t.Fatalf("got %s %s", response.Status, text)
	}
	got := make([]byte, 5)
	if _, err := io.WriteString(conn, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}

	reader := role("web", "reader", "get")
	if err := errors.Join(w.hub.Create(t.Context(), reader), w.hub.Create(t.Context(), roleBinding("web", "reader", "carl")),
		w.cluster.Create(t.Context(), binding("web", "carl", "cluster-admin", "patchbay:carl"))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "carl may read", func() error {
		return w.get(t, "carl", inWeb+"/api/v1/namespaces/web/pods/pod")
	})
	upgrade.Set("Upgrade", "websocket")
	refused, err := w.do(t, "carl", "GET", inWeb+path, upgrade)
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Body.Close()
	if text, _ := io.ReadAll(refused.Body); refused.StatusCode != http.StatusForbidden || !strings.Contains(string(text), "verb create") {
		t.Errorf("exec over a WebSocket with the verb get: got %s %s", refused.Status, text)
	}
}

// Only the agent of a cluster attaches for it, whatever rights others have.
func (w *world) testAttach(t *testing.T) {
	t.Helper()
	path := strings.TrimSuffix(inAll, "proxy") + "attach"
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"patchbay-tunnel-v1"}}
	for who, reason := range map[string]string{
		"":                                  "the hub's admin is no agent",
		"root":                              "a person is no agent",
		v1alpha1.ClusterUserPrefix + "west": "the agent of another cluster",
		"system:serviceaccount:cluster-west:agent": "the same with a token",
		"system:serviceaccount:cluster-east:other": "another account in the namespace",
		"system:serviceaccount:web:agent":          "a ServiceAccount of this name elsewhere",
	} {
		response, err := w.do(t, who, "POST", path, upgrade)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: got %s", reason, response.Status)
		}
		_ = response.Body.Close()
	}
	_, replica, _ := strings.Cut(w.agentLog.String(), `"replica":"`)
	replica, _, _ = strings.Cut(replica, `"`)
	upgrade.Set("X-Patchbay-Attached", replica)
	response, err := w.do(t, v1alpha1.ClusterUserPrefix+"east", "POST", path, upgrade)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusConflict || response.Header.Get("X-Patchbay-Replica") != replica {
		t.Errorf("an agent that is attached to the replica %q already: got %s %v %s", replica, response.Status, response.Header, text)
	}
}

// The API disturbs neither kubectl's discovery nor the deletion of namespaces.
func (w *world) testDiscovery(t *testing.T) {
	t.Helper()
	if out, err := w.kubectl(t, "api-resources"); err != nil || strings.Contains(out, v1alpha1.DebugGroup) {
		t.Errorf("kubectl api-resources: %v: %s", err, out)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}
	if err := errors.Join(w.hub.Create(t.Context(), ns), w.hub.Delete(t.Context(), ns)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the namespace is gone", func() error {
		if err := w.hub.Get(t.Context(), client.ObjectKey{Name: "gone"}, ns); !apierrors.IsNotFound(err) {
			return errors.Join(err, errors.New("the namespace exists"))
		}
		return nil
	})
}

// The agent attaches again after its connections were cut.
func (w *world) testReconnect(t *testing.T) {
	t.Helper()
	open, err := w.do(t, "ann", "GET", inWeb+"/api/v1/namespaces/web/pods/pod/log?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Body.Close()
	w.link.Cut()
	_, _ = io.ReadAll(open.Body) // ends
	response, err := w.do(t, "ann", "GET", inWeb+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" {
		t.Errorf("without a connection: got %s, Retry-After %q", response.Status, response.Header.Get("Retry-After"))
	}
	w.link.Heal()
	eventually(t, "the agent is attached again", func() error {
		return w.get(t, "ann", inWeb+"/version")
	})
}

// A Cluster that is not accepted any more cannot be reached, and its connection ends.
func (w *world) testNotAccepted(t *testing.T) {
	t.Helper()
	open, err := w.do(t, "ann", "GET", inWeb+"/api/v1/namespaces/web/pods/pod/log?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Body.Close()
	accept := func(accepted bool) {
		c := &v1alpha1.Cluster{}
		if err := w.hub.Get(t.Context(), client.ObjectKey{Name: "east"}, c); err != nil {
			t.Fatal(err)
		}
		c.Spec.Accepted = accepted
		if err := w.hub.Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	accept(false)
	_, _ = io.ReadAll(open.Body) // ends
	if err := w.get(t, "ann", inWeb+"/version"); err == nil || !strings.Contains(err.Error(), "spec.accepted") {
		t.Errorf("got %v", err)
	}
	accept(true)
	eventually(t, "the agent is attached again", func() error {
		return w.get(t, "ann", inWeb+"/version")
	})
}
