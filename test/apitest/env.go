// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/patchbay-cni/patchbay/api/danm/v1"
	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/source"
)

// startTimeout bounds the start of a control plane, on a machine where other test
// binaries start theirs.
const startTimeout = 5 * time.Minute

// Env is a running API server, ready for Patchbay's objects.
type Env struct {
	// ControlPlane is the control plane, for tests that stop or break it (see New).
	ControlPlane *controlplane.ControlPlane
	// Config is the admin's client configuration.
	Config *rest.Config
	// Client is the admin's client. It knows Kubernetes' kinds and Patchbay's, reads
	// past any cache, and is not throttled.
	Client client.WithWatch

	dir, bin string
}

// New returns an API server for this test alone (see Pool).
func New(tb testing.TB) *Env {
	tb.Helper()
	return shared.alone.New(tb)
}

// NewOldest is New with the oldest Kubernetes that Patchbay runs on.
func NewOldest(tb testing.TB) *Env {
	tb.Helper()
	return create(tb, launchOldest)
}

func create(tb testing.TB, launch func(context.Context) (*Env, error)) *Env {
	tb.Helper()
	env, err := launch(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := env.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	return env
}

// Launch starts an API server for a program that is no test. Close ends it.
func Launch(ctx context.Context) (*Env, error) { return launch(ctx, controlplane.Config{}) }

// LaunchWithFlags is Launch with flags for kube-apiserver, which have precedence.
func LaunchWithFlags(ctx context.Context, flags ...string) (*Env, error) {
	return launch(ctx, controlplane.Config{ExtraArgs: map[controlplane.Part][]string{controlplane.APIServer: flags}})
}

func launchOldest(ctx context.Context) (*Env, error) {
	return launch(ctx, controlplane.Config{Bin: "oldest"})
}

// launchWithControllers runs Kubernetes' controllers that decide about others' objects and
// rights, and starts them again after the installation: the garbage collector looks for
// new definitions every 30 s only.
func launchWithControllers(ctx context.Context) (*Env, error) {
	const manager = controlplane.ControllerManager
	controllers := "--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller," +
		"root-ca-certificate-publisher-controller,clusterrole-aggregation-controller"
	env, err := launch(ctx, controlplane.Config{
		ControllerManager: true, ExtraArgs: map[controlplane.Part][]string{manager: {controllers}},
	})
	if err != nil {
		return nil, err
	}
	if err := env.ControlPlane.Restart(ctx, manager); err != nil {
		return nil, errors.Join(err, env.Close(context.WithoutCancel(ctx)))
	}
	return env, nil
}

// launch starts a control plane with the programs of a folder below bin/kubernetes.
func launch(ctx context.Context, config controlplane.Config) (*Env, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	bin, err := source.Path("bin", "kubernetes")
	if err != nil {
		return nil, err
	}
	// The usual folder for temporary files keeps the path short: etcd's socket is in it.
	dir, err := os.MkdirTemp("", "apitest")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	env := &Env{dir: dir, bin: bin}
	config.Dir, config.Bin, config.DieWithParent = dir, filepath.Join(bin, config.Bin), true
	env.ControlPlane, err = controlplane.Start(ctx, config)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := env.prepare(ctx); err != nil {
		return nil, errors.Join(err, env.Close(context.WithoutCancel(ctx)))
	}
	return env, nil
}

// prepare makes the client and installs what deployments/ has.
func (e *Env) prepare(ctx context.Context) error {
	e.Config = e.ControlPlane.RESTConfig()
	var err error
	if e.Client, err = newClient(e.Config); err != nil {
		return err
	}
	if err := install(ctx, e.Client); err != nil {
		return err
	}
	if err := awaitDefinitionsServed(ctx, e.Config, e.Client); err != nil {
		return err
	}
	return awaitRBAC(ctx, e.Client)
}

// Close ends the API server and removes all that it stored.
func (e *Env) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return errors.Join(e.ControlPlane.Destroy(ctx), os.RemoveAll(e.dir))
}

// Kubectl runs kubectl as the admin and returns what it prints on standard output.
func (e *Env) Kubectl(tb testing.TB, args ...string) string {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), filepath.Join(e.bin, "kubectl"), args...)
	// HOME is where kubectl caches discovery, which another server must not see.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+e.ControlPlane.AdminKubeconfig(), "HOME="+e.dir)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		tb.Fatalf("kubectl %v: %v\n%s", args, err, exit.Stderr)
	}
	if err != nil {
		tb.Fatalf("kubectl %v: %v", args, err)
	}
	return string(out)
}

