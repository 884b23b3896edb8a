// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// Plane is an API server with what runs beside it.
type Plane struct {
	// ControlPlane is the control plane, for tests that stop or break it.
	ControlPlane *controlplane.ControlPlane
	// Config is the admin's client configuration.
	Config *rest.Config
	// Client is the admin's client; it knows all kinds by discovery.
	Client client.WithWatch

	bin, dir string

	mu       sync.Mutex
	programs []process.ID
}

//go:embed audit.yaml
var auditPolicy []byte

func (p *Plane) close(ctx context.Context) error {
	var errs []error
	for _, id := range p.programs {
		errs = append(errs, id.Kill(ctx))
	}
	return errors.Join(append(errs, p.ControlPlane.Kill(ctx, p.ControlPlane.Parts()...))...)
}

// Close ends a spare API server.
func (p *Plane) Close(ctx context.Context) error { return p.close(ctx) }

// Dir is where the API server and the programs beside it have their files.
func (p *Plane) Dir() string { return p.dir }

// StartProgram starts a program of ours that ends with this API server, if not before. Its log is
// <name>.log in Dir.
func (p *Plane) StartProgram(name string, env []string, args ...string) (process.ID, error) {
	return p.startProgramWithEnv(name, env, args...)
}

// startProgram starts a program beside the API server. Its log is <name>.log.
func (p *Plane) startProgram(name string, args ...string) (process.ID, error) {
	return p.startProgramWithEnv(name, nil, args...)
}

// startProgramWithEnv does so with more environment.
func (p *Plane) startProgramWithEnv(name string, env []string, args ...string) (process.ID, error) {
	id, err := process.Start(process.Spec{
		Args: args, Dir: p.dir, Log: filepath.Join(p.dir, name+".log"), DieWithParent: true,
		Env: append([]string{"HOME=" + p.dir}, env...),
	})
	if err != nil {
		return id, fmt.Errorf("start %s: %w", name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.programs = append(p.programs, id)
	return id, nil
}

// Kubectl runs kubectl as the admin and returns all that it prints.
func (p *Plane) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, "kubectl"), args...)
	// HOME is where kubectl caches discovery, which another server must not see.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.ControlPlane.AdminKubeconfig(), "HOME="+p.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}

// startControllers starts a controller manager beside an API server that is ready: one
// that comes too early gives up after ten seconds.
func (p *Plane) startControllers(args ...string) error {
	_, err := p.startProgram("kube-controller-manager", append([]string{
		filepath.Join(p.bin, "kube-controller-manager"),
		"--kubeconfig=" + filepath.Join(p.dir, "kube-controller-manager.kubeconfig"), "--secure-port=0", "--leader-elect=false",
		"--kube-api-qps=500", "--kube-api-burst=1000", "--use-service-account-credentials=true",
		"--service-account-private-key-file=" + filepath.Join(p.dir, "sa.key"), "--root-ca-file=" + filepath.Join(p.dir, "ca.crt"),
		"--cluster-signing-cert-file=" + filepath.Join(p.dir, "ca.crt"), "--cluster-signing-key-file=" + filepath.Join(p.dir, "ca.key"),
	}, args...)...)
	return err
}

// startScheduler starts a scheduler.
func (p *Plane) startScheduler() error {
	_, err := p.startProgram("kube-scheduler", filepath.Join(p.bin, "kube-scheduler"),
		"--kubeconfig="+filepath.Join(p.dir, "kube-scheduler.kubeconfig"), "--secure-port=0", "--leader-elect=false")
	return err
}

// UserKubeconfig writes a kubeconfig for a user of this API server and returns its path.
func (p *Plane) UserKubeconfig(user string, groups ...string) (string, error) {
	raw, err := p.ControlPlane.Kubeconfig(user, groups...)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(p.dir, "user-*.kubeconfig")
	if err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	_, err = f.Write(raw)
	return f.Name(), errors.Join(err, f.Close())
}

// tokenTTL is longer than any test.
const tokenTTL = 24 * time.Hour

// AccountConfig is how a service account reaches this API server: with a token of its
// own, and the rights that it was given.
func (p *Plane) AccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	seconds := int64(tokenTTL.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if err := p.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("make token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(p.Config)
	config.BearerToken = request.Status.Token
	return config, nil
}

// AccountKubeconfig writes a kubeconfig for a service account and returns its path.
func (p *Plane) AccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	config, err := p.AccountConfig(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(p.dir, name+"-")
	if err != nil {
		return "", fmt.Errorf("make folder: %w", err)
	}
	file := filepath.Join(dir, "kubeconfig")
	err = clientcmd.WriteToFile(api.Config{
		Clusters:       map[string]*api.Cluster{"this": {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos:      map[string]*api.AuthInfo{name: {Token: config.BearerToken}},
		Contexts:       map[string]*api.Context{"this": {Cluster: "this", AuthInfo: name}},
		CurrentContext: "this",
	}, file)
	if err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return file, nil
}

// APIServer is one more API server of the hub, on the same etcd.
type APIServer struct {
	process.ID

	// URL is its address.
	URL string
}

// StartAPIServer starts it as the first was started, but for port and audit log.
func (p *Plane) StartAPIServer(ctx context.Context) (*APIServer, error) {
	args, err := p.apiServerArgs()
	if err != nil {
		return nil, err
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	free, err := controlplane.FreePort(loopback)
	if err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(loopback, free)
	name := fmt.Sprintf("kube-apiserver-%d", free)
	s := &APIServer{URL: "https://" + at.String()}
	audit := "--audit-log-path=" + filepath.Join(p.dir, name+"."+auditFile)
	if s.ID, err = p.startProgram(name, append(args, fmt.Sprintf("--secure-port=%d", free), audit)...); err != nil {
		return nil, err
	}
	return s, s.awaitReady(ctx, p.Config)
}

// apiServerArgs is the command line of the API server that runs.
func (p *Plane) apiServerArgs() ([]string, error) {
	raw, err := os.ReadFile(filepath.Join(p.dir, string(controlplane.APIServer)+".pid"))
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	var id process.ID
	if err := json.Unmarshal(raw, &id); err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.PID))
	if err != nil {
		return nil, fmt.Errorf("read the API server's command line: %w", err)
	}
	return strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00"), nil
}

// awaitReady waits until it is ready, or has ended.
func (s *APIServer) awaitReady(ctx context.Context, admin *rest.Config) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	config := rest.CopyConfig(admin)
	config.Host = s.URL
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for {
		err := d.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		if err == nil {
			return nil
		}
		if !s.Alive() {
			return fmt.Errorf("await %s: %w (last: %w)", s.URL, process.ErrGone, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w (last: %w)", s.URL, ctx.Err(), err)
		case <-time.After(pollInterval):
		}
	}
}

// AuditLog starts at the log's present end.
func (p *Plane) AuditLog() (*AuditReader, error) {
	l := &AuditReader{file: filepath.Join(p.dir, auditFile)}
	info, err := os.Stat(l.file)
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find audit log: %w", err)
	}
	l.offset = info.Size()
	return l, nil
}
