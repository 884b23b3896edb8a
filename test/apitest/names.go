// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Name returns a name that no other test uses, for a cluster-scoped object.
func Name(prefix string) string {
	return fmt.Sprintf("%s-%010x", prefix, rand.Uint64()&(1<<40-1))
}

// Namespace creates a namespace for this test and returns its name.
func (e *Env) Namespace(tb testing.TB) string {
	tb.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Name("test")}}
	if err := e.Client.Create(tb.Context(), ns); err != nil {
		tb.Fatal(err)
	}
	return ns.Name
}
