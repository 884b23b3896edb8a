// SPDX-License-Identifier: Apache-2.0

// Package apitest gives tests a real API server with Patchbay's resource definitions
// and admission policies.
//
// All tests of one binary share one, which starts with the first test that asks. So a
// test uses names of its own (Namespace, Name). The package's tests of the definitions
// themselves have the build tag apiserver, and so should all that use Start:
//
//	func TestMain(m *testing.M) { apitest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		env := apitest.Start(t)
//		err := env.Client.Create(t.Context(), network)
package apitest
