// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestProxy(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	ns := env.Namespace(t)
	cases := map[string]struct {
		reason string
		fault  apitest.Fault
		failed bool
		stored int
	}{
		"Pass":        {reason: "Nothing happens.", fault: apitest.Pass, stored: 1},
		"LoseRequest": {reason: "The API server has not seen it.", fault: apitest.LoseRequest, failed: true},
		"LoseReply":   {reason: "It was done, and the client cannot know.", fault: apitest.LoseReply, failed: true, stored: 1},
		"Late":        {reason: "It is done when nobody waits any more.", fault: apitest.Late, failed: true, stored: 1},
		"Twice":       {reason: "The client hears of the first one.", fault: apitest.Twice, stored: 2},
		"LateTwice":   {reason: "The client hears of neither.", fault: apitest.LateTwice, failed: true, stored: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := env.Proxy(t, func(r *http.Request) apitest.Disruption {
				if r.Method == http.MethodPost {
					return apitest.Disruption{Fault: tc.fault, Delay: 50 * time.Millisecond}
				}
				return apitest.Disruption{}
			})
			client, err := kubernetes.NewForConfig(proxy.Config())
			if err != nil {
				t.Fatal(err)
			}
			// A name that the API server makes up tells two requests from one.
			maps, mark := client.CoreV1().ConfigMaps(ns), map[string]string{"mark": apitest.Name("m")}
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "m", Labels: mark}}
			if _, err := maps.Create(t.Context(), o, metav1.CreateOptions{}); (err != nil) != tc.failed {
				t.Errorf("%s\ncreate: got %v, want failure %t", tc.reason, err, tc.failed)
			}
			proxy.WaitDelayed()
			list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "mark=" + mark["mark"]})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != tc.stored {
				t.Errorf("%s\nstored %d times, want %d", tc.reason, len(list.Items), tc.stored)
			}
		})
	}
}

// Who goes through the proxy is who it says it is, and hears what the API server says.
func TestProxyForwards(t *testing.T) {
	t.Parallel()
	env := apitest.Start(t)
	proxy := env.Proxy(t, func(*http.Request) apitest.Disruption { return apitest.Disruption{} })
	config := proxy.Config()
	config.Impersonate = apitest.Tenant("nobody")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("list as a tenant: got %v, want Forbidden", err)
	}
}

func TestRandomFaults(t *testing.T) {
	t.Parallel()
	const draws, percent = 5000, 4
	get, put := &http.Request{Method: http.MethodGet}, &http.Request{Method: http.MethodPut}
	count := func(r *http.Request) map[apitest.Fault]int {
		a, b := apitest.RandomFaults(7, percent, time.Second), apitest.RandomFaults(7, percent, time.Second)
		kinds := map[apitest.Fault]int{}
		for range draws {
			m := a(r)
			if again := b(r); m != again {
				t.Fatalf("equal seeds: got %+v and %+v", m, again)
			}
			if m.Delay > time.Second {
				t.Errorf("delay: got %s, want at most 1 s", m.Delay)
			}
			kinds[m.Fault]++
		}
		return kinds
	}
	writes, reads := count(put), count(get)
	for _, fault := range []apitest.Fault{apitest.LoseRequest, apitest.LoseReply, apitest.Late, apitest.Twice, apitest.LateTwice} {
		if n := writes[fault]; n < draws*percent/200 || n > draws*percent/50 {
			t.Errorf("fault %d: got %d of %d, want about %d %%", fault, n, draws, percent)
		}
	}
	if n := reads[apitest.Late] + reads[apitest.Twice] + reads[apitest.LateTwice]; n > 0 {
		t.Errorf("reads: %d came late or twice; they change nothing", n)
	}
}
