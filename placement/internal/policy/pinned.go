// SPDX-License-Identifier: Apache-2.0

package policy

// AllowsOnly reports whether the policy allows no other cluster than this one.
func (p *EffectivePolicy) AllowsOnly(in PlanInput, cluster string) bool {
	allowed, err := p.candidates(in)
	return err == nil && len(allowed) == 1 && allowed[0].Name == cluster
}
