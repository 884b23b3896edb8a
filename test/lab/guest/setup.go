// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/patchbay-cni/patchbay/test/lab/remote"
)

// work does all that the spec says and returns when the guest shall end.
func work(path string) error {
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
	return spec.serve()
}

// serve runs agent and services until the agent fails, which it should not.
func (s Spec) serve() error {
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
