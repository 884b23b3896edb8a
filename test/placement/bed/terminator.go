// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

// TLSTerminator is a load balancer that ends TLS, with a certificate of an authority of its
// own. What certificate a client has the API server never sees.
type TLSTerminator struct {
	// CA is its authority, as PEM.
	CA []byte

	listener net.Listener
	server   *http.Server
	all      sync.WaitGroup
}

// NewTLSTerminator serves the listener for the API server of the configuration.
func NewTLSTerminator(listener net.Listener, hub *rest.Config) (*TLSTerminator, error) {
	target, err := url.Parse(hub.Host)
	if err != nil {
		return nil, fmt.Errorf("parse address of the hub: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(hub.CAData)
	cert, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make certificate of the balancer: %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate of the balancer: %w", err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	http1 := &http.Protocols{}
	http1.SetHTTP1(true)
	proxy.Transport = &upgradingTransport{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true},
		upgrades:  &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Protocols: http1},
	}
	proxy.FlushInterval = -1 // watches
	silent := log.New(io.Discard, "", 0)
	proxy.ErrorLog = silent
	t := &TLSTerminator{CA: cert, listener: listener, server: &http.Server{
		Handler: proxy, ReadHeaderTimeout: time.Minute, ErrorLog: silent,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	}}
	t.all.Go(func() { _ = t.server.ServeTLS(listener, "", "") }) // it ends with Close
	return t, nil
}

// upgradingTransport uses HTTP/1.1 for requests that ask for another protocol, as balancers do: HTTP/2 has none of these.
type upgradingTransport struct {
	*http.Transport

	upgrades *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *upgradingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return t.upgrades.RoundTrip(r)
	}
	return t.Transport.RoundTrip(r)
}

// URL is where clients find the balancer.
func (t *TLSTerminator) URL() string { return "https://" + t.listener.Addr().String() }

// Close ends the balancer and its connections.
func (t *TLSTerminator) Close() error {
	err := t.server.Close()
	t.all.Wait()
	return err
}
