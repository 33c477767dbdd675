#!/usr/bin/env bash
# Builds the container image of a node from this source tree.
#
#   deploy/container/build.sh [--tag TAG] [--base IMAGE | --debootstrap | --tree DIR]
#
#   --tag TAG       the image's name (default multiraft)
#   --base IMAGE    what it is built on (default debian:bookworm-slim, from your registry);
#                   python:3.11-slim and the like have all it takes as well
#   --debootstrap   no registry: make the base from Debian's packages (root; debootstrap)
#   --tree DIR      no registry: DIR holds a Debian tree with python3-venv; it is only read (root)
#
# PYTHON builds the wheels and must be of the base's minor version (bookworm: 3.11); it needs the
# extra `dev`.  Everything temporary is below one directory that is removed at the end.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
tag=multiraft base=debian:bookworm-slim tree='' bootstrap=''
PYTHON=${PYTHON:-$root/.venv/bin/python}

while (($#)); do
  case $1 in
    --tag) tag=$2; shift 2 ;;
    --base) base=$2; shift 2 ;;
    --debootstrap) bootstrap=1; shift ;;
    --tree) tree=$2; shift 2 ;;
    *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
  esac
done

work=$(mktemp -d -t multiraft-image.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT

if [[ $bootstrap ]]; then
  tree=$work/tree
  debootstrap --variant=minbase --include=python3-venv bookworm "$tree" >&2 ||
    { echo 'no base: debootstrap failed' >&2; exit 3; }
fi
if [[ $tree ]]; then
  base=multiraft-base:bookworm
  tar --create --directory "$tree" --one-file-system --exclude='./proc/*' --exclude='./sys/*' \
      --exclude='./dev/*' --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' . |
    docker import - "$base" >&2
fi

# By way of a source distribution: what an earlier build left in the tree does not get in.
mkdir "$work/context"
"$PYTHON" -m build --outdir "$work/dist" "$root" >&2
"$PYTHON" -m pip wheel --quiet --constraint "$root/constraints.txt" \
    --wheel-dir "$work/context/wheels" "$work"/dist/*.whl
cp "$root/deploy/container/Dockerfile" "$work/context"
docker build --build-arg "BASE=$base" --tag "$tag" "$work/context"
