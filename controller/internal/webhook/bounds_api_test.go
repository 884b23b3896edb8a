// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package webhook_test

import (
	"fmt"
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
	const many = 100_000
	env := start(t)
	routes := map[string]any{}
	for i := range many {
		routes[fmt.Sprintf("10.%d.%d.%d/32", i>>16, i>>8&255, i&255)] = "10.0.0.1"
	}
	o := object(t, v1.KindTenantNetwork, env.Namespace(t), apitest.Name("many"), `{"spec": {"NetworkID": "many", "Options": {"cidr": "10.0.0.0/8"}}}`)
	if err := unstructured.SetNestedMap(o.Object, routes, "spec", "Options", "routes"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := env.Client.Create(t.Context(), o); !apierrors.IsInvalid(err) {
		t.Errorf("%d routes: got %.300v after %v, want 422", many, err, time.Since(began))
	}
}
