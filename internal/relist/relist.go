// SPDX-License-Identifier: Apache-2.0

// Package relist makes caches list again after etcd was restored from a backup.
//
// A cache whose watch breaks continues from the last resourceVersion that it has seen. After a
// restore the API server is behind that version. It accepts the watch and sends nothing until its
// versions have passed that one, so that all changes until then are lost for the cache. Or the
// cache lists at that version, and gets timeouts for most of a minute (client-go's Reflector).
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

// WrapConfig makes each watch and list with a resourceVersion through cfg ask first for the API
// server's present version, by a list of at most one object. If that is older, the request is
// answered with 410 Gone, after which a Reflector lists again at any version. It needs the right to
// list, as the cache does.
func WrapConfig(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next} })
}

// transport is the round tripper of WrapConfig.
type transport struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	from := requestedVersion(r)
	if from == 0 {
		return t.next.RoundTrip(r)
	}
	answer, err := t.next.RoundTrip(latestRequest(r))
	if err != nil || answer.StatusCode != http.StatusOK {
		return answer, err // the request would get the same answer
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

// CloseIdleConnections implements what http.Client.CloseIdleConnections calls.
func (t transport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// requestedVersion returns the resourceVersion of a read; 0 when it has none.
func requestedVersion(r *http.Request) uint64 {
	from, err := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
	if r.Method != http.MethodGet || err != nil {
		return 0
	}
	return from
}

// latestRequest returns a consistent list of at most one object of the same resource. It keeps only
// a selector of one name, because the right may be limited to that name; other selectors would make
// etcd scan.
func latestRequest(of *http.Request) *http.Request {
	r, kept := of.Clone(of.Context()), url.Values{"limit": {"1"}}
	if selector := of.URL.Query().Get("fieldSelector"); strings.HasPrefix(selector, "metadata.name=") && !strings.Contains(selector, ",") {
		kept.Set("fieldSelector", selector)
	}
	r.URL.RawQuery = kept.Encode()
	r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
	return r
}

// resourceVersionOf returns the resourceVersion of a list; 0 when it is not a number, as with some
// aggregated API servers, or when the answer is no list.
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

// expiredResponse returns the answer of an API server whose history does not reach back to the
// resourceVersion.
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
