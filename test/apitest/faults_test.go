// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestFaulty(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns := env.Namespace(t)
	cases := map[string]struct {
		reason string
		fault  apitest.Fault
		lost   bool
		stored bool
	}{
		"Pass":        {reason: "Nothing happens.", fault: apitest.Pass, stored: true},
		"LoseRequest": {reason: "The API server has not seen it.", fault: apitest.LoseRequest, lost: true},
		"LoseReply":   {reason: "It was done, and the client cannot know.", fault: apitest.LoseReply, lost: true, stored: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			faulty, err := kubernetes.NewForConfig(apitest.Faulty(env.Config, func(r *http.Request) apitest.Fault {
				if r.Method == http.MethodPost {
					return tc.fault
				}
				return apitest.Pass
			}))
			if err != nil {
				t.Fatal(err)
			}
			maps := faulty.CoreV1().ConfigMaps(ns)
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: apitest.Name("fault")}}
			if _, err := maps.Create(t.Context(), o, metav1.CreateOptions{}); errors.Is(err, apitest.ErrLost) != tc.lost {
				t.Errorf("%s\ncreate: got %v, want lost %t", tc.reason, err, tc.lost)
			}
			_, err = maps.Get(t.Context(), o.Name, metav1.GetOptions{})
			if (err == nil) != tc.stored || (err != nil && !apierrors.IsNotFound(err)) {
				t.Errorf("%s\nget: got %v, want stored %t", tc.reason, err, tc.stored)
			}
		})
	}
}
