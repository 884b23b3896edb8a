// SPDX-License-Identifier: Apache-2.0

package apitest_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

// A trouble that counts by subject hits each subject, however often others are asked for; a
// create and an update have counts of their own, unless it hits no more than so many.
func TestInjectPerSubject(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	all := apitest.FailureModes()
	at := slices.IndexFunc(all, func(t apitest.FailureMode) bool { return t.Name == "Conflict" })
	config, tally := all[at].InjectPerSubject(&rest.Config{Host: server.URL}, func(r *http.Request) string {
		_, resource := apitest.RequestResource(r)
		return resource
	})
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	send := func(method, path string) (refused bool) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := reply.Body.Close(); err != nil {
			t.Fatal(err)
		}
		return reply.StatusCode == http.StatusConflict
	}
	for i := range 5 {
		if refused := send(http.MethodPost, "/api/v1/namespaces/n/pods"); refused != (i%3 == 0) {
			t.Errorf("create %d of a Pod: refused %t", i, refused)
		}
	}
	if !send(http.MethodPut, "/api/v1/namespaces/n/pods/p") || !send(http.MethodPost, "/apis/apps/v1/namespaces/n/deployments") {
		t.Error("the first update of a Pod, or create of a Deployment, was not refused")
	}
	if send(http.MethodGet, "/api/v1/namespaces/n/pods/p") {
		t.Error("a read was refused: it is none of the trouble's requests")
	}
	if got, want := tally.String(), "deployments POST: 1 of 1, pods POST: 2 of 5, pods PUT: 1 of 1"; got != want {
		t.Errorf("tally: got %s, want %s", got, want)
	}
	if got := tally.Hits("pods POST"); got != 2 {
		t.Errorf("hits: got %d, want 2", got)
	}
}

// An outage hits the first request of each subject, and then all subjects at the same time: between
// outages a client gets every answer that it needs for a step.
func TestOutageIsOneForAllSubjects(t *testing.T) {
	t.Parallel()
	all := apitest.FailureModes()
	at := slices.IndexFunc(all, func(t apitest.FailureMode) bool { return t.Name == "Unread" })
	synctest.Test(t, func(t *testing.T) {
		config, _ := all[at].InjectPerSubject(&rest.Config{Transport: okTransport{}}, func(r *http.Request) string { return r.URL.Path })
		transport, err := rest.TransportFor(config)
		if err != nil {
			t.Fatal(err)
		}
		fails := func(path string) bool {
			reply, err := transport.RoundTrip(httptest.NewRequest(http.MethodGet, path, nil))
			if err != nil {
				t.Fatal(err)
			}
			if err := reply.Body.Close(); err != nil {
				t.Fatal(err)
			}
			return reply.StatusCode != http.StatusOK
		}
		fails("/a")
		time.Sleep(1500 * time.Millisecond)
		if fails("/a") || !fails("/b") {
			t.Error("after 1.5 s: want /a answered, and the first request for /b hit")
		}
		hits := 0
		for range 300 {
			time.Sleep(50 * time.Millisecond)
			a, b := fails("/a"), fails("/b")
			if a != b {
				t.Fatalf("/a hit %t, /b hit %t at the same time", a, b)
			}
			if a {
				hits++
			}
		}
		if hits != 100 {
			t.Errorf("hit for %d of 300 moments, want 100: one second of three", hits)
		}
	})
}

// okTransport answers all requests.
type okTransport struct{}

// RoundTrip implements http.RoundTripper.
func (okTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
}

// Requests are told apart by what they are for, with and without a namespace.
func TestResource(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][2]string{
		"/api/v1/pods":                                      {"", "pods"},
		"/api/v1/namespaces":                                {"", "namespaces"},
		"/api/v1/namespaces/n":                              {"", "namespaces"},
		"/api/v1/namespaces/n/secrets/s":                    {"n", "secrets"},
		"/apis/apps/v1/deployments":                         {"", "deployments"},
		"/apis/apps/v1/namespaces/n/deployments/web/status": {"n", "deployments"},
		"/apis/apps/v1":                                     {"", ""},
		"/api":                                              {"", ""},
		"/":                                                 {"", ""},
	} {
		if ns, resource := apitest.RequestResource(httptest.NewRequest(http.MethodGet, path, nil)); [2]string{ns, resource} != want {
			t.Errorf("%s: got %s, %s, want %v", path, ns, resource, want)
		}
	}
}
