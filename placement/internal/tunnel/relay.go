// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net/http"
	"net/http/httputil"
)

// Relay answers a request as a transport answers to another one with the same method and body, which may not ask for an
// upgrade. It returns an error before it has answered.
func Relay(w http.ResponseWriter, r, out *http.Request, transport http.RoundTripper) error {
	var failed error
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host, p.Out.Header = out.URL, out.Host, out.Header
		},
		Transport: finalAnswers{transport}, FlushInterval: -1, ModifyResponse: CheckResponse,
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) { failed = err },
		ErrorLog:     SilentLog(),
	}
	proxy.ServeHTTP(w, r)
	return failed
}

// finalAnswers is a transport that returns neither interim answers (1xx) nor trailers. ReverseProxy would write interim
// answers to the client within the read loop of the connection, which many requests share, and without CheckResponse.
// Without a reader for them, the transport drops them, and limits their number.
type finalAnswers struct {
	http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t finalAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r.WithContext(hideValues(r.Context())))
	if err != nil {
		return nil, err
	}
	final := *response // the transport adds trailers to the original, at the end of the body
	final.Trailer = nil
	return &final, nil
}

func hideValues(ctx context.Context) context.Context { return withoutValues{ctx} }

// withoutValues is a context without the httptrace.ClientTrace that reads interim answers.
type withoutValues struct {
	context.Context
}

// Value implements context.Context.
func (withoutValues) Value(any) any { return nil }
