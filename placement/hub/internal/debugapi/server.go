// SPDX-License-Identifier: Apache-2.0

package debugapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/patchbay-cni/patchbay/api/placement/v1alpha1"
	"github.com/patchbay-cni/patchbay/internal/servingcert"
	"github.com/patchbay-cni/patchbay/placement/internal/tunnel"
)

// certificateSecret in SystemNamespace has the serving certificate and its authority.
const certificateSecret = "patchbay-hub-debug"

// Config configures the API.
type Config struct {
	// Address to listen on.
	Address string
	// Host is the DNS name or the IPv4 address by which the hub's API server reaches Address; "" when a person has made
	// the Service patchbay-hub in patchbay-system.
	Host string
	// Port at Host; 0 for the port of Address.
	Port int
}

// Add makes a manager serve the API, in each replica.
func Add(m manager.Manager, c Config) error {
	reviews, err := authorization.NewForConfigAndClient(m.GetConfig(), m.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("make client for SubjectAccessReviews: %w", err)
	}
	l, err := net.Listen("tcp", c.Address)
	if err != nil {
		return fmt.Errorf("flag --debug-address: listen for debug requests: %w", err)
	}
	if c.Port == 0 {
		if address, ok := l.Addr().(*net.TCPAddr); ok {
			c.Port = address.Port
		}
	}
	log := m.GetLogger().WithName("debug")
	r := &registration{direct: m.GetClient(), host: c.Host, port: c.Port}
	certificates := servingcert.NewRotator(servingcert.Config{
		Client: m.GetClient(), Namespace: v1alpha1.SystemNamespace, Secret: certificateSecret, Hosts: []string{ServerName},
		Publish: r.publish, Log: log,
	})
	front := &frontProxy{direct: m.GetClient()}
	s := &server{listener: l, http: &http.Server{
		Handler: &handler{
			replica: rand.Text(), frontProxy: front,
			access: &access{reviewer: newReviewer(reviews.SubjectAccessReviews()), cached: m.GetCache()}, limits: newLimits(), reviewInterval: defaultReviewInterval,
		},
		TLSConfig: front.configureTLS(certificates.GetCertificate), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: tunnel.SilentLog(),
	}}
	return errors.Join(m.Add(front), m.Add(certificates), m.Add(s))
}

// Timeouts of the API server's connections.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// server serves the API.
type server struct {
	listener net.Listener
	http     *http.Server
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves the API.
func (*server) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *server) Start(ctx context.Context) error {
	ctx = logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithName("debug"))
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	defer context.AfterFunc(ctx, func() { _ = s.http.Close() })()
	if err := s.http.ServeTLS(s.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve debug requests: %w", err)
	}
	return nil
}
