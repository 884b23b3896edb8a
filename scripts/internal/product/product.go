// SPDX-License-Identifier: Apache-2.0

// Package product lists what users get: programs, the images that they are in, and the platforms that
// they are built for.
package product

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Product is what a release consists of.
type Product struct {
	Images         []Image
	ImagePlatforms []Platform
	// PluginPlatforms are the platforms of the kubectl plugin.
	PluginPlatforms []Platform
}

// All is the product of this repository.
func All() Product {
	return Product{
		Images:         Images(),
		ImagePlatforms: []Platform{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}},
		PluginPlatforms: []Platform{
			{OS: "darwin", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"},
			{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"},
			{OS: "windows", Arch: "amd64"},
		},
	}
}

// Select returns the part of the product with the images and platforms of two comma-separated lists. An empty list is
// all of them.
func (p Product) Select(images, platforms string) (Product, error) {
	var unknown []string
	if images != "" {
		names := strings.Split(images, ",")
		for _, name := range names {
			if !slices.ContainsFunc(p.Images, func(i Image) bool { return i.Name == name }) {
				unknown = append(unknown, name)
			}
		}
		p.Images = slices.DeleteFunc(slices.Clone(p.Images), func(i Image) bool { return !slices.Contains(names, i.Name) })
	}
	if platforms != "" {
		all := slices.Concat(p.ImagePlatforms, p.PluginPlatforms)
		var wanted []Platform
		for name := range strings.SplitSeq(platforms, ",") {
			os, arch, _ := strings.Cut(name, "/")
			wanted = append(wanted, Platform{OS: os, Arch: arch})
			if !slices.Contains(all, Platform{OS: os, Arch: arch}) {
				unknown = append(unknown, name)
			}
		}
		other := func(platform Platform) bool { return !slices.Contains(wanted, platform) }
		p.ImagePlatforms = slices.DeleteFunc(slices.Clone(p.ImagePlatforms), other)
		p.PluginPlatforms = slices.DeleteFunc(slices.Clone(p.PluginPlatforms), other)
	}
	if len(unknown) > 0 {
		return Product{}, fmt.Errorf("%s: must be an image or a platform of the release: %s", strings.Join(unknown, ", "), All())
	}
	if len(p.ImagePlatforms) == 0 {
		p.Images = nil
	}
	return p, nil
}

// String lists the images and platforms.
func (p Product) String() string {
	var names []string
	for _, image := range p.Images {
		names = append(names, image.Name)
	}
	for _, platform := range slices.Concat(p.ImagePlatforms, p.PluginPlatforms) {
		if name := platform.OS + "/" + platform.Arch; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Builds returns the programs to build for each platform.
func (p Product) Builds() map[Platform][]Program {
	builds := map[Platform][]Program{}
	for _, platform := range p.ImagePlatforms {
		for _, image := range p.Images {
			builds[platform] = append(builds[platform], image.Programs...)
		}
	}
	for _, platform := range p.PluginPlatforms {
		builds[platform] = append(builds[platform], Plugin())
	}
	return builds
}

// Platform is what a program is built for, in the words of Go and OCI.
type Platform struct{ OS, Arch string }

// String returns the platform as part of a file's name.
func (p Platform) String() string { return p.OS + "-" + p.Arch }

// Executable returns the file name of a program.
func (p Platform) Executable(program string) string {
	if p.OS == "windows" {
		return program + ".exe"
	}
	return program
}

// ImagePlatform is the platform of images that nodes with this machine's processor run.
func ImagePlatform() Platform { return Platform{OS: "linux", Arch: runtime.GOARCH} }
