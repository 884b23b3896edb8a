// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/patchbay-cni/patchbay/test/lab/guest"
	"github.com/patchbay-cni/patchbay/test/lab/qemu"
	"github.com/patchbay-cni/patchbay/test/lab/uml"
	"github.com/patchbay-cni/patchbay/test/lab/vm"
)

// Names in the guest's folder.
const (
	programFile = "program"
	resultFile  = "result.json"
)

// errDied says that there is no outcome.
var errDied = errors.New("the guest died")

// execute boots a guest for the program and waits for its end.
func (o options) execute(ctx context.Context, out io.Writer) (code int, err error) {
	if err := removeStaleGuests(ctx); err != nil {
		return 0, err
	}
	dir, end, err := newGuestDir(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()

	if vm.HiddenInGuest(o.program) {
		if err := linkOrCopy(o.program, filepath.Join(dir, programFile)); err != nil {
			return 0, err
		}
		o.program = vm.GuestDir + "/" + programFile
	}
	if err := o.boot(ctx, dir, out); err != nil {
		return 0, err
	}
	return result(dir)
}

// boot returns when the guest is gone and all its output was passed on.
func (o options) boot(ctx context.Context, dir string, out io.Writer) error {
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer r.Close()
	kernel, err := o.findKernel()
	if err != nil {
		return errors.Join(err, w.Close())
	}
	config, err := o.guest(dir)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	fmt.Fprintln(os.Stderr, "kerneltest:", kernel.Describe())
	config.Output = w
	id, err := kernel.Boot(config)
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(out, r)
		copied <- err
	}()
	waiting := id.Wait(ctx)
	// Helpers of the kernel may outlive it, and hold the pipe.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(waiting, vm.Kill(ending, dir), <-copied)
}

// findKernel returns the kernel of the kind that was asked for.
func (o options) findKernel() (vm.Kernel, error) {
	if o.kernel == kernelQEMU {
		return qemu.FindKernel(o.bin)
	}
	return uml.FindKernel(o.bin)
}

func (o options) guest(dir string) (vm.Config, error) {
	self, err := os.Executable()
	if err != nil {
		return vm.Config{}, fmt.Errorf("find own program: %w", err)
	}
	here, err := os.Getwd()
	if err != nil {
		return vm.Config{}, fmt.Errorf("find own folder: %w", err)
	}
	config := vm.Config{
		Dir:           dir,
		Memory:        o.memory,
		Init:          self,
		DieWithParent: true,
		// Tests read files of their module.
		Visible: []string{moduleOf(here)},
		Spec: guest.Spec{
			Hostname: "kerneltest",
			Env:      o.environment(),
			Setup:    [][]string{{"/sbin/ip", "link", "set", "lo", "up"}},
			Run: &guest.Run{
				Args:   append([]string{o.program}, o.args...),
				Dir:    here,
				Output: vm.SerialDevice,
				Result: vm.GuestDir + "/" + resultFile,
			},
		},
	}
	if o.kernel == kernelQEMU {
		addFunctions(&config)
	}
	return config, nil
}

// addFunctions gives the guest two physical functions, which are connected with each other.
func addFunctions(c *vm.Config) {
	c.Cards = []vm.Card{
		{Card: guest.Card{Name: "pf0", MAC: "02:89:00:01:00:00"}, SRIOV: true},
		{Card: guest.Card{Name: "pf1", MAC: "02:89:00:01:00:01"}, SRIOV: true},
	}
	for _, card := range c.Cards {
		c.Spec.Setup = append(c.Spec.Setup, []string{"/sbin/ip", "link", "set", card.Name, "up"})
	}
}

// moduleOf returns the nearest folder around dir that has a go.mod, else dir.
func moduleOf(dir string) string {
	for d := dir; d != filepath.Dir(d); d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d
		}
	}
	return dir
}

// result reads what the guest left. One that left nothing died.
func result(dir string) (int, error) {
	raw, err := os.ReadFile(filepath.Join(dir, resultFile))
	if errors.Is(err, os.ErrNotExist) {
		console, _ := os.ReadFile(vm.ConsoleLog(dir))
		return 0, fmt.Errorf("%w; its console:\n%s", errDied, console)
	}
	if err != nil {
		return 0, fmt.Errorf("read result: %w", err)
	}
	var outcome guest.Outcome
	if err := json.Unmarshal(raw, &outcome); err != nil {
		return 0, fmt.Errorf("decode result: %w", err)
	}
	if outcome.Error != "" && outcome.Code < 0 {
		return 0, fmt.Errorf("run program: %s", outcome.Error)
	}
	return outcome.Code, nil
}

// linkOrCopy makes a program under another name, without a copy if possible.
func linkOrCopy(from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return fmt.Errorf("find program: %w", err)
	}
	if os.Link(from, to) == nil {
		return nil
	}
	raw, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("read program: %w", err)
	}
	if err := os.WriteFile(to, raw, 0o755); err != nil {
		return fmt.Errorf("place program: %w", err)
	}
	return nil
}
