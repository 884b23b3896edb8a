// SPDX-License-Identifier: Apache-2.0

package works

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// emptyAPIServer is an API server without objects, which is both hub and cluster.
type emptyAPIServer struct {
	requests atomic.Int64
	// onRequest is called before each answer, with the number of earlier requests.
	onRequest func(earlier int64)
	// answersCancelled is true when the server also answers requests whose context has ended.
	answersCancelled bool
}

// RoundTrip implements http.RoundTripper.
func (b *emptyAPIServer) RoundTrip(r *http.Request) (*http.Response, error) {
	b.onRequest(b.requests.Add(1) - 1)
	if err := r.Context().Err(); err != nil && !b.answersCancelled {
		return nil, err
	}
	resource := path.Base(r.URL.Path)
	kinds := map[string]string{
		"appliedworks": "AppliedWorkList", "works": "WorkList", "pods": "PodList", "nodes": "NodeList",
		"replicasets": "", "statefulsets": "", "daemonsets": "", "jobs": "",
	}
	kind, list := kinds[resource]
	switch query := r.URL.Query(); {
	case query.Has("watch") && !query.Has("sendInitialEvents"): // there are no events
		<-r.Context().Done()
		return nil, r.Context().Err()
	case query.Has("watch") || !list: // the test answers plain lists only
		return answer(r, http.StatusNotFound, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
	case kind == "": // requested as metadata only
		return answer(r, http.StatusOK, listOf("meta.k8s.io/v1", "PartialObjectMetadataList"))
	}
	group := strings.TrimPrefix(strings.TrimPrefix(path.Dir(r.URL.Path), "/apis/"), "/api/")
	version, _, _ := strings.Cut(group, "/namespaces/")
	return answer(r, http.StatusOK, listOf(version, kind))
}

func listOf(version, kind string) map[string]any {
	return map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{}}
}

func answer(r *http.Request, code int, body any) (*http.Response, error) {
	raw, err := json.Marshal(body)
	return &http.Response{
		Request: r, StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(raw)),
	}, err
}

// Run returns no error when its context ends at any moment of the start.
func TestRunStopsAtAnyMoment(t *testing.T) {
	t.Parallel()
	const requests = 24 // of a start
	for before := range int64(requests) {
		for what, answered := range map[string]bool{"cancelled": false, "answered": true} {
			t.Run(fmt.Sprint("request ", before, " ", what), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				server := &emptyAPIServer{answersCancelled: answered, onRequest: func(n int64) {
					if n == before {
						cancel()
					}
				}}
				runAgent(ctx, t, server)
				if got := server.requests.Load(); got <= before {
					t.Errorf("got %d requests, so the context did not end", got)
				}
			})
		}
	}
	t.Run("before the start", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		runAgent(ctx, t, &emptyAPIServer{onRequest: func(int64) {}})
	})
}

// runAgent runs an agent until Run returns.
func runAgent(ctx context.Context, t *testing.T, server *emptyAPIServer) {
	t.Helper()
	config := &rest.Config{Host: "https://hub.example.com", Transport: server}
	a, err := New(Config{Cluster: "east", Hub: config, Local: config, Identity: "test"})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("Run did not return within a minute; requests: %d", server.requests.Load())
	}
}
