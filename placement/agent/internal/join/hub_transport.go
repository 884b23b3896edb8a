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

// Config configures the credentials of an agent.
type Config struct {
	// Cluster is the name of the Cluster at the hub.
	Cluster string
	// Hub has the hub's address, CA and join token.
	Hub *rest.Config
	// Secrets is the client for the Secret that stores the certificate or the token.
	Secrets corev1client.SecretInterface
	// Secret is the name of that Secret.
	Secret string
}

// Timeouts of connections to the hub. Load balancers and firewalls drop connections silently: the agent
// must detect that before the hub takes it for unreachable (40 s).
const (
	dialTimeout = 10 * time.Second
	// pingAfter is how long a connection may be silent before an HTTP/2 ping checks it. The ping also keeps
	// the connection from becoming idle.
	pingAfter = 10 * time.Second
	// pingTimeout is how long the answer to a ping may take.
	pingTimeout = 5 * time.Second
)

// hubTransport makes transports to the hub, without a credential.
type hubTransport struct {
	base *rest.Config
	tls  *tls.Config
	wrap func(http.RoundTripper) http.RoundTripper
}

func newHubTransport(hub *rest.Config) (*hubTransport, error) {
	w := &hubTransport{base: rest.AnonymousClientConfig(hub), wrap: hub.WrapTransport}
	var err error
	if w.tls, err = rest.TLSConfigFor(w.base); err != nil {
		return nil, fmt.Errorf("read the hub's CA: %w", err)
	}
	if w.tls == nil {
		w.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return w, nil
}

// roundTripper returns a transport that opens connections with the dialer.
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

// upgradeConfig returns a client configuration for requests that upgrade their connection, which HTTP/2 cannot. Each
// request has a connection of its own.
func (w *hubTransport) upgradeConfig(c credential) *rest.Config {
	config := w.tls.Clone()
	config.NextProtos = []string{"http/1.1"}
	proxy := w.base.Proxy
	if proxy == nil {
		proxy = http.ProxyFromEnvironment
	}
	var t http.RoundTripper = &http.Transport{
		Proxy: proxy, TLSClientConfig: config, TLSHandshakeTimeout: dialTimeout, DialContext: dialWithKeepAlive,
		DisableKeepAlives: true,
	}
	if w.wrap != nil {
		t = w.wrap(t)
	}
	return w.restConfig(&credentialTransport{credential: c, next: t})
}

// UpgradeConfig returns the client configuration of an agent that does not join, for requests that upgrade their
// connection.
func UpgradeConfig(hub *rest.Config) *rest.Config {
	hub = rest.CopyConfig(hub)
	hub.NextProtos = []string{"http/1.1"}
	hub.Dial = dialWithKeepAlive
	return hub
}

// restConfig returns a client configuration over a transport.
func (w *hubTransport) restConfig(t http.RoundTripper) *rest.Config {
	return &rest.Config{Host: w.base.Host, APIPath: w.base.APIPath, UserAgent: w.base.UserAgent, QPS: -1, Transport: t}
}

// dialWithKeepAlive dials with TCP keep-alives, for connections without HTTP/2 pings.
func dialWithKeepAlive(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: pingAfter, Interval: pingTimeout, Count: 3,
	}}
	return d.DialContext(ctx, network, address)
}

// credential is an agent's credential at the hub.
type credential interface {
	// wait returns when there is a credential, or the context has ended.
	wait(ctx context.Context) error
	// authorize returns the request with the present credential. It must not change its argument.
	authorize(r *http.Request) *http.Request
	// rejected is called when the hub answers 401 Unauthorized.
	rejected()
}

// credentialTransport sends requests with a credential. They wait for the first one, because the hub would
// reject them.
type credentialTransport struct {
	credential credential
	next       http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *credentialTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.credential.wait(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, fmt.Errorf("wait for the first credential at the hub: %w", err)
	}
	response, err := t.next.RoundTrip(t.credential.authorize(r))
	if err == nil && response.StatusCode == http.StatusUnauthorized {
		t.credential.rejected()
	}
	return response, err
}
