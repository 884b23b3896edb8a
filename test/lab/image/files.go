// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// File is a regular file of an image.
type File struct {
	// Path within the image, without a leading slash.
	Path string
	// Sum is the content's SHA-256 in hexadecimal.
	Sum string
}

// Files lists the files in all layers of an archive's images, each once. Empty files are
// left out.
func Files(archive string) (files []File, err error) {
	f, err := os.Open(archive)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	seen := map[File]bool{}
	err = eachFile(f, func(_ string, blob io.Reader) error {
		layer, err := openLayer(blob)
		if err != nil || layer == nil {
			return err
		}
		return eachFile(layer, func(name string, content io.Reader) error {
			h := sha256.New()
			if _, err := io.Copy(h, content); err != nil {
				return err
			}
			file := File{Path: name, Sum: hex.EncodeToString(h.Sum(nil))}
			if !seen[file] {
				seen[file] = true
				files = append(files, file)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read archive %s: %w", archive, err)
	}
	return files, nil
}

// openLayer returns nil for a blob that is no layer: layers are compressed, and manifests
// and configurations are not.
func openLayer(blob io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(blob)
	if magic, _ := buffered.Peek(2); !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return nil, nil //nolint:nilnil // no layer is no error
	}
	return gzip.NewReader(buffered)
}

// eachFile calls do for each regular file of a tar archive that is not empty.
func eachFile(archive io.Reader, do func(name string, content io.Reader) error) error {
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || h.Size == 0 {
			continue
		}
		if err := do(path.Clean(h.Name), r); err != nil {
			return fmt.Errorf("read %s: %w", h.Name, err)
		}
	}
}
