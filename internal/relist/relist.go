// SPDX-License-Identifier: Apache-2.0

// Package relist has caches list again after etcd was restored from a backup.
//
// A cache whose watch breaks goes on from the last resourceVersion that it knows. After a restore
// the API server is behind that version. It accepts the watch all the same, and sends nothing
// until its versions have overtaken: what was changed until then never arrives. Or the cache
// lists at that version, and gets timeouts for most of a minute (client-go's Reflector).
package relist

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// WrapConfig has each watch and list through cfg that names a resourceVersion ask first which one the
// API server is at: one list of at most one object. If it is behind, they get 410 Gone, with which
// a Reflector lists anew, at any version. The right to list is needed, as the cache needs it.
func WrapConfig(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next} })
}

// transport is Wrap's.
type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	from := requestedVersion(r)
	if from == 0 {
		return t.next.RoundTrip(r)
	}
	answer, err := t.next.RoundTrip(latestRequest(r))
	if err != nil || answer.StatusCode != http.StatusOK {
		return answer, err // the request would get no better one
	}
	at, err := resourceVersionOf(answer)
	if err != nil {
		return nil, fmt.Errorf("read the resourceVersion of %s: %w", r.URL.Path, err)
	}
	if at == 0 || at >= from {
		return t.next.RoundTrip(r)
	}
	return expiredResponse(r, fmt.Sprintf("The API server is at resourceVersion %d, before %d: its etcd was restored. The cache lists again.", at, from))
}

// CloseIdleConnections passes on what http.Client asks for.
func (t transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// requestedVersion is the resourceVersion that a request wants at least; 0 when it wants none.
func requestedVersion(r *http.Request) uint64 {
	from, err := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
	if r.Method != http.MethodGet || err != nil {
		return 0
	}
	return from
}

// latestRequest is a list of at most one object of what a request watches or lists, as etcd has it now. Of
// the selectors only that of one name stays: by it the right may be given, and others make etcd
// search.
func latestRequest(of *http.Request) *http.Request {
	r, kept := of.Clone(of.Context()), url.Values{"limit": {"1"}}
	if selector := of.URL.Query().Get("fieldSelector"); strings.HasPrefix(selector, "metadata.name=") && !strings.Contains(selector, ",") {
		kept.Set("fieldSelector", selector)
	}
	r.URL.RawQuery = kept.Encode()
	r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	return r
}

// resourceVersionOf is the resourceVersion of a list; 0 when it is not a number (some aggregated API
// servers), or when the answer is no list.
func resourceVersionOf(answer *http.Response) (uint64, error) {
	defer func() { _ = answer.Body.Close() }()
	var l metav1.PartialObjectMetadataList
	if err := json.NewDecoder(answer.Body).Decode(&l); err != nil {
		return 0, fmt.Errorf("decode list: %w", err)
	}
	at, err := strconv.ParseUint(l.ResourceVersion, 10, 64)
	if err != nil || !strings.HasSuffix(l.Kind, "List") {
		at = 0
	}
	return at, nil
}

// expiredResponse answers as an API server does whose history begins after the resourceVersion.
func expiredResponse(r *http.Request, message string) (*http.Response, error) {
	body, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: http.StatusGone, Message: message,
	})
	if err != nil {
		return nil, fmt.Errorf("encode status: %w", err)
	}
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}, nil
}
