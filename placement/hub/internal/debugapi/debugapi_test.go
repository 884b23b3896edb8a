// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/placement/internal/tunnel"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, path string
		want         target
		ok           bool
	}{
		"Proxy":     {"a path of the cluster", root + "/clusters/east/proxy/api/v1", target{"", "east", "proxy", "/api/v1"}, true},
		"Namespace": {"a path for a namespace", root + "/namespaces/web/clusters/east/proxy/api/v1", target{"web", "east", "proxy", "/api/v1"}, true},
		"Attach":    {"the agent's path", root + "/clusters/east/attach", target{"", "east", "attach", "/"}, true},
		"AttachIn":  {"the API server checks other rights", root + "/namespaces/web/clusters/east/attach", target{}, false},
		"AttachTo":  {"there is nothing below", root + "/clusters/east/attach/x", target{}, false},
		"None":      {"no cluster", root + "/clusters//proxy/api", target{}, false},
		"Upper":     {"no name of a cluster", root + "/clusters/East/proxy/api", target{}, false},
		"Escaped":   {"no name of a cluster", root + "/clusters/ea%2fst/proxy/api", target{}, false},
		"Dots":      {"no name of a namespace", root + "/namespaces/../clusters/east/proxy/api", target{}, false},
		"Watch":     {"the API server sees another verb", root + "/watch/clusters/east/proxy/api", target{}, false},
		"Object":    {"Clusters themselves are another API's", root + "/clusters/east", target{}, false},
		"Other":     {"no subresource of this API", root + "/clusters/east/exec/api", target{}, false},
		"Elsewhere": {"another API", "/api/v1/namespaces", target{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ok := parseTarget(tc.path); ok != tc.ok || ok && got != tc.want {
				t.Errorf("%s: got %+v, %v", tc.reason, got, ok)
			}
		})
	}
}

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	made := a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.cert = made.Leaf
	a.key, _ = made.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

func (a *authority) client(t *testing.T, name string) tls.Certificate {
	t.Helper()
	return a.sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func (a *authority) sign(t *testing.T, c *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	issuer, issuerKey := a.cert, a.key
	if issuer == nil {
		issuer, issuerKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, key.Public(), issuerKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) configMap() *corev1.ConfigMap {
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: frontProxyConfigMap}, Data: map[string]string{
		"requestheader-client-ca-file": string(text), "requestheader-allowed-names": `["front-proxy-client"]`,
		"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	}}
}

// testServer is the API with its own API server, whose RBAC is the function.
type testServer struct {
	*httptest.Server

	front   *frontProxy
	direct  client.Client
	handler *handler
	client  tls.Certificate // of the front proxy
}

func newTestServer(t *testing.T, a *authority, allows func(authorizationv1.SubjectAccessReviewSpec) bool) *testServer {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	direct := fake.NewClientBuilder().WithScheme(scheme).WithObjects(a.configMap(),
		&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: "1"}, Spec: v1alpha1.ClusterSpec{Accepted: true}},
		&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "2"}},
	).Build()
	kube := kubefake.NewClientset()
	kube.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		created, _ := action.(clienttesting.CreateAction)
		review, _ := created.GetObject().(*authorizationv1.SubjectAccessReview)
		review.Status.Allowed = allows(review.Spec)
		return true, review, nil
	})
	s := &testServer{front: &frontProxy{direct: direct}, direct: direct, client: a.client(t, "front-proxy-client")}
	if err := s.front.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.handler = &handler{replica: "r", frontProxy: s.front, access: &access{reviewer: newReviewer(kube.AuthorizationV1().SubjectAccessReviews()), cached: direct}, limits: newLimits(), reviewInterval: defaultReviewInterval}
	s.Server = httptest.NewUnstartedServer(s.handler)
	serving := (&authority{}).sign(t, &x509.Certificate{DNSNames: []string{"hub"}})
	s.TLS = s.front.configureTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &serving, nil })
	s.Config.ErrorLog = tunnel.SilentLog()
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// do sends a request with a client certificate.
func (s *testServer) do(t *testing.T, certificate *tls.Certificate, method, path string, header http.Header) (*http.Response, error) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(r.Header, header)
	return transport.RoundTrip(r)
}

func allowAll(authorizationv1.SubjectAccessReviewSpec) bool { return true }

