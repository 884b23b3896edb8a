// SPDX-License-Identifier: Apache-2.0

// Package securemetrics serves a program's metrics and profiles over TLS to clients that the API
// server authenticates and authorizes. controller-runtime has a filter that does the same, but it
// links 250 more packages (gRPC, OpenTelemetry) into the root program of every node.
package securemetrics

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/pprof"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

// Limits of a request, which everyone who reaches the node may send.
const (
	headerTimeout = 5 * time.Second
	headerBytes   = 16 << 10
	idleTimeout   = 2 * time.Minute
)

// Options configure a Server.
type Options struct {
	// Address to listen on; no server when empty.
	Address string
	// CertDir contains tls.crt and tls.key, which may change at any time. Without it the
	// certificate is self-signed, and clients cannot verify it.
	CertDir string
	// Profiles adds /debug/pprof/.
	Profiles bool
}

// AddFlags adds the flags that all programs with metrics have in common.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&o.Address, "metrics-address", "",
		"`address` that serves /metrics over TLS to clients whose token allows them to get that path; no metrics server when empty")
	f.StringVar(&o.CertDir, "metrics-cert-dir", "",
		"`folder` of tls.crt and tls.key for --metrics-address, read for each connection; a self-signed certificate when empty")
	f.BoolVar(&o.Profiles, "profiles", false, "serve /debug/pprof/ at --metrics-address too")
}

// Server serves metrics. It is a runnable that needs no leader.
type Server struct {
	listener net.Listener
	server   *http.Server
}

// Listen opens the server's address. The API server of cfg authorizes each client.
func Listen(o Options, cfg *rest.Config, metrics prometheus.Gatherer, logger logr.Logger) (*Server, error) {
	if o.Address == "" {
		return &Server{}, nil
	}
	auth, err := newAuthorizer(cfg)
	if err != nil {
		return nil, err
	}
	certificates, err := serverTLSConfig(o.CertDir)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("flag --metrics-address: listen for scrapes: %w", err)
	}
	s := &Server{listener: newBoundedListener(l), server: &http.Server{
		Handler:   requireAuthorization(handler(o, metrics), auth, logger.WithName("metrics")),
		TLSConfig: certificates, ReadTimeout: headerTimeout, MaxHeaderBytes: headerBytes, IdleTimeout: idleTimeout,
		Protocols: &http.Protocols{},          // HTTP/2 would add ways to exhaust the server, and no benefit
		ErrorLog:  log.New(io.Discard, "", 0), // failed handshakes of port scanners
	}}
	s.server.Protocols.SetHTTP1(true)
	return s, nil
}

// selfSignedValidity is longer than any process runs. Clients cannot verify the certificate, so an
// expiry would not protect them.
const selfSignedValidity = 10 * 365 * 24 * time.Hour

// serverTLSConfig returns a configuration with the certificate in a folder, or with a self-signed
// one.
func serverTLSConfig(dir string) (*tls.Config, error) {
	if dir == "" {
		c, err := selfSigned(time.Now())
		if err != nil {
			return nil, fmt.Errorf("make certificate for metrics: %w", err)
		}
		return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{c}}, nil
	}
	// Scrapers keep their connection, so the files are read seldom.
	read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("flag --metrics-cert-dir: %w", err)
		}
		return &c, nil
	}
	if _, err := read(nil); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: read}, nil
}

// selfSigned returns a new key and its certificate.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "patchbay-metrics"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedValidity),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"patchbay-metrics"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// handler serves all paths without authorization.
func handler(o Options, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	if o.Profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// requireAuthorization passes on the requests that the API server allows.
func requireAuthorization(next http.Handler, auth *authorizer, logger logr.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			token = ""
		}
		client, _, _ := net.SplitHostPort(r.RemoteAddr)
		err := auth.authorize(r.Context(), client, strings.TrimSpace(token), r.URL.Path)
		denied, is := errors.AsType[denial](err)
		if err != nil {
			w.Header().Set("Connection", "close") // frees it for other clients
		}
		switch {
		case err == nil:
			next.ServeHTTP(w, r)
		case errors.Is(err, errTooManyReviews):
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusTooManyRequests)
		case is:
			logger.V(1).Info("Rejected a request", "client", r.RemoteAddr, "path", r.URL.Path, "reason", denied.Error())
			http.Error(w, denied.Error(), denied.code)
		default:
			logger.Error(err, "Failed to authorize a client", "client", r.RemoteAddr)
			http.Error(w, "the API server did not answer whether you may read this", http.StatusServiceUnavailable)
		}
	})
}

// Address returns the address that the server listens on; nil for none.
func (s *Server) Address() net.Addr {
	if s.listener == nil {
		return nil
	}
	return s.listener.Addr()
}

// Start serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	defer context.AfterFunc(ctx, func() { _ = s.server.Close() })()
	if err := s.server.ServeTLS(s.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve metrics: %w", err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica is scraped.
func (*Server) NeedLeaderElection() bool { return false }
