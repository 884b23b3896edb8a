// SPDX-License-Identifier: Apache-2.0

package conf

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/patchbay-cni/patchbay/cni/wire"
)

// reserved is the prefix of keys that the specification keeps for runtimes.
// One that we do not know comes from a newer runtime and is not a mistake.
const reserved = "cni.dev/"

// decode fills c and refuses anything but one object with keys that it has.
func decode(data []byte, c *Config) error {
	var keys map[string]json.RawMessage
	if err := one(data, &keys); err != nil {
		return wire.Errorf(wire.CodeDecode, "decode network configuration: %w", err)
	}
	if keys == nil {
		return wire.Errorf(wire.CodeDecode, "decode network configuration: null, want an object")
	}
	if err := known(keys); err != nil {
		return err
	}
	err := json.Unmarshal(data, c)
	if bad := (*json.UnmarshalTypeError)(nil); errors.As(err, &bad) {
		return wire.Errorf(wire.CodeConfig, "network configuration: %s: a JSON %s, want %s", bad.Field, bad.Value, bad.Type)
	}
	if err != nil {
		return wire.Errorf(wire.CodeDecode, "decode network configuration: %w", err)
	}
	return nil
}

// one decodes data, which must hold one JSON document and no more.
func one(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON document")
	}
	return nil
}

// known refuses the first key, in order, that Config does not have. Keys are
// compared exactly: encoding/json would take "CNIDIR" for cniDir.
func known(keys map[string]json.RawMessage) error {
	fields := fields()
	var unknown []string
	for key := range keys {
		if !slices.Contains(fields, key) && !strings.HasPrefix(key, reserved) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	first := slices.Min(unknown)
	return wire.Errorf(wire.CodeField, "network configuration: unknown key %q with value %s; known are %s",
		first, clip(string(keys[first])), strings.Join(fields, ", "))
}

// fields lists Config's keys, so that the list cannot fall behind the type.
func fields() []string {
	t := reflect.TypeFor[Config]()
	names := make([]string, t.NumField())
	for i := range names {
		names[i] = t.Field(i).Tag.Get("json")
	}
	return names
}

// clip shortens a value for a message.
func clip(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
