// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/apitest"
)

// More routes than a network may have are rejected within the time of a request, 34 s. When each
// has an owner in server-side apply, the API server takes longer, because it tracks owners before
// it counts the routes.
func TestManyRoutesAreRefused(t *testing.T) {
	env := start(t)
	cases := map[string]struct {
		reason string
		kind   string
		routes int
	}{
		"APIServer": {
			reason: "A request of 3 MiB has room for no more routes. The API server counts them before it calls admission.",
			kind:   v1.KindClusterNetwork, routes: 100_000,
		},
		"Admission": {
			reason: "The webhook that assigns a slot decodes the routes before the API server counts them. It has 10 s: the decoding of 20,000 routes stays far below on a busy machine and with the race detector.",
			kind:   v1.KindTenantNetwork, routes: 20_000,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			routes := map[string]any{}
			for i := range tc.routes {
				routes[fmt.Sprintf("10.%d.%d.%d/32", i>>16, i>>8&255, i&255)] = "10.0.0.1"
			}
			namespace := ""
			if tc.kind == v1.KindTenantNetwork {
				namespace = env.Namespace(t)
			}
			o := object(t, tc.kind, namespace, apitest.Name("many"), `{"spec": {"NetworkID": "many", "Options": {"cidr": "10.0.0.0/8"}}}`)
			if err := unstructured.SetNestedMap(o.Object, routes, "spec", "Options", "routes"); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if err := env.Client.Create(t.Context(), o); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "must have at most 64 items") {
				t.Errorf("%s\n%d routes of a %s: got %.300v after %v, want 422 about their number", tc.reason, tc.routes, tc.kind, err, time.Since(began))
			}
		})
	}
}
