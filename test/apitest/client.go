// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"fmt"
	"net/http"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/v1"
)

// Identity is who makes a request: user, groups, and the extra claims of a token.
type Identity = rest.ImpersonationConfig

// Tenant is a user without any rights of its own, in the group "tenants".
func Tenant(name string) Identity {
	return Identity{UserName: name, Groups: []string{"tenants", "system:authenticated"}}
}

// NodeDaemon is the node daemon's service account as its token on that node shows it,
// with the claim that names the node (KEP-4193).
func NodeDaemon(node string) Identity {
	const namespace, account = "patchbay-system", "patchbayd"
	return Identity{
		UserName: "system:serviceaccount:" + namespace + ":" + account,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {node}},
	}
}

// Controller is the account of patchbay-controller.
func Controller() Identity {
	const namespace = "patchbay-system"
	return Identity{
		UserName: "system:serviceaccount:" + namespace + ":patchbay-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
}

// ConfigAs returns a client configuration that acts as somebody else.
func (e *Env) ConfigAs(who Identity) *rest.Config {
	config := rest.CopyConfig(e.Config)
	config.Impersonate = who
	return config
}

// As returns a client that acts as somebody else.
func (e *Env) As(tb testing.TB, who Identity) client.WithWatch {
	tb.Helper()
	c, err := newClient(e.ConfigAs(who))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Impatient returns a client of an identity that does not repeat requests by itself when the
// API server asks it to try again later.
func (e *Env) Impatient(tb testing.TB, who Identity) client.WithWatch {
	tb.Helper()
	config := e.ConfigAs(who)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil {
				answer.Header.Del("Retry-After")
			}
			return answer, err
		})
	})
	c, err := newClient(config)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}
