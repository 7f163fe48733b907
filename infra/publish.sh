#!/usr/bin/env bash
# Builds the image of the services and the agent, uploads both, and tells the environment their digests.
#
#   infra/publish.sh infra/envs/example
#
# After bootstrap. Needs gcloud, terraform, sha256sum or shasum, and docker with buildx, podman or buildah (BUILDER names one of them, else
# the first that is there).
set -euo pipefail

env_dir="${1:?the environment, such as infra/envs/example}"
root="$(cd "$(dirname "$0")/.." && pwd)"

builder="${BUILDER:-}"
for candidate in docker podman buildah; do
  [[ -n "$builder" ]] && break
  command -v "$candidate" >/dev/null && builder="$candidate"
done
hasher=(sha256sum)
command -v sha256sum >/dev/null || hasher=(shasum -a 256)
command -v "${hasher[0]}" >/dev/null || { echo "error: sha256sum or shasum is needed" >&2; exit 1; }
[[ -n "$builder" ]] || { echo "error: docker with buildx, podman or buildah is needed" >&2; exit 1; }
# Docker's builder without BuildKit knows no --output, and reads no Dockerfile.dockerignore.
export DOCKER_BUILDKIT=1
# Buildah by itself keeps no layers, and cargo would build for the image and again for the agent.
export BUILDAH_LAYERS=true
if [[ "${builder##*/}" = docker ]] && ! docker buildx version >/dev/null 2>&1; then
  echo "error: docker has no buildx: install it, or name another builder, such as BUILDER=podman" >&2
  exit 1
fi

registry="$(terraform -chdir="$env_dir/bootstrap" output -raw registry)"
bucket="$(terraform -chdir="$env_dir/bootstrap" output -raw bucket)"
# Without outputs Terraform prints a warning in their place, and ends well.
if [[ ! "$registry" =~ ^[a-z0-9-]+-docker\.pkg\.dev/[^[:space:]]+$ || ! "$bucket" =~ ^[a-z0-9._-]+$ ]]; then
  echo "error: $env_dir/bootstrap has no outputs: apply it first (step 2 of infra/envs/example/README.md)" >&2
  exit 1
fi
version="$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)"
tag="$registry/server:$version"
out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT

gcloud auth configure-docker "${registry%%/*}" --quiet
"$builder" build --platform linux/amd64 --file "$root/infra/Dockerfile" --target server --tag "$tag" "$root"
"$builder" push "$tag"
digest="$(gcloud artifacts docker images describe "$tag" --format='value(image_summary.digest)')"
[[ "$digest" =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "error: the registry gives no digest of $tag: '$digest'" >&2; exit 1; }

"$builder" build --platform linux/amd64 --file "$root/infra/Dockerfile" --target agent --output "type=local,dest=$out" "$root"
agent_sha256="$("${hasher[@]}" "$out/rekindle-agent" | cut -d ' ' -f 1)"
# By its digest: agents that are in use are never overwritten.
gcloud storage cp --no-clobber "$out/rekindle-agent" "gs://$bucket/agents/$agent_sha256"

printf '{\n  "image": "%s@%s",\n  "agent_sha256": "%s"\n}\n' "$registry/server" "$digest" "$agent_sha256" >"$env_dir/release.auto.tfvars.json"
echo "published $version: image $digest, agent $agent_sha256" >&2
