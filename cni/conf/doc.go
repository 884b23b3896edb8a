// SPDX-License-Identifier: Apache-2.0

// Package conf reads what a container runtime hands to the plugin: the network
// configuration on standard input, and the environment. Both are outside input
// and parsed strictly. Every error is a *wire.Error with the CNI code that fits and
// names the key and the value that is wrong.
package conf
