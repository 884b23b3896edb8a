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

// AddAddresses gives a hub further addresses: who does not get through to one goes on to
// the next, and stays there. All are of one hub, with certificates of one authority.
func AddAddresses(hub *rest.Config, further []string) error {
	if len(further) == 0 {
		return nil
	}
	f := &failover{}
	for _, address := range append([]string{hub.Host}, further...) {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" {
			return fmt.Errorf("address %q of the hub: want one such as https://hub.example.com:6443", address)
		}
		f.addresses = append(f.addresses, u)
	}
	hub.Wrap(func(next http.RoundTripper) http.RoundTripper { return &failoverTransport{failover: f, next: next} })
	return nil
}

// failover knows which address is good.
type failover struct {
	addresses []*url.URL
	current   atomic.Int64
}

// failoverTransport sends requests to the present address.
type failoverTransport struct {
	*failover
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper. A request that was certainly not sent is sent
// to the next address at once; any other its caller repeats, as after any broken connection.
func (h *failoverTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body
	for tried := 1; ; tried++ {
		at := h.current.Load()
		response, err := h.next.RoundTrip(withAddress(r, h.addresses[at], body))
		if !isUnavailable(response, err) {
			return response, err
		}
		// Of many requests that fail together one moves on.
		h.current.CompareAndSwap(at, (at+1)%int64(len(h.addresses)))
		if !isDialError(err) || tried == len(h.addresses) || body != nil && r.GetBody == nil {
			return response, err
		}
		if body != nil {
			if body, err = r.GetBody(); err != nil {
				return nil, fmt.Errorf("repeat request: %w", err)
			}
		}
	}
}

// withAddress is the request for another address.
func withAddress(r *http.Request, address *url.URL, body io.ReadCloser) *http.Request {
	next := r.Clone(r.Context())
	next.URL.Scheme, next.URL.Host, next.Host, next.Body = address.Scheme, address.Host, "", body
	return next
}

// isUnavailable tells whether nobody is behind the address, or a balancer without servers.
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

// isDialError tells whether there was no connection to send anything over.
func isDialError(err error) bool {
	var failed *net.OpError
	return errors.As(err, &failed) && failed.Op == "dial"
}
