// SPDX-License-Identifier: Apache-2.0

// Package config parses the input that a container runtime gives to the plugin: the network
// configuration on standard input, and the environment. Both are untrusted and parsed
// strictly. Every error is a *wire.Error with the matching CNI code, and names the key and
// the invalid value.
package config
