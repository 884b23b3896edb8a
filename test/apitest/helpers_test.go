// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package apitest_test

import (
	"errors"
	"testing"
	"time"
)

var errAccepted = errors.New("accepted")

// eventually polls until try succeeds; after two minutes the test fails with the last error.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s: %v", what, err)
		}
	}
}
