// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	// kubeletSocket is the name of the socket at which kubelet registers device plugins.
	kubeletSocket = "kubelet.sock"
	// registerTimeout is the time for the registration of one resource.
	registerTimeout = 5 * time.Second
	// retryInterval is the time after a failed registration.
	retryInterval = time.Second
)

// Main reads the command line and runs the plugin until ctx ends. It logs to stderr.
func Main(ctx context.Context, args []string, stderr io.Writer) error {
	o, err := ParseOptions(args, stderr)
	if err != nil {
		return err
	}
	return Run(ctx, o)
}

// Run advertises the resources to kubelet, and to the kubelets that come after it, until ctx ends.
func Run(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return fmt.Errorf("make kubelet's folder: %w", err)
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch kubelet's folder: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	if err := watcher.Add(o.Dir); err != nil {
		return fmt.Errorf("watch %s: %w", o.Dir, err)
	}
	p := &plugin{Options: o}
	defer p.stop()
	for {
		var retry <-chan time.Time
		if err := p.sync(ctx); err != nil {
			o.Log.Error("Failed to register", "err", err)
			retry = time.After(retryInterval)
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-watcher.Errors:
			return fmt.Errorf("watch %s: %w", o.Dir, err)
		case <-watcher.Events:
		case <-retry:
		}
	}
}

// plugin serves the resources.
type plugin struct {
	Options

	// kubelet is the socket of the kubelet at which the resources are registered.
	kubelet os.FileInfo
	servers []*server
}

// sync registers the resources, unless they are registered at the present kubelet. A kubelet that
// restarts has deleted the sockets of the resources.
func (p *plugin) sync(ctx context.Context) error {
	path := filepath.Join(p.Dir, kubeletSocket)
	kubelet, err := os.Stat(path)
	if os.IsNotExist(err) {
		return nil // until kubelet makes it
	}
	if err != nil {
		return err
	}
	if p.kubelet != nil && os.SameFile(kubelet, p.kubelet) && kubelet.ModTime().Equal(p.kubelet.ModTime()) {
		return nil
	}
	p.stop()
	for _, r := range p.Resources {
		s := &server{resource: r, sysfs: sysfs(p.Sysfs), interval: p.Interval, log: p.Log}
		if err := s.start(p.Dir); err != nil {
			return err
		}
		p.servers = append(p.servers, s)
		if err := register(ctx, path, s); err != nil {
			return fmt.Errorf("resource %s: register at kubelet: %w", r.Name, err)
		}
		p.Log.Info("Registered", "resource", r.Name)
	}
	p.kubelet = kubelet
	return nil
}

// stop ends the servers.
func (p *plugin) stop() {
	for _, s := range p.servers {
		s.stop()
	}
	p.servers, p.kubelet = nil, nil
}

// register tells kubelet the resource's socket. Kubelet connects to it before it answers.
func register(ctx context.Context, path string, s *server) error {
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: s.endpoint(), ResourceName: s.resource.Name,
	})
	return err
}
