// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Config says who joins which hub.
type Config struct {
	// Cluster is the name of the Cluster at the hub.
	Cluster string
	// Hub has the hub's address and authority, and the join token.
	Hub *rest.Config
	// Secrets is where the certificate, or the token, is kept, in the Secret named Secret.
	Secrets corev1client.SecretInterface
	// Secret is its name.
	Secret string
}

// Times of connections to the hub. Balancers and firewalls forget connections silently:
// that must be found out before the hub takes the agent for unreachable (40 s).
const (
	dialTimeout = 10 * time.Second
	// pingAfter is how long nothing may arrive before an HTTP/2 ping asks whether the
	// other side is still there; it also keeps the connection from being idle.
	pingAfter = 10 * time.Second
	// pingTimeout is how long the answer may take.
	pingTimeout = 5 * time.Second
)

// hubTransport is the hub as clients see it, without a credential of its own.
type hubTransport struct {
	base *rest.Config
	tls  *tls.Config
	wrap func(http.RoundTripper) http.RoundTripper
}

func newHubTransport(hub *rest.Config) (*hubTransport, error) {
	w := &hubTransport{base: rest.AnonymousClientConfig(hub), wrap: hub.WrapTransport}
	var err error
	if w.tls, err = rest.TLSConfigFor(w.base); err != nil {
		return nil, fmt.Errorf("read the hub's authority: %w", err)
	}
	if w.tls == nil {
		w.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return w, nil
}

// roundTripper opens connections with the dialer.
func (w *hubTransport) roundTripper(dial func(context.Context, string, string) (net.Conn, error)) http.RoundTripper {
	proxy := w.base.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	var t http.RoundTripper = utilnet.SetTransportDefaults(&http.Transport{
		Proxy: proxy, TLSClientConfig: w.tls, TLSHandshakeTimeout: dialTimeout, DialContext: dial,
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
	})
	if w.wrap != nil {
		t = w.wrap(t)
	}
	return t
}

// restConfig is a client configuration over a transport.
func (w *hubTransport) restConfig(t http.RoundTripper) *rest.Config {
	return &rest.Config{Host: w.base.Host, APIPath: w.base.APIPath, UserAgent: w.base.UserAgent, QPS: -1, Transport: t}
}

// dialWithKeepAlive does so with keep-alives, for connections that cannot have pings (HTTP/1.1).
func dialWithKeepAlive(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: pingAfter, Interval: pingTimeout, Count: 3,
	}}
	return d.DialContext(ctx, network, address)
}
