// SPDX-License-Identifier: Apache-2.0

package kernel

// pod is a Pod's namespace that the current thread is in, with a socket there.
type pod struct {
	*conn
	ns *namespace
}

// inPod runs fn in the namespace at path.
func inPod(path string, fn func(*pod) error) error {
	ns, err := openNamespace(path)
	if err != nil {
		return err
	}
	defer ns.Close()
	return ns.inside(func() error {
		c, err := dial()
		if err != nil {
			return err
		}
		defer c.close()
		return fn(&pod{conn: c, ns: ns})
	})
}
