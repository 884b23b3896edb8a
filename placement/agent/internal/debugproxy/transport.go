// SPDX-License-Identifier: Apache-2.0

package debugproxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/patchbay-cni/patchbay/placement/internal/tunnel"
)

// Limits of connections to the cluster's API server.
const (
	dialTimeout = 30 * time.Second
	idleTimeout = 90 * time.Second
	// readBuffer is how much the kernel may keep of an answer that the hub does not read yet.
	readBuffer = 256 << 10
)

// newTransport returns the transport for requests of hub users. It shares no connection with the agent's controllers:
// client-go would give both the same HTTP/2 connection. And it uses HTTP/1.1, because an upgrade needs it, and because
// each open request then has a connection of its own, so that an answer that nothing reads delays no other request.
func newTransport(local *rest.Config) (http.RoundTripper, error) {
	config, err := tlsConfig(local)
	if err != nil {
		return nil, err
	}
	proxy := http.ProxyFromEnvironment
	if local.Proxy != nil {
		proxy = local.Proxy
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	t, err := rest.HTTPWrappersForConfig(local, &http.Transport{
		Proxy: proxy, DialContext: dialer.DialContext, TLSClientConfig: config, TLSHandshakeTimeout: dialTimeout,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			current, err := tlsConfig(local) // files of certificates are renewed
			if err != nil {
				return nil, err
			}
			conn, err := (&tls.Dialer{NetDialer: dialer, Config: current}).DialContext(ctx, network, address)
			if secure, ok := conn.(*tls.Conn); ok {
				limitReadBuffer(secure.NetConn())
			}
			return conn, err
		},
		Protocols: protocols, DisableCompression: true, IdleConnTimeout: idleTimeout, MaxIdleConnsPerHost: tunnel.MaxStreams / 10,
		MaxResponseHeaderBytes: tunnel.MaxHeaderBytes,
	})
	if err != nil {
		return nil, fmt.Errorf("make the cluster's client: %w", err)
	}
	return t, nil
}

// tlsConfig reads the certificates of the cluster's API server.
func tlsConfig(local *rest.Config) (*tls.Config, error) {
	config, err := rest.TLSConfigFor(local)
	if err != nil {
		return nil, fmt.Errorf("read the certificates of the cluster's API server: %w", err)
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.NextProtos = []string{"http/1.1"}
	return config, nil
}

func limitReadBuffer(conn net.Conn) {
	if c, ok := conn.(*net.TCPConn); ok {
		_ = c.SetReadBuffer(readBuffer)
	}
}
