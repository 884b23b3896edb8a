// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/patchbay-cni/patchbay/test/apitest"
	"github.com/patchbay-cni/patchbay/test/lab/process"
	"github.com/patchbay-cni/patchbay/test/source"
)

// waitTimeout bounds what takes seconds on an idle machine, or minutes with thousands of nodes.
const waitTimeout = 15 * time.Minute

// program is one of Patchbay's, with the command line of its manifest.
type program struct {
	// name is that of the program, of its ServiceAccount and of its container.
	name, namespace string
	// folder below deployments/ has its workload.
	folder, kind string
	// port of /readyz.
	port int
	// flags are added to those of the manifest.
	flags []string

	kubeconfig          string
	id                  process.ID
	readiness, liveness *corev1.Probe
}

// user is the program's name for the API server.
func (p *program) user() string { return "system:serviceaccount:" + p.namespace + ":" + p.name }

// build compiles the programs, so that none is older than its source.
func build(ctx context.Context, dir string) error {
	root, err := source.Path()
	if err != nil {
		return err
	}
	if err := source.Inputs(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", dir+"/",
		"./cmd/patchbay", "./cmd/patchbayd", "./cmd/patchbay-controller", "./cmd/patchbay-operator")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// authorize writes a kubeconfig with a token of the program's ServiceAccount. The token of a Pod names the Pod's
// node.
func (p *program) authorize(ctx context.Context, env *apitest.Env, dir string, pod *corev1.Pod) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(6 * 60 * 60))}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.name}}
	if err := env.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("make token of ServiceAccount %s/%s: %w", p.namespace, p.name, err)
	}
	server := env.ControlPlane.RESTConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData, CertificateAuthority: server.CAFile}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.CurrentContext = "bench"
	p.kubeconfig = filepath.Join(dir, p.name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, p.kubeconfig); err != nil {
		return fmt.Errorf("write kubeconfig of %s: %w", p.name, err)
	}
	return nil
}

// container returns the program's container in its manifest.
func (p *program) container() (*corev1.Container, error) {
	folder, err := source.Path("deployments", p.folder)
	if err != nil {
		return nil, err
	}
	objects, err := apitest.ReadManifests(folder)
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		if o.GetKind() != p.kind {
			continue
		}
		containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", p.kind, err)
		}
		for _, one := range containers {
			c := &corev1.Container{}
			fields, _ := one.(map[string]any)
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, c); err != nil {
				return nil, fmt.Errorf("read container of %s: %w", p.kind, err)
			}
			if c.Name == p.name {
				return c, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: %s in deployments/%s", errNoContainer, p.name, p.folder)
}

var errNoContainer = errors.New("no workload has the container")

// start runs the program until it is ready.
func (p *program) start(ctx context.Context, dir string) error {
	c, err := p.container()
	if err != nil {
		return err
	}
	fields := map[string]string{"spec.nodeName": firstNode, "status.hostIP": hostAddress, "metadata.namespace": p.namespace}
	var env, replace []string
	for _, v := range c.Env {
		value := v.Value
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil {
			value = fields[v.ValueFrom.FieldRef.FieldPath]
		}
		env, replace = append(env, v.Name+"="+value), append(replace, "$("+v.Name+")", value)
	}
	args := []string{filepath.Join(dir, p.name)}
	for _, arg := range c.Args {
		args = append(args, strings.NewReplacer(replace...).Replace(arg))
	}
	log := filepath.Join(dir, p.name+".log")
	p.id, err = process.Start(process.Spec{
		Args: append(append(args, "--kubeconfig="+p.kubeconfig), p.flags...), Env: env, Log: log, DieWithParent: true,
	})
	if err != nil {
		return err
	}
	p.readiness, p.liveness = c.ReadinessProbe, c.LivenessProbe
	err = await(ctx, p.name+" to be ready", p.checkReady)
	if err != nil {
		text, _ := os.ReadFile(log)
		return fmt.Errorf("%w\n%s", err, text[max(0, len(text)-4096):])
	}
	return nil
}

var (
	errNotReady = errors.New("not ready")
	errEnded    = errors.New("the program has ended")
)

func (p *program) checkReady(ctx context.Context) error {
	if !p.id.Alive() {
		return errEnded
	}
	return p.get(ctx, "/readyz")
}

// get requests a path of the program's health checks.
func (p *program) get(ctx context.Context, path string) error {
	address := net.JoinHostPort(hostAddress, strconv.Itoa(p.port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("%w: %s", errNotReady, answer.Status), err)
	}
	return nil
}

// probe asks for the program's health as often as a kubelet does, until ctx ends: some answers need a request to the
// API server.
func (p *program) probe(ctx context.Context) error {
	ready, live := time.NewTicker(period(p.readiness)), time.NewTicker(period(p.liveness))
	defer ready.Stop()
	defer live.Stop()
	for {
		path := p.readiness.HTTPGet.Path
		select {
		case <-ctx.Done():
			return nil
		case <-ready.C:
		case <-live.C:
			path = p.liveness.HTTPGet.Path
		}
		if err := p.get(ctx, path); err != nil && ctx.Err() == nil {
			return fmt.Errorf("probe %s: %w", p.name, err)
		}
	}
}

func period(p *corev1.Probe) time.Duration { return time.Duration(p.PeriodSeconds) * time.Second }

// stop ends the program as a kubelet does.
func (p *program) stop(ctx context.Context) error {
	if p.id.PID == 0 {
		return nil
	}
	return p.id.Stop(ctx, 30*time.Second)
}

// memory returns the resident memory in MiB, now and at its peak.
func (p *program) memory() (now, peak float64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.id.PID))
	if err != nil {
		return 0, 0, fmt.Errorf("read memory of %s: %w", p.name, err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		kib, _ := strconv.ParseFloat(fields[1], 64) // the kernel writes numbers
		switch fields[0] {
		case "VmRSS:":
			now = kib / 1024
		case "VmHWM:":
			peak = kib / 1024
		}
	}
	return now, peak, nil
}

// await polls until try succeeds.
func await(ctx context.Context, what string, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, errEnded) {
			return fmt.Errorf("await %s: %w", what, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("await %s: %w (last: %w)", what, ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
