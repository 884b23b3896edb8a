// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Card is a network card of the guest.
type Card struct {
	// Name that the guest gives to the card.
	Name string `json:"name"`
	// MAC address, by which the guest finds it.
	MAC string `json:"mac"`
}

// ErrNoCard means that the guest has no network card with the MAC address.
var ErrNoCard = errors.New("no such network card")

// nameCards gives all cards their names. Which names the kernel chose depends on the order in
// which it found the cards, and on their drivers.
func nameCards(cards []Card) error {
	for _, c := range cards {
		name, err := findCard("/sys/class/net", c.MAC)
		if err != nil {
			return err
		}
		if err := command([]string{"/sbin/ip", "link", "set", name, "name", c.Name}, nil); err != nil {
			return err
		}
	}
	return nil
}

// findCard returns the name of the card with a MAC address.
func findCard(dir, mac string) (string, error) {
	files, err := filepath.Glob(dir + "/*/address")
	if err != nil {
		return "", fmt.Errorf("list network cards: %w", err)
	}
	for _, file := range files {
		if raw, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(raw)) == mac {
			return filepath.Base(filepath.Dir(file)), nil
		}
	}
	return "", fmt.Errorf("find network card %s: %w", mac, ErrNoCard)
}
