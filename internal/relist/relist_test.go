// SPDX-License-Identifier: Apache-2.0

package relist_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/internal/relist"
)

// The cases check the request before a watch, and the answer to the watch.
func TestWrapConfig(t *testing.T) {
	t.Parallel()
	begins := true
	for name, test := range map[string]struct {
		reason  string
		options metav1.ListOptions
		status  int    // of the list
		at      string // the list's resourceVersion
		asked   []string
		refused func(error) bool // nil: the watch goes through
	}{
		"Behind": {
			"The server does not have that version yet.",
			metav1.ListOptions{ResourceVersion: "9"}, 200, "8", []string{"limit=1"}, apierrors.IsResourceExpired,
		},
		"There":    {"It has just that version.", metav1.ListOptions{ResourceVersion: "9"}, 200, "9", []string{"limit=1", "watch"}, nil},
		"Longer":   {"Versions are numbers, not texts.", metav1.ListOptions{ResourceVersion: "9"}, 200, "10", []string{"limit=1", "watch"}, nil},
		"NoNumber": {"Some aggregated API servers have others.", metav1.ListOptions{ResourceVersion: "9"}, 200, "x", []string{"limit=1", "watch"}, nil},
		"Begins":   {"It goes on from no version.", metav1.ListOptions{}, 200, "8", []string{"watch"}, nil},
		"Any":      {"0 is any version.", metav1.ListOptions{ResourceVersion: "0"}, 200, "8", []string{"watch"}, nil},
		"WatchList": {
			"It would time out.",
			metav1.ListOptions{ResourceVersion: "9", SendInitialEvents: &begins}, 200, "8", []string{"limit=1"}, apierrors.IsResourceExpired,
		},
		"Forbidden": {
			"A refusal is passed on.",
			metav1.ListOptions{ResourceVersion: "9"}, 403, "", []string{"limit=1"}, apierrors.IsForbidden,
		},
		"OneName": {
			"Rights may be given for one name.",
			metav1.ListOptions{ResourceVersion: "9", FieldSelector: "metadata.name=agent"}, 200, "9",
			[]string{"fieldSelector=metadata.name%3Dagent&limit=1", "watch"}, nil,
		},
		"Selected": {
			"Others would have etcd search.",
			metav1.ListOptions{ResourceVersion: "9", FieldSelector: "metadata.name=a,spec.x=y", LabelSelector: "a=b"}, 200, "9",
			[]string{"limit=1", "watch"}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Has("watch") {
					asked = append(asked, "watch")
					return
				}
				asked = append(asked, r.URL.RawQuery)
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(test.status)
				_, _ = fmt.Fprintf(w, `{"kind": "PodList", "metadata": {"resourceVersion": %q}}`, test.at)
			}))
			defer server.Close()
			cfg := &rest.Config{Host: server.URL}
			relist.WrapConfig(cfg)
			c, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			watch, err := c.CoreV1().Pods("ns").Watch(t.Context(), test.options)
			if refused := test.refused; (err != nil) != (refused != nil) || refused != nil && !refused(err) {
				t.Errorf("watch: got %v (%s)", err, test.reason)
			}
			if err == nil {
				watch.Stop()
			}
			if !slices.Equal(asked, test.asked) {
				t.Errorf("the server was asked for %q, want %q: %s", asked, test.asked, test.reason)
			}
		})
	}
}

// A list at a version is checked too. An object has a version of its own.
func TestWrapConfigOfLists(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		kind := "PodList"
		if strings.HasSuffix(r.URL.Path, "/pod") {
			kind = "Pod"
		}
		_, _ = fmt.Fprintf(w, `{"apiVersion": "v1", "kind": %q, "metadata": {"resourceVersion": "8"}}`, kind)
	}))
	defer server.Close()
	cfg := &rest.Config{Host: server.URL}
	relist.WrapConfig(cfg)
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pods := c.CoreV1().Pods("ns")
	if _, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: "9"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("list at 9 of a server that is at 8: got %v, want it expired", err)
	}
	if _, err := pods.List(t.Context(), metav1.ListOptions{ResourceVersion: "8"}); err != nil {
		t.Errorf("list at 8: got %v", err)
	}
	if _, err := pods.Get(t.Context(), "pod", metav1.GetOptions{ResourceVersion: "9"}); err != nil {
		t.Errorf("get at 9: got %v", err)
	}
}
