// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// frontProxyConfigMap in kube-system has the CA and the headers of the API server's front proxy.
const frontProxyConfigMap = "extension-apiserver-authentication"

// Intervals of reading the ConfigMap, until it was read, and after that.
const (
	frontProxyRetry  = time.Second
	frontProxyReload = time.Minute
)

// user is a client of the API server.
type user struct {
	name, uid string
	groups    []string
	extra     map[string]authorizationv1.ExtraValue
}

// frontProxy authenticates the API server's front proxy, and reads the user from its headers.
type frontProxy struct {
	direct  client.Reader
	current atomic.Pointer[frontProxyConfig]
}

// frontProxyConfig is the content of the ConfigMap.
type frontProxyConfig struct {
	authorities                    *x509.CertPool
	allowedNames                   []string // common names; all if empty
	users, uids, groups, extraKeys []string // headers
}

// Start reads the ConfigMap again and again until ctx ends.
func (f *frontProxy) Start(ctx context.Context) error {
	for {
		pause := frontProxyReload
		if err := f.load(ctx); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "Failed to read how the API server authenticates itself")
			pause = frontProxyRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves the API.
func (*frontProxy) NeedLeaderElection() bool { return false }

func (f *frontProxy) load(ctx context.Context) error {
	m := &corev1.ConfigMap{}
	if err := f.direct.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: frontProxyConfigMap}, m); err != nil {
		return fmt.Errorf("get ConfigMap %s/%s: %w", metav1.NamespaceSystem, frontProxyConfigMap, err)
	}
	parsed, err := parseFrontProxy(m.Data)
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", metav1.NamespaceSystem, frontProxyConfigMap, err)
	}
	f.current.Store(parsed)
	return nil
}

// parseFrontProxy parses the ConfigMap's data. Without an authority no client could be authenticated.
func parseFrontProxy(data map[string]string) (*frontProxyConfig, error) {
	c := &frontProxyConfig{authorities: x509.NewCertPool()}
	if !c.authorities.AppendCertsFromPEM([]byte(data["requestheader-client-ca-file"])) {
		return nil, errors.New("requestheader-client-ca-file must have a certificate: set --requestheader-client-ca-file of the hub's API server")
	}
	for key, to := range map[string]*[]string{
		"requestheader-allowed-names": &c.allowedNames, "requestheader-username-headers": &c.users, "requestheader-uid-headers": &c.uids,
		"requestheader-group-headers": &c.groups, "requestheader-extra-headers-prefix": &c.extraKeys,
	} {
		if text := data[key]; text != "" {
			if err := json.Unmarshal([]byte(text), to); err != nil {
				return nil, fmt.Errorf("%s must be a JSON list: %w", key, err)
			}
		}
	}
	if len(c.users) == 0 {
		return nil, errors.New("requestheader-username-headers must name a header: set --requestheader-username-headers of the hub's API server")
	}
	return c, nil
}

// errNotLoaded is returned until the ConfigMap was read.
var errNotLoaded = errors.New("the ConfigMap " + frontProxyConfigMap + " has not been read yet")

// configureTLS returns the server's configuration, in which only the front proxy completes a handshake.
func (f *frontProxy) configureTLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	base := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate, NextProtos: []string{"h2", "http/1.1"}}
	with := base.Clone()
	with.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := f.current.Load()
		if now == nil {
			return nil, errNotLoaded
		}
		c := base.Clone()
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, now.authorities
		// A session that was begun with an earlier authority must not be resumed.
		c.SessionTicketsDisabled = true
		return c, nil
	}
	return with
}

// errNotFrontProxy is why a client is rejected.
var errNotFrontProxy = errors.New("the client must be the front proxy of the hub's API server")

// authenticate returns the user of a request. It checks the certificate again, because a connection may be older than
// the present authority.
func (f *frontProxy) authenticate(r *http.Request) (user, error) {
	c := f.current.Load()
	if c == nil {
		return user{}, errNotLoaded
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return user{}, errNotFrontProxy
	}
	chain := x509.NewCertPool()
	for _, intermediate := range r.TLS.PeerCertificates[1:] {
		chain.AddCert(intermediate)
	}
	_, err := r.TLS.PeerCertificates[0].Verify(x509.VerifyOptions{
		Roots: c.authorities, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return user{}, fmt.Errorf("%w: %w", errNotFrontProxy, err)
	}
	if name := r.TLS.PeerCertificates[0].Subject.CommonName; len(c.allowedNames) > 0 && !slices.Contains(c.allowedNames, name) {
		return user{}, fmt.Errorf("%w: common name %q must be one of %q", errNotFrontProxy, name, c.allowedNames)
	}
	return c.userOf(r.Header)
}

// userOf reads the user from the headers, as aggregated API servers do.
func (c *frontProxyConfig) userOf(h http.Header) (user, error) {
	u := user{name: firstOf(h, c.users), uid: firstOf(h, c.uids), extra: map[string]authorizationv1.ExtraValue{}}
	if u.name == "" {
		return user{}, errors.New("the request must name its user")
	}
	for _, name := range c.groups {
		u.groups = append(u.groups, h.Values(name)...)
	}
	for _, prefix := range c.extraKeys {
		for name, values := range h {
			if len(name) > len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
				key := strings.ToLower(name[len(prefix):])
				if decoded, err := url.PathUnescape(key); err == nil {
					key = decoded
				}
				u.extra[key] = append(u.extra[key], values...)
			}
		}
	}
	return u, nil
}

func firstOf(h http.Header, names []string) string {
	for _, name := range names {
		if value := h.Get(name); value != "" {
			return value
		}
	}
	return ""
}
