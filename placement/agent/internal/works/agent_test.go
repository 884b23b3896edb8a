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

// emptyAPIServer is an API server, hub and cluster in one, that has no object and gets none.
type emptyAPIServer struct {
	asked atomic.Int64
	// note hears of each request before it is answered: how many there were before it.
	note func(before int64)
	// late says that what is asked no longer is answered all the same.
	late bool
}

// RoundTrip implements http.RoundTripper.
func (b *emptyAPIServer) RoundTrip(r *http.Request) (*http.Response, error) {
	b.note(b.asked.Add(1) - 1)
	if err := r.Context().Err(); err != nil && !b.late {
		return nil, err
	}
	resource := path.Base(r.URL.Path)
	kinds := map[string]string{
		"appliedworks": "AppliedWorkList", "works": "WorkList", "pods": "PodList", "nodes": "NodeList",
		"replicasets": "", "statefulsets": "", "daemonsets": "", "jobs": "",
	}
	kind, list := kinds[resource]
	switch query := r.URL.Query(); {
	case query.Has("watch") && !query.Has("sendInitialEvents"): // nothing happens
		<-r.Context().Done()
		return nil, r.Context().Err()
	case query.Has("watch") || !list: // lists are asked for in the old way
		return answer(r, http.StatusNotFound, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		})
	case kind == "": // asked for as metadata only
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

// An agent that is told to end while it starts ends, and without an error.
func TestRunEndsAtAnyMoment(t *testing.T) {
	t.Parallel()
	const requests = 24 // of a start
	for before := range int64(requests) {
		for what, late := range map[string]bool{"broken off": false, "answered": true} {
			t.Run(fmt.Sprint("request ", before, " ", what), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				server := &emptyAPIServer{late: late, note: func(n int64) {
					if n == before {
						cancel()
					}
				}}
				runs(ctx, t, server)
				if got := server.asked.Load(); got <= before {
					t.Errorf("requests: got %d, so it was not told to end", got)
				}
			})
		}
	}
	t.Run("before it began", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		runs(ctx, t, &emptyAPIServer{note: func(int64) {}})
	})
}

// runs runs an agent until it ends.
func runs(ctx context.Context, t *testing.T, server *emptyAPIServer) {
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
			t.Errorf("got %v, want no error: it ended on request", err)
		}
	case <-time.After(time.Minute):
		t.Fatalf("it has not ended; requests: %d", server.asked.Load())
	}
}
