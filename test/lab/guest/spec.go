// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// Spec says what a guest does, in the order of its fields.
type Spec struct {
	// Hostname of the guest.
	Hostname string `json:"hostname"`
	// ModuleRoot is a folder with lib/modules/<version>; Modules are loaded from it.
	ModuleRoot string   `json:"moduleRoot,omitempty"`
	Modules    []string `json:"modules,omitempty"`
	// Mounts are made in order. Proc is mounted before all of them.
	Mounts []Mount `json:"mounts,omitempty"`
	// Cards get their names when the modules are loaded and the mounts made.
	Cards []Card `json:"cards,omitempty"`
	// Env is the environment of everything that runs, as KEY=VALUE.
	Env []string `json:"env,omitempty"`
	// TimerSlack is how much later than asked for timers of all programs may end (prctl(2)), so that
	// the guest wakes up less often.
	TimerSlack time.Duration `json:"timerSlack,omitempty"`
	// Setup is a list of commands; the first that fails ends the guest.
	Setup [][]string `json:"setup,omitempty"`
	// Run is the guest's purpose: when it ends, the guest ends. A guest without it
	// serves until it is switched off.
	Run *Run `json:"run,omitempty"`
	// Agent runs commands for whoever booted the guest.
	Agent *Agent `json:"agent,omitempty"`
	// Services are started in order.
	Services []Service `json:"services,omitempty"`
}

// Mount is one mount, as in mount(8). Target is made when it does not exist.
type Mount struct {
	Source string `json:"source"`
	Target string `json:"target"`
	// Type is a file system's name, "bind" or "rbind".
	Type string `json:"type"`
	// Data are file system options, separated by commas.
	Data string `json:"data,omitempty"`
	// ReadOnly makes the mount read-only.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Folders are made in the mounted file system.
	Folders []string `json:"folders,omitempty"`
}

// Save writes the spec to a file that only root can read.
func (s Spec) Save(path string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode guest spec: %w", err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return fmt.Errorf("write guest spec: %w", err)
	}
	return nil
}

func load(path string) (Spec, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("read guest spec: %w", err)
	}
	var s Spec
	if err := json.Unmarshal(raw, &s); err != nil {
		return Spec{}, fmt.Errorf("decode guest spec %s: %w", path, err)
	}
	return s, nil
}
