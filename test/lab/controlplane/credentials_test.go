// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package controlplane_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
)

func TestIdentities(t *testing.T) {
	t.Parallel()
	config := newConfig(t)
	config.Tokens = []controlplane.Token{{Token: "sesame", User: "alice", Groups: []string{"tenants", "readers"}}}
	c := start(t, config)

	token := rest.AnonymousClientConfig(c.RESTConfig())
	token.BearerToken = "sesame"
	fromFile, err := clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		config *rest.Config
		want   []string
	}{
		"Admin": {
			reason: "Tests and the lab act as the master.", config: c.RESTConfig(),
			want: []string{"admin", "system:masters", "system:authenticated"},
		},
		"AdminFile": {
			reason: "A person uses the file.", config: fromFile,
			want: []string{"admin", "system:masters", "system:authenticated"},
		},
		"Token": {
			reason: "A static token stands for its user.", config: token,
			want: []string{"alice", "tenants", "readers", "system:authenticated"},
		},
		"Kubeconfig": {
			reason: "Any identity can be had.", config: parse(t)(c.Kubeconfig("bob", "tenants")),
			want: []string{"bob", "tenants", "system:authenticated"},
		},
		"Node": {
			reason: "The Node authorizer knows kubelets by this name and group.", config: parse(t)(c.NodeKubeconfig("n1")),
			want: []string{"system:node:n1", "system:nodes", "system:authenticated"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, whoAmI(t, tc.config)); diff != "" {
				t.Errorf("%s\nuser and groups: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func parse(t *testing.T) func([]byte, error) *rest.Config {
	t.Helper()
	return func(raw []byte, err error) *rest.Config {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(raw)
		if err != nil {
			t.Fatal(err)
		}
		return config
	}
}

func whoAmI(t *testing.T, config *rest.Config) []string {
	t.Helper()
	cs, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	review, err := cs.AuthenticationV1().SelfSubjectReviews().
		Create(t.Context(), &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{review.Status.UserInfo.Username}, review.Status.UserInfo.Groups...)
}

// A node may register itself and nobody else: Node authorizer and NodeRestriction work.
func TestNodeIsConfined(t *testing.T) {
	t.Parallel()
	c := start(t, newConfig(t))
	cs, err := kubernetes.NewForConfig(parse(t)(c.NodeKubeconfig("n1")))
	if err != nil {
		t.Fatal(err)
	}
	own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	if _, err := cs.CoreV1().Nodes().Create(t.Context(), own, metav1.CreateOptions{}); err != nil {
		t.Errorf("create own Node: %v", err)
	}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}
	if _, err := cs.CoreV1().Nodes().Create(t.Context(), other, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("create another's Node: got %v, want forbidden", err)
	}
}

// In a namespace, clients outside reach the API server by RESTConfig, and only so.
func TestInNetworkNamespace(t *testing.T) {
	t.Parallel()
	config := newConfig(t)
	config.Netns = fmt.Sprintf("pb-test-%08x", rand.Uint32())
	config.Address = netip.MustParseAddr("10.89.0.1")
	config.ControllerManager = true
	ip(t, "netns", "add", config.Netns)
	t.Cleanup(func() { ip(t, "netns", "delete", config.Netns) })
	ip(t, "-n", config.Netns, "link", "set", "lo", "up")
	ip(t, "-n", config.Netns, "address", "add", "10.89.0.1/32", "dev", "lo")

	c := start(t, config)
	if want := "https://10.89.0.1:6443"; c.URL() != want {
		t.Errorf("URL: got %s, want %s", c.URL(), want)
	}
	getNamespace(t, c, metav1.NamespaceDefault)
	outside := c.RESTConfig()
	outside.Dial = nil
	outside.Timeout = time.Second
	cs, err := kubernetes.NewForConfig(outside)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cs.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("the API server can be reached from outside its namespace")
	}
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
