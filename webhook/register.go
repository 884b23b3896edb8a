// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/patchbay-cni/patchbay/network"
	"github.com/patchbay-cni/patchbay/tenant/reserve"
	"github.com/patchbay-cni/patchbay/webhook/cert"
)

// Names in deployments/webhooks.
const (
	// ConfigurationName is that of both webhook configurations.
	ConfigurationName = "patchbay"
	// ServiceName is the Service in front of the controller.
	ServiceName = "patchbay-webhook"
	// SecretName is the Secret of the certificates.
	SecretName = "patchbay-webhook-certificates"
)

// Options says how admission is served.
type Options struct {
	// Namespace is where Service and Secret are.
	Namespace string
	// Port to listen on; 0 means 9443. Host is the address, all when empty.
	Port int
	Host string
	// MoreHosts are names or addresses of the server besides those of the Service.
	MoreHosts []string
	// NamingScheme is that of the CNI configuration; see network.InterfaceNames.
	NamingScheme string
	// Ranges are what the cluster itself uses, and no tenant; nil for nothing.
	Ranges Ranges
	// Clock is for the certificates' lives; nil is time.Now.
	Clock func() time.Time
}

// Ranges know what the cluster itself uses.
type Ranges interface {
	// Get returns the ranges; the error says why they are not known yet.
	Get() (*network.ClusterRanges, error)
}

// Register adds admission to a manager: the server in every replica, and the sweeper
// in the one that leads. The context is that of the manager's life. What it returns
// says why this replica does not answer the API server yet, nil when it does.
func Register(ctx context.Context, mgr manager.Manager, o Options) (ready func() error, err error) {
	c, err := newClient(mgr.GetConfig())
	if err != nil {
		return nil, err
	}
	watches, err := newCache(mgr)
	if err != nil {
		return nil, err
	}
	log := mgr.GetLogger().WithName("admission")
	keeper := newKeeper(c, o, log)
	known, desk := newCatalog(), reserve.New(ctx, store{c}, leftOut(log))
	sweeper := &sweeper{reader: c, desk: desk, log: log, wake: make(chan struct{}, 1), home: o.Namespace}
	press := newPresser(c, log)
	chosen := &subnets{reader: c, desk: desk, ranges: o.Ranges}
	server := newServer(o, keeper, handlers{
		"assign.tenantnetworks.danm.io": &assigner{reader: c, catalog: known, desk: desk, subnets: chosen},
		"networks.danm.io":              &networks{reader: c, catalog: known, presser: press, subnets: chosen},
		"tenantconfigs.danm.io":         &tenantConfigs{reader: c},
		"pods.danm.io":                  &pods{reader: c, catalog: known, scheme: o.NamingScheme, subnets: chosen},
		"services.danm.io":              services{},
	})
	judge := &referee{client: c, catalog: known, log: log}
	follower := newFollower(watches, c, known, sweeper.gone)
	for _, part := range []manager.Runnable{keeper, server, watches, follower, sweeper, judge, press} {
		if err := mgr.Add(part); err != nil {
			return nil, fmt.Errorf("add admission: %w", err)
		}
	}
	return func() error {
		_, err := chosen.used()
		return errors.Join(err, answers(keeper, known, server))
	}, nil
}

// newCache holds the metadata of networks, for the follower alone.
func newCache(mgr manager.Manager) (cache.Cache, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: scheme, Mapper: newMapper(), DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("make cache of networks: %w", err)
	}
	return c, nil
}

func newKeeper(c client.Client, o Options, log logr.Logger) *cert.Keeper {
	host := ServiceName + "." + o.Namespace + ".svc"
	return cert.NewKeeper(cert.Config{
		Client: c, Namespace: o.Namespace, Secret: SecretName, Hosts: append([]string{host}, o.MoreHosts...),
		Mutating: []string{ConfigurationName}, Validating: []string{ConfigurationName}, Log: log, Now: o.Clock,
	})
}

// leftOut logs the TenantConfigs that nothing is given of.
func leftOut(log logr.Logger) func(string, error) {
	return func(config string, why error) {
		log.Error(why, "Nothing is assigned from a TenantConfig until it is mended", "tenantConfig", config)
	}
}

// handlers by the webhook's name, which is the first part of its path.
type handlers map[string]admission.Handler

func newServer(o Options, keeper *cert.Keeper, all handlers) crwebhook.Server {
	s := crwebhook.NewServer(crwebhook.Options{
		Host: o.Host, Port: o.Port, WebhookMux: http.NewServeMux(),
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS13
			c.GetCertificate = keeper.Get
		}},
	})
	for name, h := range all {
		s.Register("/"+name+"/", keeper.Guard(finishOnShutdown(&admission.Webhook{Handler: h})))
	}
	return s
}

// answerTimeout is the longest timeoutSeconds in deployments/webhooks.
const answerTimeout = 10 * time.Second

// finishOnShutdown lets requests that are under way at shutdown finish. controller-runtime
// cancels their contexts together with the server's, and then waits for their answers: each
// would be an error, which rejects the object.
func finishOnShutdown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), answerTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// errUntrusted says what comes before the API server's first question.
var errUntrusted = errors.New("the webhook configurations do not have the certificate authority yet: are they installed, and RBAC in place?")

// answers returns what an answer of this replica lacks.
func answers(keeper *cert.Keeper, known *catalog, server crwebhook.Server) error {
	if !keeper.Trusted() {
		return errUntrusted
	}
	if err := known.ready(); err != nil {
		return err
	}
	return server.StartedChecker()(nil) // it asks this very server, with TLS
}
