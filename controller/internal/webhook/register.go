// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	crwebhook "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/controller/internal/reserve"
	"github.com/patchbay-cni/patchbay/internal/network"
	"github.com/patchbay-cni/patchbay/internal/servingcert"
)

// Names in deployments/webhooks.
const (
	// ConfigurationName is the name of both webhook configurations.
	ConfigurationName = "patchbay"
	// ServiceName is the Service in front of the controller.
	ServiceName = "patchbay-webhook"
	// SecretName is the Secret with the certificates.
	SecretName = "patchbay-webhook-certificates"
)

// Options configure admission.
type Options struct {
	// Namespace contains the Service and the Secret.
	Namespace string
	// Port is the port to listen on, 9443 when zero. Host is the address, all addresses when empty.
	Port int
	Host string
	// ExtraHosts are names or addresses of the server in addition to those of the Service.
	ExtraHosts []string
	// NamingScheme is the scheme of interface names in the CNI configuration; see
	// network.InterfaceNames.
	NamingScheme string
	// Ranges are the addresses that the cluster itself uses, and no tenant may; nil for none.
	Ranges ClusterRanges
	// Events gets Events about Pods that a controller creates; nil for none.
	Events EventRecorder
	// Metrics has the values of the metrics; nil for none.
	Metrics *Metrics
	// Clock is the clock of the certificates; time.Now when nil.
	Clock func() time.Time
}

// ClusterRanges returns the addresses that the cluster itself uses.
type ClusterRanges interface {
	// Get returns the ranges; the error says why they are not known yet.
	Get() (*network.ClusterRanges, error)
}

// Register adds admission to a manager: the server in every replica, and the garbage collector of
// reservations in the leader. The context ends with the manager. Ready returns why this replica
// does not answer the API server yet, nil when it does.
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
	rotator := newCertRotator(c, o, log)
	if o.Metrics != nil {
		o.Metrics.rotator.Store(rotator)
	}
	index, allocator := newNetworkIndex(), reserve.New(ctx, tenantConfigStore{c}, logIgnoredTenantConfig(log))
	gc := &reservationGC{reader: c, allocator: allocator, log: log, wake: make(chan struct{}, 1), controllerNamespace: o.Namespace}
	reclaims := newReclaimRequester(c, log)
	subnets := &subnetValidator{reader: c, allocator: allocator, ranges: o.Ranges}
	pods := network.PodChecker{NamingScheme: o.NamingScheme, NetworkOf: index.lookUp, IsInvalid: index.isInvalid, IsNodeAddress: subnets.isNodeAddress}
	nodes := newNodeIndex(mgr.GetCache())
	mutator := &podMutator{checker: pods, nodes: nodes}
	server := newServer(o, rotator, handlersByName{
		"assign.tenantnetworks.danm.io": &tenantNetworkAssigner{reader: c, index: index, allocator: allocator, subnets: subnets},
		"networks.danm.io":              &networkValidator{reader: c, index: index, reclaims: reclaims, subnets: subnets, deletions: newDeletionValidator(c, reclaims)},
		"tenantconfigs.danm.io":         &tenantConfigValidator{reader: c},
		"mutate.pods.danm.io":           mutator,
		"mutate-default.pods.danm.io":   mutator,
		"pods.danm.io":                  &podValidator{checker: pods, events: o.Events, limiter: newEventLimiter()},
		"workloads.danm.io":             &workloadValidator{checker: pods},
		"unserved.danm.io":              unservedValidator{},
		"annotations.danm.io":           annotationValidator{},
		"services.danm.io":              serviceValidator{},
	})
	conflicts := &conflictReporter{client: c, index: index, log: log}
	informer := newNetworkInformer(watches, c, index, gc.onNetworkDeleted)
	for _, part := range []manager.Runnable{rotator, server, watches, informer, nodes, gc, conflicts, reclaims} {
		if err := mgr.Add(part); err != nil {
			return nil, fmt.Errorf("add admission: %w", err)
		}
	}
	return func() error {
		_, err := subnets.clusterRanges()
		return errors.Join(err, nodes.checkSynced(), checkReady(rotator, index, server))
	}, nil
}

// Metrics are the values of this replica.
type Metrics struct {
	rotator atomic.Pointer[servingcert.Rotator]
}

// RegisterMetrics registers all metrics of the package.
func RegisterMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "patchbay_webhook_certificate_expiry_timestamp_seconds",
		Help: "Unix time at which the certificate of this replica's admission webhooks expires, NaN before it has one. It is renewed when two thirds of its lifetime are over: a value that comes closer than that means that renewal fails.",
	}, m.certificateExpiry))
	return m
}

