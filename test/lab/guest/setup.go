// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

// setUpAndRun does all that the spec says and returns when the guest shall end.
func setUpAndRun(path string) error {
	spec, err := load(path)
	if err != nil {
		return err
	}
	if err := spec.setup(); err != nil {
		return err
	}
	if spec.Run != nil {
		return spec.Run.run(spec.Env)
	}
	return spec.runServices()
}

func (s Spec) setup() error {
	if err := unix.Sethostname([]byte(s.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if err := s.loadModules(); err != nil {
		return err
	}
	for _, m := range s.Mounts {
		if err := m.mount(); err != nil {
			return err
		}
	}
	// As on any machine that systemd has booted: Kubernetes' mount propagation needs it.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	if err := nameCards(s.Cards); err != nil {
		return err
	}
	for _, args := range s.Setup {
		if err := command(args, s.Env); err != nil {
			return err
		}
	}
	return nil
}

func (s Spec) loadModules() error {
	if len(s.Modules) == 0 {
		return nil
	}
	return command(append([]string{"/sbin/modprobe", "--dirname", s.ModuleRoot, "--all", "--"}, s.Modules...), nil)
}

func command(args, env []string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (m Mount) mount() error {
	if err := m.target(); err != nil {
		return err
	}
	var flags uintptr
	kind := m.Type
	switch kind {
	case "bind":
		flags, kind = unix.MS_BIND, ""
	case "rbind":
		flags, kind = unix.MS_BIND|unix.MS_REC, ""
	}
	if m.ReadOnly && kind != "" {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount(m.Source, m.Target, kind, flags, m.Data); err != nil {
		return fmt.Errorf("mount %s %s on %s: %w", m.Type, m.Source, m.Target, err)
	}
	if m.ReadOnly && kind == "" { // a bind mount takes this flag only the second time
		if err := unix.Mount("", m.Target, "", flags|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("make %s read-only: %w", m.Target, err)
		}
	}
	for _, f := range m.Folders {
		if err := os.MkdirAll(m.Target+"/"+f, 0o755); err != nil {
			return fmt.Errorf("prepare %s: %w", m.Target, err)
		}
	}
	return nil
}

// target makes the mount point, unless it is there already, be it folder or file.
func (m Mount) target() error {
	if _, err := os.Stat(m.Target); err == nil {
		return nil
	}
	if err := os.MkdirAll(m.Target, 0o755); err != nil {
		return fmt.Errorf("make mount point: %w", err)
	}
	return nil
}

// runServices runs agent and services until the agent fails, which it should not.
func (s Spec) runServices() error {
	if s.Agent == nil {
		return errors.New("serve: no agent")
	}
	l, err := s.Agent.listen()
	if err != nil {
		return err
	}
	go startServices(s.Services, s.Env)
	return remote.Server{Env: s.Env}.Serve(l)
}
