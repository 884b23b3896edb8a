// SPDX-License-Identifier: Apache-2.0

package sriov

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/patchbay-cni/patchbay/daemon/internal/kernel"
)

// pendingRates are the rates of functions that DEL could not restore, because the driver rejected them, as igb does
// while the port has no link. A DEL that waited for a cable would keep the Pod for as long. Each rate is a file, so
// that a restart of the daemon does not forget it: the function's next Pod gets the rate, or one of its network's
// own, before it can send.
type pendingRates struct {
	dir    string
	bootID string
}

// pendingRate is the content of a file.
type pendingRate struct {
	// BootID is the kernel's boot ID. A boot resets all functions.
	BootID string        `json:"bootID"`
	Rate   kernel.VFRate `json:"rate"`
}

func (p pendingRates) path(address string) string {
	return filepath.Join(p.dir, address+".rate.json")
}

// read returns the pending rate of a function, or nil.
func (p pendingRates) read(address string) (*kernel.VFRate, error) {
	content, err := os.ReadFile(p.path(address))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var rate pendingRate
	if err == nil {
		err = json.Unmarshal(content, &rate)
	}
	if err != nil {
		return nil, fmt.Errorf("read pending rate of device %s: %w", address, err)
	}
	if rate.BootID != p.bootID {
		return nil, nil
	}
	return &rate.Rate, nil
}

// write stores the pending rate of a function. Without one, it forgets an earlier one.
func (p pendingRates) write(address string, rate *kernel.VFRate) error {
	path := p.path(address)
	if rate == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget pending rate of device %s: %w", address, err)
		}
		return nil
	}
	content, err := json.Marshal(pendingRate{BootID: p.bootID, Rate: *rate})
	if err != nil {
		return fmt.Errorf("encode pending rate of device %s: %w", address, err)
	}
	if err := writeFile(path, content); err != nil {
		return fmt.Errorf("store pending rate of device %s: %w", address, err)
	}
	return nil
}
