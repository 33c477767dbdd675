#!/bin/sh
# Brings what the named parts need of this machine: where that may be done (root, apt-get) it
# installs what is missing and says what; elsewhere it names the one line that installs all of it.
#
#   deploy/machine.sh [build] [java] [maven] [tests]
#
#   build   Python 3.11 or newer with venv and headers, a C compiler.  Needed: without it status 1.
#   java    Java 17 or newer, for Spark and Kafka.  Without it what needs it is left out.
#   maven   brings the jars of Kafka.  Without it figures beside Kafka are left out.
#   tests   what single tests use: git, and for root what makes networks and disks of nodes.
#           Without it those tests are skipped.
#
# PYTHON and CC name another interpreter and another compiler than python3 and cc.
set -eu

PYTHON=${PYTHON:-python3}
CC=${CC:-cc}
LOCALHOST=localhost # no package: a line of /etc/hosts
LOCK_S=120 # another apt-get, of a machine that has just been started, may be at work that long

have() { command -v "$1" >/dev/null 2>&1; }

# ---- what is missing, as packages of Debian; nothing when all is there ----

missing_build() {
  if ! have "$PYTHON"; then
    echo python3 python3-venv python3-dev
  else
    "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || echo python3
    "$PYTHON" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
    "$PYTHON" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
      echo python3-dev
  fi
  if ! have "${CC%% *}"; then
    echo gcc libc6-dev
  else
    echo '#include <stdlib.h>' | $CC -fsyntax-only -x c - 2>/dev/null || echo libc6-dev
  fi
}

missing_java() {
  java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  major=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
  [ "${major:-0}" -ge 17 ] || echo default-jre-headless
  # Spark's processes find each other by that name; a system that was never booted may lack it.
  getent hosts localhost >/dev/null || echo $LOCALHOST
}

missing_maven() {
  have mvn || echo maven
}

missing_tests() {
  have git || echo git
  [ "$(id -u)" = 0 ] || return 0 # networks and disks take root
  have ip || echo iproute2
  have iptables-restore || echo iptables
  have mkfs.ext4 || echo e2fsprogs
  have losetup || echo mount
}

# What is missing of all parts that are given, on one line.
missing() {
  for part in "$@"; do "missing_$part"; done | tr '\n' ' ' | sed 's/ *$//'
}

# ---- how it is brought ----

# The one line that brings these, for whoever runs this.
line() {
  packages='' name='' all=''
  for each in "$@"; do
    if [ "$each" = $LOCALHOST ]; then name="echo 127.0.0.1 localhost >>/etc/hosts"
    else packages="$packages $each"; fi
  done
  [ -z "$packages" ] || all="apt-get update && apt-get install -y$packages"
  [ -z "$name" ] || all="${all:+$all && }$name"
  if [ "$(id -u)" = 0 ]; then echo "$all"
  elif ! have sudo; then echo "su -c '$all'"
  elif [ -z "$name" ]; then echo "sudo apt-get update && sudo apt-get install -y$packages"
  else echo "sudo sh -c '$all'"; fi
}

may_install() { [ "$(id -u)" = 0 ] && have apt-get; }

# How much these are to download, as apt-get says it; nothing when it does not.
size() {
  LC_ALL=C apt-get -q --assume-no install --no-install-recommends "$@" 2>/dev/null </dev/null |
    sed -n 's/^Need to get \([0-9.,]* [kMG]*B\).* of archives.*/\1/p'
}

# Brings these; false, with the end of what apt-get said, when that fails.
install() {
  packages=''
  for each in "$@"; do
    if [ "$each" = $LOCALHOST ]; then
      echo "Adding to /etc/hosts: 127.0.0.1 localhost" >&2
      echo "127.0.0.1 localhost" >>/etc/hosts
    else
      packages="$packages $each"
    fi
  done
  [ -n "$packages" ] || return 0
  said=$(mktemp)
  # A package source that does not answer is no reason not to try.
  apt-get -q update >"$said" 2>&1 || true
  arrives=$(size $packages)
  echo "Installing with apt-get:$packages${arrives:+ ($arrives to download)}" >&2
  if DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=$LOCK_S \
    install --no-install-recommends $packages >>"$said" 2>&1 </dev/null; then
    rm -f "$said"
  else
    tail -n 5 "$said" >&2
    rm -f "$said"
    return 1
  fi
}

# What stands for a package in a sentence.
named() {
  for package in "$@"; do
    case $package in
      python3) echo "Python 3.11 or newer" ;;
      python3-venv) echo "Python's module venv" ;;
      python3-dev) echo "Python's headers" ;;
      gcc) echo "a C compiler" ;;
      libc6-dev) echo "the headers of C" ;;
      "$LOCALHOST") echo "the name localhost (Spark)" ;;
      default-jre-headless) echo "Java 17 or newer (Spark and Kafka)" ;;
      maven) echo "Maven (Kafka)" ;;
      *) echo "$package (tests)" ;;
    esac
  done | paste -s -d , | sed 's/,/, /g'
}

# ---- the parts that were asked for ----

needed='' optional=''
for part in "$@"; do
  case $part in
    build) needed=build ;;
    java | maven | tests) optional="$optional $part" ;;
    *) echo "deploy/machine.sh: unknown part: $part" >&2; exit 2 ;;
  esac
done
packages=$(missing $needed)
extras=$(missing $optional)

if [ -n "$packages" ] && may_install; then
  install $packages || true # what is still missing is said below
  packages=$(missing $needed)
fi
if [ -n "$packages" ]; then
  {
    echo "Missing: $(named $packages). Nothing was built. Run: $(line $packages $extras)"
    if have "$PYTHON"; then
      echo "($PYTHON is $(command -v "$PYTHON"), $("$PYTHON" -V 2>&1);" \
        "make PYTHON=... takes another one.)"
    fi
  } >&2
  exit 1
fi
if [ -n "$extras" ] && may_install; then
  install $extras || true
  extras=$(missing $optional)
fi
[ -z "$extras" ] ||
  echo "Missing, what needs it is left out: $(named $extras). Run: $(line $extras)" >&2
