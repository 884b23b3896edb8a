// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// server serves one resource to kubelet.
type server struct {
	pluginapi.UnimplementedDevicePluginServer

	resource Resource
	sysfs    sysfs
	interval time.Duration
	log      *slog.Logger
	grpc     *grpc.Server
}

// start listens on the resource's socket in a folder.
func (s *server) start(dir string) error {
	path := filepath.Join(dir, s.endpoint())
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("resource %s: remove the former socket: %w", s.resource.Name, err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("resource %s: %w", s.resource.Name, err)
	}
	s.grpc = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(s.grpc, s)
	go func() {
		if err := s.grpc.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.log.Error("Failed to serve a resource", "resource", s.resource.Name, "err", err)
		}
	}()
	return nil
}

// endpoint is the name of the resource's socket.
func (s *server) endpoint() string {
	return strings.ReplaceAll(s.resource.Name, "/", "_") + ".sock"
}

// stop ends all requests and removes the socket.
func (s *server) stop() { s.grpc.Stop() }

// GetDevicePluginOptions implements pluginapi.DevicePluginServer.
func (s *server) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch sends the functions of the resource, and sends them again when they change. While sysfs
// cannot be read, as before the physical function has its netdev, there are none.
func (s *server) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	ticker := time.NewTicker(s.interval)
	defer ticker.Stop()
	for sent := (*pluginapi.ListAndWatchResponse)(nil); ; {
		devices, err := s.sysfs.devices(s.resource)
		if next := (&pluginapi.ListAndWatchResponse{Devices: devices}); sent == nil || !proto.Equal(sent, next) {
			if err != nil {
				s.log.Error("Failed to read functions", "resource", s.resource.Name, "err", err)
			}
			if err := stream.Send(next); err != nil {
				return err
			}
			sent = next
			s.log.Info("Sent functions", "resource", s.resource.Name, "functions", len(devices))
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Allocate returns what the containers get with their functions.
func (s *server) Allocate(_ context.Context, req *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	devices, err := s.sysfs.devices(s.resource)
	if err != nil {
		return nil, err
	}
	answer := &pluginapi.AllocateResponse{}
	for _, container := range req.GetContainerRequests() {
		for _, id := range container.GetDevicesIds() {
			known := func(d *pluginapi.Device) bool { return d.GetID() == id && d.GetHealth() == pluginapi.Healthy }
			if !slices.ContainsFunc(devices, known) {
				return nil, fmt.Errorf("resource %s: function %s: must exist", s.resource.Name, id)
			}
		}
		nodes, err := s.deviceNodes(container.GetDevicesIds())
		if err != nil {
			return nil, err
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			Envs:    map[string]string{variable(s.resource.Name): strings.Join(container.GetDevicesIds(), ",")},
			Devices: nodes,
		})
	}
	return answer, nil
}

// variable returns the name of the environment variable with the functions of a resource, as
// sriov-network-device-plugin forms it.
func variable(resource string) string {
	return "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(resource))
}

// deviceNodes returns the device nodes of the functions that userspace drives.
func (s *server) deviceNodes(addresses []string) ([]*pluginapi.DeviceSpec, error) {
	var paths []string
	for _, address := range addresses {
		group, err := s.sysfs.vfioGroup(address)
		if err != nil {
			return nil, fmt.Errorf("resource %s: %w", s.resource.Name, err)
		}
		if group != "" {
			paths = append(paths, "/dev/vfio/vfio", "/dev/vfio/"+group)
		}
	}
	slices.Sort(paths)
	var nodes []*pluginapi.DeviceSpec
	for _, path := range slices.Compact(paths) {
		nodes = append(nodes, &pluginapi.DeviceSpec{HostPath: path, ContainerPath: path, Permissions: "rw"})
	}
	return nodes, nil
}
