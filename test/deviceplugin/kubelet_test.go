// SPDX-License-Identifier: Apache-2.0

package deviceplugin_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// waitTimeout is the time for an event that must come.
const waitTimeout = 20 * time.Second

// fakeKubelet registers device plugins. Like kubelet, it calls the plugin back before it answers.
type fakeKubelet struct {
	pluginapi.UnimplementedRegistrationServer

	t       *testing.T
	dir     string
	server  *grpc.Server
	plugins chan registration
}

// registration is a plugin that has registered.
type registration struct {
	request *pluginapi.RegisterRequest
	plugin  pluginapi.DevicePluginClient
}

// startKubelet starts a kubelet. Like kubelet, it first deletes everything in its folder of plugins.
func startKubelet(t *testing.T, dir string) *fakeKubelet {
	t.Helper()
	sockets, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, socket := range sockets {
		if err := os.Remove(socket); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "kubelet.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false) // as after SIGKILL
	k := &fakeKubelet{t: t, dir: dir, server: grpc.NewServer(), plugins: make(chan registration, 10)}
	pluginapi.RegisterRegistrationServer(k.server, k)
	go func() {
		if err := k.server.Serve(listener); err != nil {
			t.Errorf("fake kubelet: %v", err)
		}
	}()
	t.Cleanup(k.server.Stop)
	return k
}

// Register implements pluginapi.RegistrationServer.
func (k *fakeKubelet) Register(ctx context.Context, req *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	conn, err := grpc.NewClient("unix:"+filepath.Join(k.dir, req.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	k.t.Cleanup(func() { _ = conn.Close() })
	plugin := pluginapi.NewDevicePluginClient(conn)
	if _, err := plugin.GetDevicePluginOptions(ctx, &pluginapi.Empty{}); err != nil {
		return nil, err
	}
	k.plugins <- registration{request: req, plugin: plugin}
	return &pluginapi.Empty{}, nil
}

// wait returns the next plugin that registers.
func (k *fakeKubelet) wait() registration {
	k.t.Helper()
	select {
	case r := <-k.plugins:
		return r
	case <-time.After(waitTimeout):
		k.t.Fatal("no plugin registered in time")
		return registration{}
	}
}

// watch lists the plugin's devices, and returns a function that waits for the next list.
func (r registration) watch(t *testing.T) (next func() []*pluginapi.Device) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	t.Cleanup(cancel)
	stream, err := r.plugin.ListAndWatch(ctx, &pluginapi.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	return func() []*pluginapi.Device {
		t.Helper()
		answer, err := stream.Recv()
		if err != nil {
			t.Fatalf("ListAndWatch: %v", err)
		}
		return answer.GetDevices()
	}
}
