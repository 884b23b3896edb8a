// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/process"
)

// Plane is an API server with what runs beside it.
type Plane struct {
	// Control is the control plane, for tests that stop or break it.
	Control *controlplane.ControlPlane
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

// startPlane starts a control plane that keeps an audit log.
func (b *Bed) startPlane(ctx context.Context, config controlplane.Config) (*Plane, error) {
	config.Bin, config.Tied = filepath.Join(b.root, "bin", "kubernetes"), true
	if err := os.MkdirAll(config.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	policy := filepath.Join(config.Dir, "audit-policy.yaml")
	rules := auditPolicy
	if b.config.APIServersOnly { // what was written counts there, not its contents
		rules = bytes.ReplaceAll(rules, []byte("level: RequestResponse"), []byte("level: Metadata"))
	}
	if err := os.WriteFile(policy, rules, 0o600); err != nil {
		return nil, fmt.Errorf("write audit policy: %w", err)
	}
	if config.ExtraArgs == nil {
		config.ExtraArgs = map[controlplane.Part][]string{}
	}
	config.ExtraArgs[controlplane.APIServer] = append(config.ExtraArgs[controlplane.APIServer],
		"--audit-policy-file="+policy, "--audit-log-path="+filepath.Join(config.Dir, auditFile), "--audit-log-mode=blocking",
		// Debian's etcd 3.4 cannot serve streamed lists. Told so, clients list; else KWOK
		// asks again and again, and hears of changes a minute late.
		"--feature-gates=WatchList=false")
	control, err := controlplane.Start(ctx, config)
	if err != nil {
		return nil, err
	}
	p := &Plane{Control: control, Config: control.RESTConfig(), bin: config.Bin, dir: config.Dir}
	if p.Client, err = client.NewWithWatch(p.Config, client.Options{Scheme: Scheme()}); err != nil {
		return nil, errors.Join(fmt.Errorf("make client: %w", err), p.close(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func (p *Plane) close(ctx context.Context) error {
	var errs []error
	for _, id := range p.programs {
		errs = append(errs, id.Kill(ctx))
	}
	return errors.Join(append(errs, p.Control.Kill(ctx, p.Control.Parts()...))...)
}

// run starts a program beside the API server. Its log is <name>.log.
func (p *Plane) run(name string, args ...string) (process.ID, error) {
	return p.runEnv(name, nil, args...)
}

// runEnv does so with more environment.
func (p *Plane) runEnv(name string, env []string, args ...string) (process.ID, error) {
	id, err := process.Start(process.Spec{
		Args: args, Dir: p.dir, Log: filepath.Join(p.dir, name+".log"), Tied: true,
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
	cmd.Env = append(os.Environ(), "KUBECONFIG="+p.Control.AdminKubeconfig(), "HOME="+p.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("kubectl %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}

// UserKubeconfig writes a kubeconfig for a user of this API server and returns its path.
func (p *Plane) UserKubeconfig(user string, groups ...string) (string, error) {
	raw, err := p.Control.Kubeconfig(user, groups...)
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

// startControllers starts a controller manager beside an API server that is ready: one
// that comes too early gives up after ten seconds.
func (p *Plane) startControllers(args ...string) error {
	_, err := p.run("kube-controller-manager", append([]string{
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
	_, err := p.run("kube-scheduler", filepath.Join(p.bin, "kube-scheduler"),
		"--kubeconfig="+filepath.Join(p.dir, "kube-scheduler.kubeconfig"), "--secure-port=0", "--leader-elect=false")
	return err
}