// Only the front proxy is heard, also after its authority was replaced.
func TestFrontProxy(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	s := newTestServer(t, ca, allowAll)
	good, named, foreign := ca.client(t, "front-proxy-client"), ca.client(t, "other"), other.client(t, "front-proxy-client")
	ann := http.Header{"X-Remote-User": {"ann"}}
	ask := func(c *tls.Certificate, h http.Header) string {
		response, err := s.do(t, c, "GET", root, h)
		if err != nil {
			return "no connection"
		}
		defer response.Body.Close()
		return response.Status
	}
	cases := []struct {
		reason string
		cert   *tls.Certificate
		header http.Header
		want   string
	}{
		{"the front proxy is heard", &good, ann, "200 OK"},
		{"without a certificate there is no connection", nil, ann, "no connection"},
		{"of another authority there is no connection", &foreign, ann, "no connection"},
		{"another client of the authority is no front proxy", &named, ann, "401 Unauthorized"},
		{"the front proxy must name a user", &good, nil, "401 Unauthorized"},
	}
	for _, tc := range cases {
		if got := ask(tc.cert, tc.header); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
		}
	}
	if err := s.direct.Update(t.Context(), other.configMap()); err != nil {
		t.Fatal(err)
	}
	if err := s.front.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := ask(&good, ann); got != "no connection" {
		t.Errorf("the old authority: got %s", got)
	}
	if got := ask(&foreign, ann); got != "200 OK" {
		t.Errorf("the new authority: got %s", got)
	}
}

func TestParseFrontProxy(t *testing.T) {
	t.Parallel()
	data := newAuthority(t).configMap().Data
	for key, want := range map[string]string{
		"requestheader-client-ca-file": "--requestheader-client-ca-file", "requestheader-username-headers": "--requestheader-username-headers",
	} {
		without := map[string]string{}
		for k, v := range data {
			if k != key {
				without[k] = v
			}
		}
		if _, err := parseFrontProxy(without); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: got %v, want the flag", key, err)
		}
	}
	c, err := parseFrontProxy(data)
	if err != nil {
		t.Fatal(err)
	}
	u, err := c.userOf(http.Header{"X-Remote-User": {"ann"}, "X-Remote-Group": {"a", "b"}, "X-Remote-Extra-Example.com%2fkey": {"v"}})
	if err != nil || u.name != "ann" || fmt.Sprint(u.groups, u.extra) != "[a b] map[example.com/key:[v]]" {
		t.Errorf("got %+v, %v", u, err)
	}
}

