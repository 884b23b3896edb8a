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

	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/controller/internal/webhook/cert"
	"github.com/patchbay-cni/patchbay/internal/network"
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
	// ExtraHosts are names or addresses of the server besides those of the Service.
	ExtraHosts []string
	// NamingScheme is that of the CNI configuration; see network.InterfaceNames.
	NamingScheme string
	// Ranges are what the cluster itself uses, and no tenant; nil for nothing.
	Ranges ClusterRanges
	// Clock is for the certificates' lives; nil is time.Now.
	Clock func() time.Time
}

// ClusterRanges know what the cluster itself uses.
type ClusterRanges interface {
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
	watches, err := newNetworkCache(mgr)
	if err != nil {
		return nil, err
	}
	log := mgr.GetLogger().WithName("admission")
	keeper := newCertRotator(c, o, log)
	known, desk := newNetworkIndex(), reserve.New(ctx, tenantConfigStore{c}, logIgnoredTenantConfig(log))
	sweeper := &reservationGC{reader: c, allocator: desk, log: log, wake: make(chan struct{}, 1), controllerNamespace: o.Namespace}
	press := newReclaimRequester(c, log)
	chosen := &subnetValidator{reader: c, allocator: desk, ranges: o.Ranges}
	server := newServer(o, keeper, handlersByName{
		"assign.tenantnetworks.danm.io": &tenantNetworkAssigner{reader: c, index: known, allocator: desk, subnets: chosen},
		"networks.danm.io":              &networkValidator{reader: c, index: known, reclaims: press, subnets: chosen},
		"tenantconfigs.danm.io":         &tenantConfigValidator{reader: c},
		"pods.danm.io":                  &podValidator{reader: c, index: known, namingScheme: o.NamingScheme, subnets: chosen},
		"services.danm.io":              serviceValidator{},
	})
	judge := &conflictReporter{client: c, index: known, log: log}
	follower := newNetworkInformer(watches, c, known, sweeper.onNetworkDeleted)
	for _, part := range []manager.Runnable{keeper, server, watches, follower, sweeper, judge, press} {
		if err := mgr.Add(part); err != nil {
			return nil, fmt.Errorf("add admission: %w", err)
		}
	}
	return func() error {
		_, err := chosen.clusterRanges()
		return errors.Join(err, checkReady(keeper, known, server))
	}, nil
}

// newNetworkCache holds the metadata of networks, for the follower alone.
func newNetworkCache(mgr manager.Manager) (cache.Cache, error) {
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

func newCertRotator(c client.Client, o Options, log logr.Logger) *cert.Rotator {
	host := ServiceName + "." + o.Namespace + ".svc"
	return cert.NewRotator(cert.Config{
		Client: c, Namespace: o.Namespace, Secret: SecretName, Hosts: append([]string{host}, o.ExtraHosts...),
		Mutating: []string{ConfigurationName}, Validating: []string{ConfigurationName}, Log: log, Now: o.Clock,
	})
}

// logIgnoredTenantConfig logs the TenantConfigs that nothing is given of.
func logIgnoredTenantConfig(log logr.Logger) func(string, error) {
	return func(config string, why error) {
		log.Error(why, "Nothing is assigned from a TenantConfig until it is mended", "tenantConfig", config)
	}
}

// handlersByName by the webhook's name, which is the first part of its path.
type handlersByName map[string]admission.Handler

func newServer(o Options, keeper *cert.Rotator, all handlersByName) crwebhook.Server {
	s := crwebhook.NewServer(crwebhook.Options{
		Host: o.Host, Port: o.Port, WebhookMux: http.NewServeMux(),
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS13
			c.GetCertificate = keeper.GetCertificate
		}},
	})
	for name, h := range all {
		s.Register("/"+name+"/", keeper.RequireToken(finishOnShutdown(&admission.Webhook{Handler: h})))
	}
	return s
}

// maxWebhookTimeout is the longest timeoutSeconds in deployments/webhooks.
const maxWebhookTimeout = 10 * time.Second

// finishOnShutdown lets requests that are under way at shutdown finish. controller-runtime
// cancels their contexts together with the server's, and then waits for their answers: each
// would be an error, which rejects the object.
func finishOnShutdown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), maxWebhookTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// errCANotInjected says what comes before the API server's first question.
var errCANotInjected = errors.New("the webhook configurations do not have the certificate authority yet: are they installed, and RBAC in place?")

// checkReady returns what an answer of this replica lacks.
func checkReady(keeper *cert.Rotator, known *networkIndex, server crwebhook.Server) error {
	if !keeper.CAInjected() {
		return errCANotInjected
	}
	if err := known.checkSynced(); err != nil {
		return err
	}
	return server.StartedChecker()(nil) // it asks this very server, with TLS
}
