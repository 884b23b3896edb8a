// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/test/lab/controlplane"
	"github.com/patchbay-cni/patchbay/test/lab/guest"
)

// ErrNoPart says that there is nothing of that name to restart.
var ErrNoPart = errors.New("no such part")

// Restart ends a part and starts it again: a program of the control plane, patchbayd on
// all nodes or patchbay-controller, with the images that were built last, or
// NODE/SERVICE for containerd and kubelet of a node. It returns when the part is ready; services of nodes come back by
// themselves.
func (l *Lab) Restart(ctx context.Context, part string) error {
	if name, service, ok := strings.Cut(part, "/"); ok {
		return l.restartService(ctx, name, service)
	}
	if part == productDaemon || part == productManager {
		return l.restartProduct(ctx, part)
	}
	plane, err := l.plane()
	if err != nil {
		return err
	}
	if !slices.Contains(plane.Parts(), controlplane.Part(part)) {
		return fmt.Errorf("restart %s: %w: want one of %v, patchbayd, patchbay-controller, NODE/containerd, NODE/kubelet", part, ErrNoPart, plane.Parts())
	}
	return plane.Restart(ctx, controlplane.Part(part))
}

// StopPart ends a program of the control plane politely; what it served is refused
// until StartPart. One that does not run is fine.
func (l *Lab) StopPart(ctx context.Context, part string) error {
	plane, err := l.plane()
	if err != nil {
		return err
	}
	return plane.StopPart(ctx, controlplane.Part(part))
}

// StartPart starts a program of the control plane that does not run, and waits until
// it is ready.
func (l *Lab) StartPart(ctx context.Context, part string) error {
	plane, err := l.plane()
	if err != nil {
		return err
	}
	return plane.StartPart(ctx, controlplane.Part(part))
}

func (l *Lab) restartService(ctx context.Context, name, service string) error {
	if service != "containerd" && service != "kubelet" {
		return fmt.Errorf("restart %s of %s: %w: want containerd or kubelet", service, name, ErrNoPart)
	}
	_, err := l.Exec(ctx, name, "sh", "-ec", `kill "$(cat "$0")"`, guest.ServiceDir+"/"+service+".pid")
	return err
}
