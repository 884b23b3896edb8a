// SPDX-License-Identifier: Apache-2.0

//go:build rules && apiserver

package rules

import "testing"

// The same for rules that only an API server can tell.
func TestAPIRules(t *testing.T) {
	t.Parallel()
	switchOff(t, apiRules())
}

func TestAPIRulesPassUnmodified(t *testing.T) {
	t.Parallel()
	runUnmodified(t, apiRules())
}
