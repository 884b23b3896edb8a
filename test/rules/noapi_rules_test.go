// SPDX-License-Identifier: Apache-2.0

//go:build rules && !apiserver

package rules

// apiRules need an API server to be tried on.
func apiRules() []row { return nil }
