#!/usr/bin/env bash
# Write the module file for one version of Kubernetes: modules.sh VERSION GO_MOD [FOLDER], e.g. modules.sh v1.36.3 go.mod
#
# k8s.io/kubernetes replaces its staging modules by folders of its own tree, and replacements do not carry over to a
# module that requires it: each is replaced here by the published module of the same release (v1.36.3 -> v0.36.3).
# Three of them are left out, because nothing here imports them. The go.mod of the Kubernetes release names the
# version of etcd it was built with. FOLDER has the sources, if they are not those of the control plane.
set -euo pipefail
version=$1 modfile=$(realpath -m "$2")
here=$(cd "$(dirname "$0")" && pwd)
folder=${3:-}
staging=v0.${version#v1.}

source_mod=$(cd "$here" && GOFLAGS=-mod=mod go mod download -json "k8s.io/kubernetes@$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
go_version=$(sed -n 's/^go //p' "$source_mod")

{
  printf 'module controlplane%s\n\ngo %s\n\nrequire k8s.io/kubernetes %s\n\nreplace (\n' "${folder:+/$folder}" "$go_version" "$version"
  sed -n 's|^\t\(k8s.io/[a-z-]*\) => ./staging/.*|\1|p' "$source_mod" |
    grep -v -e /sample-apiserver -e /sample-cli-plugin -e /code-generator |
    while read -r module; do printf '\t%s => %s %s\n' "$module" "$module" "$staging"; done
  printf ')\n'
} > "$modfile"
cd "$here/$folder"
go mod tidy -modfile="$modfile"