// certificateExpiry returns when the replica's certificate expires, NaN before it has one.
func (m *Metrics) certificateExpiry() float64 {
	if rotator := m.rotator.Load(); rotator != nil {
		if expiry := rotator.NotAfter(); !expiry.IsZero() {
			return float64(expiry.Unix())
		}
	}
	return math.NaN()
}

// newClient returns a client without a cache: from an old cache, admission would reject valid
// objects and admit invalid ones.
func newClient(cfg *rest.Config) (client.Client, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// newNetworkCache returns a cache for the networkInformer, which watches the metadata of networks.
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

// newScheme returns the kinds that admission reads or writes.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, admissionv1.AddToScheme, metav1.AddMetaToScheme, v1.AddToScheme,
	} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("register kinds: %w", err)
		}
	}
	return s, nil
}

// newMapper maps those kinds to resources without discovery at the API server.
func newMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	core, ours, registration := corev1.SchemeGroupVersion, v1.SchemeGroupVersion(), admissionv1.SchemeGroupVersion
	m.Add(core.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(core.WithKind("Pod"), meta.RESTScopeNamespace)
	m.Add(core.WithKind("Secret"), meta.RESTScopeNamespace)
	m.Add(registration.WithKind("MutatingWebhookConfiguration"), meta.RESTScopeRoot)
	m.Add(registration.WithKind("ValidatingWebhookConfiguration"), meta.RESTScopeRoot)
	m.Add(ours.WithKind(v1.KindClusterNetwork), meta.RESTScopeRoot)
	m.Add(ours.WithKind(v1.KindTenantNetwork), meta.RESTScopeNamespace)
	m.Add(ours.WithKind(v1.KindDanmNet), meta.RESTScopeNamespace)
	m.Add(ours.WithKind(kindTenantConfig), meta.RESTScopeRoot)
	m.Add(ours.WithKind("DanmEp"), meta.RESTScopeNamespace)
	return m
}

func newCertRotator(c client.Client, o Options, log logr.Logger) *servingcert.Rotator {
	host := ServiceName + "." + o.Namespace + ".svc"
	return servingcert.NewRotator(servingcert.Config{
		Client: c, Namespace: o.Namespace, Secret: SecretName, Hosts: append([]string{host}, o.ExtraHosts...),
		Mutating: []string{ConfigurationName}, Validating: []string{ConfigurationName}, Log: log, Now: o.Clock,
	})
}

// logIgnoredTenantConfig logs an invalid TenantConfig, from which nothing is assigned.
func logIgnoredTenantConfig(log logr.Logger) func(string, error) {
	return func(config string, why error) {
		log.Error(why, "Ignored an invalid TenantConfig", "tenantConfig", config)
	}
}

// handlersByName are the handlers by the name of their webhook, which is the first part of its
// path.
type handlersByName map[string]admission.Handler

func newServer(o Options, rotator *servingcert.Rotator, all handlersByName) crwebhook.Server {
	s := crwebhook.NewServer(crwebhook.Options{
		Host: o.Host, Port: o.Port, WebhookMux: http.NewServeMux(),
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.MinVersion = tls.VersionTLS13
			c.GetCertificate = rotator.GetCertificate
		}},
	})
	for name, h := range all {
		s.Register("/"+name+"/", rotator.RequireToken(finishOnShutdown(&admission.Webhook{Handler: describedRejections{h}})))
	}
	return s
}

// maxWebhookTimeout is the longest timeoutSeconds in deployments/webhooks.
const maxWebhookTimeout = 10 * time.Second

// finishOnShutdown lets requests in progress finish at shutdown. controller-runtime cancels their
// contexts together with the server's, and then waits for their answers, which would all be errors
// that reject the object. The context ends when the API server waits no longer.
func finishOnShutdown(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), requestTimeout(r))
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// requestTimeout returns how long the API server waits for the answer to a request: it sends that
// with each, as the parameter "timeout".
func requestTimeout(r *http.Request) time.Duration {
	if sent, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && sent > 0 {
		return min(sent, maxWebhookTimeout)
	}
	return maxWebhookTimeout
}

// errCANotInjected is returned before the API server can call this webhook.
var errCANotInjected = errors.New("the webhook configurations do not have the certificate authority yet: check that they and the RBAC rules are installed")

// checkReady returns why this replica cannot answer.
func checkReady(rotator *servingcert.Rotator, index *networkIndex, server crwebhook.Server) error {
	if !rotator.CAInjected() {
		return errCANotInjected
	}
	if err := index.checkSynced(); err != nil {
		return err
	}
	return server.StartedChecker()(nil) // connects to this server by TLS
}
