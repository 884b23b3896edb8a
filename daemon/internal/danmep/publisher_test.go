// SPDX-License-Identifier: Apache-2.0

package danmep

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestNamespaceGone(t *testing.T) {
	t.Parallel()
	danmeps := schema.GroupResource{Group: "danm.io", Resource: "danmeps"}
	terminating := apierrors.NewForbidden(danmeps, "x", nil)
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	cases := map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Terminating": {"Nothing can be created any more.", terminating, true},
		"Missing":     {"The namespace does not exist.", apierrors.NewNotFound(corev1.Resource("namespaces"), "x"), true},
		"NoKind":      {"The definition may be installed again.", apierrors.NewGenericServerResponse(404, "POST", danmeps, "", "404 page not found", 0, true), false},
		"Quota":       {"A quota may be raised.", apierrors.NewForbidden(danmeps, "x", errors.New("exceeded quota")), false},
		"None":        {"There is no error.", nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := namespaceGone(tc.err); got != tc.want {
				t.Errorf("%s got %t", tc.reason, got)
			}
		})
	}
}
