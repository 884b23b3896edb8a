// SPDX-License-Identifier: Apache-2.0

package crdcompiler

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// documents reads the files that the references of one template name, each once.
type documents struct {
	// roots has the folder of the template last: its prefix is empty.
	roots []root
	read  map[string]any
	own   location
}

// root is an open folder. Names in it cannot lead out of it, also not by a symbolic link.
type root struct {
	Map

	dir *os.Root
}

// location is where a schema is, from which its references are resolved.
type location struct {
	// kubernetes is true in Kubernetes' definitions, which have no documents.
	kubernetes bool
	// root and path name the document, and document is its content.
	root     *root
	path     string
	document any
	// id names the schema, to find one that contains itself.
	id string
}

// newDocuments opens the folders. The caller closes it.
func newDocuments(t *Template, maps []Map) (*documents, error) {
	d := &documents{read: map[string]any{}}
	all := append(slices.Clone(maps), Map{Folder: filepath.Dir(t.File)})
	slices.SortStableFunc(all, func(a, b Map) int { return cmp.Compare(len(b.Prefix), len(a.Prefix)) })
	for _, m := range all {
		dir, err := os.OpenRoot(m.Folder)
		if err != nil {
			d.close()
			return nil, fmt.Errorf("the folder of %q must exist: %w", cmp.Or(m.Prefix, "the template"), err)
		}
		d.roots = append(d.roots, root{Map: m, dir: dir})
	}
	own := &d.roots[len(d.roots)-1]
	d.own = location{root: own, path: filepath.Base(t.File), document: t.Object}
	return d, nil
}

func (d *documents) close() {
	for _, r := range d.roots {
		_ = r.dir.Close() // it was only read
	}
}

// template is the location of the template's own schemas.
func (d *documents) template() location { return d.own }

// find returns the schema that a reference names.
func (d *documents) find(ref reference, from location) (schema, location, error) {
	to, err := d.locate(ref.document, from)
	if err != nil {
		return nil, location{}, err
	}
	to.id = to.root.Prefix + to.path + formatPointer(ref.pointer)
	s, err := lookup(to.document, ref.pointer)
	if err != nil {
		return nil, location{}, fmt.Errorf("%s: %w", to.root.Prefix+to.path, err)
	}
	return s, to, nil
}

// locate reads the document with a name, unless it is the one that has the reference.
func (d *documents) locate(name string, from location) (location, error) {
	if name == "" {
		return from, nil
	}
	to := location{root: from.root}
	i := slices.IndexFunc(d.roots, func(r root) bool { return r.Prefix != "" && strings.HasPrefix(name, r.Prefix) })
	switch {
	case i >= 0:
		to.root, to.path = &d.roots[i], path.Clean(strings.TrimPrefix(name, d.roots[i].Prefix))
	case strings.Contains(name, "://"):
		return to, fmt.Errorf("%q must begin with the prefix of a --map, because nothing is downloaded: add --map %s=DIR", name, prefixOf(name))
	case path.IsAbs(name):
		return to, fmt.Errorf("%q must be a path from the file that refers to it: use --map for other folders", name)
	default:
		to.path = path.Join(path.Dir(from.path), name)
	}
	if !filepath.IsLocal(filepath.FromSlash(to.path)) {
		return to, fmt.Errorf("%q must not lead out of the folder %s: use --map for other folders", name, to.root.Folder)
	}
	if to.root == d.own.root && to.path == d.own.path {
		return d.own, nil
	}
	var err error
	if to.document, err = d.open(to.root, to.path); err != nil {
		return to, fmt.Errorf("%q: %w", name, err)
	}
	return to, nil
}

// prefixOf returns a prefix for the documents that are beside one: scheme and first element.
func prefixOf(name string) string {
	scheme, rest, _ := strings.Cut(name, "://")
	first, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + first + "/"
}

func (d *documents) open(r *root, file string) (any, error) {
	key := r.Prefix + file
	if document, ok := d.read[key]; ok {
		return document, nil
	}
	f, err := r.dir.OpenFile(filepath.FromSlash(file), openFlags, 0)
	if err != nil {
		return nil, fmt.Errorf("read file of %s: %w", r.Folder, err)
	}
	data, err := readRegular(f)
	if err != nil {
		return nil, fmt.Errorf("read file of %s: %w", r.Folder, err)
	}
	document, err := decode(data)
	if err != nil {
		return nil, err
	}
	d.read[key] = document
	return document, nil
}