// RBAC at the hub is asked for the path's namespace, and for create when the request acts on a Pod.
func TestReviews(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	proxy := ca.client(t, "front-proxy-client")
	s := newTestServer(t, ca, func(spec authorizationv1.SubjectAccessReviewSpec) bool {
		a := spec.ResourceAttributes
		allowed := a.Group == v1alpha1.DebugGroup && a.Resource == "clusters" && a.Name == "east" || a.Name == "west"
		switch spec.User {
		case "reader":
			return allowed && a.Verb == "get" && a.Subresource == "proxy"
		case "webber":
			return allowed && a.Namespace == "web"
		}
		return allowed && spec.User != "eve"
	})
	const pods, in = "/api/v1/namespaces/web/pods", root + "/namespaces/web/clusters/east/proxy"
	cases := map[string]struct {
		reason, user, method, path string
		upgrade                    string
		code                       int
		want                       string
	}{
		"Unattached":  {"the agent is not here", "ann", "GET", root + "/clusters/east/proxy" + pods, "", 503, "--debug-access"},
		"Namespace":   {"rights in the namespace are enough for its path", "webber", "GET", in + pods, "", 503, "--debug-access"},
		"All":         {"and not for the other one", "webber", "GET", root + "/clusters/east/proxy" + pods, "", 403, "verb get"},
		"Outside":     {"the path is for one namespace", "webber", "GET", in + "/api/v1/namespaces/shop/pods", "", 403, "must be web"},
		"NoRights":    {"no rights", "eve", "GET", in + pods, "", 403, "verb get"},
		"Read":        {"a reader reads", "reader", "GET", in + pods, "", 503, "--debug-access"},
		"Exec":        {"a reader does not exec over a WebSocket", "reader", "GET", in + pods + "/a/exec", "websocket", 403, "verb create"},
		"Forward":     {"a reader does not reach ports", "reader", "GET", in + pods + "/a/proxy/", "", 403, "verb create"},
		"Secrets":     {"Secrets never", "ann", "GET", in + "/api/v1/namespaces/web/secrets", "", 403, "secrets and tokens"},
		"NotAccepted": {"the Cluster is not accepted", "ann", "GET", root + "/clusters/west/proxy" + pods, "", 403, "spec.accepted"},
		"Missing":     {"not found is for those only who may reach it", "eve", "GET", root + "/clusters/north/proxy" + pods, "", 403, "verb get"},
		"NotFound":    {"another path", "ann", "GET", root + "/clusters/east", "", 404, "could not find"},
		"Attach":      {"a person is no agent", "ann", "POST", root + "/clusters/east/attach", tunnel.Protocol, 403, "must be the agent"},
		"AttachOther": {"another cluster's agent", v1alpha1.ClusterUserPrefix + "west", "POST", root + "/clusters/east/attach", tunnel.Protocol, 403, "must be the agent"},
		"AttachWrong": {"not an upgrade", v1alpha1.ClusterUserPrefix + "east", "POST", root + "/clusters/east/attach", "", 400, "Upgrade"},
		"AttachEarly": {"the Cluster is not accepted", v1alpha1.ClusterUserPrefix + "west", "POST", root + "/clusters/west/attach", tunnel.Protocol, 403, "spec.accepted"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := http.Header{"X-Remote-User": {tc.user}}
			if tc.upgrade != "" {
				header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{tc.upgrade}
			}
			response, err := s.do(t, &proxy, tc.method, tc.path, header)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, _ := io.ReadAll(response.Body)
			status := &metav1.Status{}
			if err := json.NewDecoder(bytes.NewReader(text)).Decode(status); err != nil || status.Kind != "Status" {
				t.Errorf("%s: kubectl needs a Status: got %s", tc.reason, text)
			}
			if response.StatusCode != tc.code || !strings.Contains(status.Message, tc.want) {
				t.Errorf("%s: got %s %q, want %d %q", tc.reason, response.Status, status.Message, tc.code, tc.want)
			}
			if tc.code == http.StatusServiceUnavailable && response.Header.Get("Retry-After") == "" {
				t.Errorf("%s: want Retry-After, so that kubectl tries another replica", tc.reason)
			}
		})
	}
}

// An agent that is attached gets a conflict, a second connection replaces the first, and a Cluster that was created again is
// another one.
func TestAttach(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	proxy := ca.client(t, "front-proxy-client")
	s := newTestServer(t, ca, allowAll)
	type answered struct {
		code    int
		replica string
		conn    io.ReadWriteCloser // of an upgraded connection
	}
	attach := func(known string) answered {
		response, err := s.do(t, &proxy, "POST", root+"/clusters/east/attach", http.Header{
			"X-Remote-User": {"system:serviceaccount:cluster-east:agent"}, "Connection": {"Upgrade"}, "Upgrade": {tunnel.Protocol}, tunnel.AttachedHeader: {known},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		conn, _ := response.Body.(io.ReadWriteCloser)
		return answered{response.StatusCode, response.Header.Get(tunnel.ReplicaHeader), conn}
	}
	serve := func(a answered) (ended chan struct{}) {
		if a.code != http.StatusSwitchingProtocols || a.conn == nil || a.replica != "r" {
			t.Fatalf("got %+v", a)
		}
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			_ = tunnel.Serve(context.WithoutCancel(t.Context()), a.conn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = fmt.Fprint(w, r.Header.Get(tunnel.UserHeader), " ", r.Header.Get(tunnel.NamespaceHeader), " ", r.URL.Path)
			}))
		}()
		return ended
	}
	first := serve(attach(""))
	response, err := s.do(t, &proxy, "GET", root+"/namespaces/web/clusters/east/proxy/api/v1/namespaces/web/pods", http.Header{
		"X-Remote-User": {"ann"}, tunnel.UserHeader: {"root"}, tunnel.NamespaceHeader: {"shop"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); string(text) != "ann web /api/v1/namespaces/web/pods" {
		t.Errorf("got %q", text)
	}
	if got := attach("x,r"); got.code != http.StatusConflict || got.replica != "r" {
		t.Errorf("an agent that is attached already: got %+v", got)
	}
	second := serve(attach(""))
	<-first
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
	if err := s.direct.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c = &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: "3"}, Spec: v1alpha1.ClusterSpec{Accepted: true}}
	if err := s.direct.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, open := s.handler.sessions.get("east", "3"); open {
		t.Error("the Cluster was created again: its agent must attach anew")
	}
	<-second
}
