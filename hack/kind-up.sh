#!/usr/bin/env bash
# Makes a disposable cluster for the end-to-end tests; needs Docker and kind. When the cluster exists already, it only prints
# how to go on. KIND_CLUSTER and KIND_IMAGE in the environment change the cluster's name and node image.
set -euo pipefail
cd "$(dirname "$0")/.."

cluster=${KIND_CLUSTER:-dra-extender-e2e}
# Pinned: the one that comes with kind 0.33.
image=${KIND_IMAGE:-kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5}
node=$cluster-control-plane
kubeconfig=$PWD/.kind/$cluster.kubeconfig
binaries=$PWD/.kind/$cluster

die() {
  printf 'kind-up: %s\n' "$1" >&2
  exit 1
}

command -v docker >/dev/null || die "docker is not installed. The tests need no cluster: make e2e builds a control plane (with Go)"
docker info >/dev/null 2>&1 || die "docker does not answer: is its daemon running, and do you have permission to use it? See: docker info"
command -v kind >/dev/null || die "kind is not installed: go install sigs.k8s.io/kind@v0.33.0, or see https://kind.sigs.k8s.io"

mkdir -p "$binaries"
if kind get clusters 2>/dev/null | grep -qxF "$cluster"; then
  echo "the cluster $cluster exists already"
  kind export kubeconfig --name "$cluster" --kubeconfig "$kubeconfig"
else
  kind create cluster --name "$cluster" --config hack/kind.yaml --image "$image" --kubeconfig "$kubeconfig" --wait 180s ||
    die "kind did not make the cluster, see above. Remove what is left of it: kind delete cluster --name $cluster"
  # Marks the cluster as disposable; the tests take no other.
  docker exec "$node" kubectl --kubeconfig=/etc/kubernetes/admin.conf \
    create configmap dra-extender-e2e --namespace=kube-system
fi

# The tests run kube-scheduler and kubectl beside the cluster, not in it. On Linux the node's own binaries serve for that.
assets=
if [[ $(uname -s) == Linux ]]; then
  # shellcheck disable=SC2016 # the node expands it
  docker exec "$node" sh -c 'for process in /proc/[0-9]*; do
      if [ "$(cat "$process/comm" 2>/dev/null)" = kube-scheduler ]; then exec cat "$process/exe"; fi
    done; exit 1' >"$binaries/kube-scheduler" || die "no kube-scheduler runs on $node: is the cluster up?"
  # shellcheck disable=SC2016
  docker exec "$node" sh -c 'cat "$(command -v kubectl)"' >"$binaries/kubectl"
  chmod +x "$binaries"/*
  assets=" KUBEBUILDER_ASSETS=$binaries"
fi

cat <<END

The cluster is up. Run the tests, then delete it:
  make e2e KUBECONFIG=$kubeconfig$assets
  kind delete cluster --name $cluster
END