// ConfigAs returns a client configuration that acts as somebody else.
func (e *Env) ConfigAs(who Identity) *rest.Config {
	config := rest.CopyConfig(e.Config)
	config.Impersonate = who
	return config
}

// As returns a client that acts as somebody else.
func (e *Env) As(tb testing.TB, who Identity) client.WithWatch {
	tb.Helper()
	c, err := newClient(e.ConfigAs(who))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// AsWithoutRetry returns a client of an identity that does not repeat requests by itself when the
// API server asks it to try again later.
func (e *Env) AsWithoutRetry(tb testing.TB, who Identity) client.WithWatch {
	tb.Helper()
	config := e.ConfigAs(who)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			answer, err := next.RoundTrip(r)
			if err == nil {
				answer.Header.Del("Retry-After")
			}
			return answer, err
		})
	})
	c, err := newClient(config)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newClient(config *rest.Config) (client.WithWatch, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("build scheme: %w", err)
		}
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// Name returns a name that no other test uses, for a cluster-scoped object.
func Name(prefix string) string {
	return fmt.Sprintf("%s-%010x", prefix, rand.Uint64()&(1<<40-1))
}

// Namespace creates a namespace for this test and returns its name.
func (e *Env) Namespace(tb testing.TB) string {
	tb.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Name("test")}}
	if err := e.Client.Create(tb.Context(), ns); err != nil {
		tb.Fatal(err)
	}
	return ns.Name
}

// Backup keeps what the API server has stored by now, as a backup of etcd does. What it
// returns puts that back. Both end the API server for a while. It is for tests with an
// API server of their own.
func (e *Env) Backup(tb testing.TB) (restore func()) {
	tb.Helper()
	data, backup := e.ControlPlane.EtcdData(), tb.TempDir()
	e.whileStopped(tb, func() error { return os.CopyFS(backup, os.DirFS(data)) })
	return func() {
		tb.Helper()
		e.whileStopped(tb, func() error {
			return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup)))
		})
	}
}

// whileStopped does something while neither etcd nor the API server run.
func (e *Env) whileStopped(tb testing.TB, do func() error) {
	tb.Helper()
	err := e.ControlPlane.Kill(tb.Context(), controlplane.APIServer, controlplane.Etcd)
	if err == nil {
		err = do()
	}
	for _, part := range []controlplane.Part{controlplane.Etcd, controlplane.APIServer} {
		err = errors.Join(err, e.ControlPlane.StartPart(tb.Context(), part))
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// Proxy starts a proxy before the API server that treats requests as choose says, which
// is called for every one, from any goroutine. It ends with the test.
func (e *Env) Proxy(tb testing.TB, choose func(*http.Request) Disruption) *Proxy {
	tb.Helper()
	p, err := newProxy(tb.Context(), e.Config, choose)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		p.WaitDelayed()
		if err := p.server.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

// Scraper returns one that has the ClusterRole patchbay-metrics-reader.
func (e *Env) Scraper(ctx context.Context) (*Scraper, error) {
	const namespace, name = "patchbay-system", "prometheus"
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "patchbay-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	for _, o := range []client.Object{account, binding} {
		if err := client.IgnoreAlreadyExists(e.Client.Create(ctx, o)); err != nil {
			return nil, fmt.Errorf("create %T: %w", o, err)
		}
	}
	right := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:                  "system:serviceaccount:" + namespace + ":" + name,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"},
	}}
	err := poll(ctx, "the right to read metrics", func(ctx context.Context) error { return checkAllowed(ctx, e.Client, right.DeepCopy()) })
	if err != nil {
		return nil, err
	}
	return e.ScraperOf(ctx, account)
}

// ScraperOf returns one with the rights that a ServiceAccount has.
func (e *Env) ScraperOf(ctx context.Context, account *corev1.ServiceAccount) (*Scraper, error) {
	token := &authenticationv1.TokenRequest{}
	if err := e.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, fmt.Errorf("make token of ServiceAccount %s/%s: %w", account.Namespace, account.Name, err)
	}
	// The programs' certificates are self-signed.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	return &Scraper{token: token.Status.Token, client: &http.Client{Transport: transport}}, nil
}
