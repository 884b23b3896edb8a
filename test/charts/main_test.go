// SPDX-License-Identifier: Apache-2.0

//go:build apiserver

package charts

import (
	"testing"

	"github.com/patchbay-cni/patchbay/test/apitest"
)

func TestMain(m *testing.M) { apitest.Main(m) }
