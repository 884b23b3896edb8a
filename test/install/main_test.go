// SPDX-License-Identifier: Apache-2.0

//go:build install

package install

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/patchbay-cni/patchbay/test/lab"
)

// nodes is how many the lab has: a roll-out that stops at the first node leaves another one.
const nodes = 2

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	_, stop := lab.EndOnInterrupt()
	code := m.Run()
	stop()
	os.Exit(code)
}

// Each stage begins and ends with a cluster without Patchbay, so that it can run alone, such as with
// -run 'TestInstall/Operator'. LAB names a lab that is up and stays.
func TestInstall(t *testing.T) {
	b := start(t)
	for _, stage := range []struct {
		name string
		run  func(*bed)
	}{
		{"Kustomize", kustomize},
		{"Operator", operator},
		{"BadImage", badImage},
		{"Uninstall", uninstall},
		{"Chart", chart},
		{"Upgrade", upgrade},
		{"UpgradeByOperator", upgradeByOperator},
	} {
		ok := t.Run(stage.name, func(t *testing.T) {
			b := b.with(t)
			b.checkNothingInstalled()
			stage.run(b)
			b.checkClean()
		})
		if !ok {
			t.FailNow() // the next stage would begin with what this one has left
		}
	}
}
