// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// AddAddresses adds further addresses to the configuration of a hub. Requests use one address until it is
// unavailable, then the next one. All addresses must be of the same hub, with certificates of the same CA.
func AddAddresses(hub *rest.Config, further []string) error {
	if len(further) == 0 {
		return nil
	}
	f := &failover{}
	for _, address := range append([]string{hub.Host}, further...) {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" {
			return fmt.Errorf("address %q of the hub must be a URL such as https://hub.example.com:6443", address)
		}
		f.addresses = append(f.addresses, u)
	}
	hub.Wrap(func(next http.RoundTripper) http.RoundTripper { return &failoverTransport{failover: f, next: next} })
	return nil
}

// failover has the addresses of a hub, and the index of the present one.
type failover struct {
	addresses []*url.URL
	current   atomic.Int64
}

// failoverTransport sends requests to the present address.
type failoverTransport struct {
	*failover
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. It sends a request for which no connection could be opened to the
// next address. After other errors the caller has to retry, as after any broken connection.
func (h *failoverTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body
	for tried := 1; ; tried++ {
		at := h.current.Load()
		response, err := h.next.RoundTrip(withAddress(r, h.addresses[at], body))
		if !isUnavailable(response, err) || response != nil && r.Header.Get("Upgrade") != "" {
			return response, err // the API behind an upgrade may be unavailable while its API server is not
		}
		// Of many requests that fail together, only one changes the address.
		h.current.CompareAndSwap(at, (at+1)%int64(len(h.addresses)))
		if !isDialError(err) || tried == len(h.addresses) || body != nil && r.GetBody == nil {
			return response, err
		}
		if body != nil {
			if body, err = r.GetBody(); err != nil {
				return nil, fmt.Errorf("copy the body of the request: %w", err)
			}
		}
	}
}

// withAddress returns the request with another address.
func withAddress(r *http.Request, address *url.URL, body io.ReadCloser) *http.Request {
	next := r.Clone(r.Context())
	next.URL.Scheme, next.URL.Host, next.Host, next.Body = address.Scheme, address.Host, "", body
	return next
}

// isUnavailable tells whether the address does not answer, or is a load balancer without backends.
func isUnavailable(response *http.Response, err error) bool {
	if err != nil {
		return !errors.Is(err, context.Canceled)
	}
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// isDialError tells whether no connection could be opened, so that nothing was sent.
func isDialError(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}
