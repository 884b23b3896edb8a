// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

// ErrLost is what a client sees of a request that a Fault hit.
var ErrLost = errors.New("connection lost")

// Fault is what becomes of a request.
type Fault int

const (
	// Pass lets request and reply through.
	Pass Fault = iota
	// LoseRequest fails before the API server has seen anything.
	LoseRequest
	// LoseReply fails after the API server has done what was asked.
	LoseReply
	// Late fails at once, and reaches the API server later. This and those that
	// follow are for a Proxy.
	Late
	// Twice is done and answered, and reaches the API server once more later.
	Twice
	// LateTwice fails at once, and reaches the API server twice.
	LateTwice
)

// Faulty returns a client configuration like config, whose connection breaks as choose
// says: Pass, LoseRequest or LoseReply. A Proxy breaks it in more ways. choose is called for every request, from any goroutine.
func Faulty(config *rest.Config, choose func(*http.Request) Fault) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return faulty{next, choose}
	})
	return config
}

type faulty struct {
	next   http.RoundTripper
	choose func(*http.Request) Fault
}

// RoundTrip implements http.RoundTripper.
func (f faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	fault := f.choose(r)
	if fault == LoseRequest {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes it, also on errors
		}
		return nil, fmt.Errorf("%s %s: %w before the request", r.Method, r.URL.Path, ErrLost)
	}
	reply, err := f.next.RoundTrip(r)
	if err != nil || fault == Pass {
		return reply, err
	}
	// Read to the end, so that the API server is through with it for certain.
	_, err = io.Copy(io.Discard, reply.Body)
	if err := errors.Join(err, reply.Body.Close()); err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, err)
	}
	return nil, fmt.Errorf("%s %s: %w before the reply", r.Method, r.URL.Path, ErrLost)
}
