#!/usr/bin/env bash
# Builds the container image of a node from this source tree.
#
#   deploy/container/build.sh [--tag TAG] [--base IMAGE | --debootstrap | --tree DIR]
#
#   --tag TAG       the image's name (default multiraft)
#   --base IMAGE    what it is built on, from your registry; its Python must be of the minor version
#                   of PYTHON.  Default: the Debian that has it (3.11 debian:bookworm-slim, 3.13
#                   debian:trixie-slim), else python:3.X-slim
#   --debootstrap   no registry: make the base from Debian's packages (root; debootstrap)
#   --tree DIR      no registry: DIR holds a Debian tree with python3-venv; it is only read (root)
#
# PYTHON builds the wheels and needs the package `build`.  Everything temporary is below one
# directory that is removed at the end.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
tag=multiraft base='' tree='' bootstrap=''
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

docker info >/dev/null 2>&1 ||
  { echo 'docker does not answer: install it, or start its daemon' >&2; exit 3; }
version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $version in
  3.11) suite=bookworm ;;
  3.13) suite=trixie ;;
  *) suite='' ;;
esac
if [[ $bootstrap && ! $suite ]]; then
  echo "no Debian release has Python $version: set PYTHON to one of 3.11 or 3.13, or use --base" >&2
  exit 3
fi
if [[ ! $base ]]; then
  if [[ $suite ]]; then base=debian:$suite-slim; else base=python:$version-slim; fi
fi

work=$(mktemp -d -t multiraft-image.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT

if [[ $bootstrap ]]; then
  tree=$work/tree
  debootstrap --variant=minbase --include=python3-venv "$suite" "$tree" >&2 ||
    { echo 'no base: debootstrap failed' >&2; exit 3; }
fi
if [[ $tree ]]; then
  base=multiraft-base:${suite:-python$version}
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
