# Shared by the scripts beside it; not run by itself.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

build_packages="g++ cmake ninja-build ccache git libtorch-dev libgloo-dev nlohmann-json3-dev
  libcli11-dev libvalijson-dev libfmt-dev libxxhash-dev zlib1g-dev libopenblas0-pthread"
test_packages="libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev python3
  python3-torch python3-numpy
  openmpi-bin slurm-wlm munge redis-server iproute2 mount openssh-server openssh-client"
check_packages="clang-format clang-tidy"
peer_packages="libsimgrid-dev libopenmpi-dev"  # what bench/peers compares with

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else die "installing packages needs root or sudo: $*"
  fi
}

# Installs what is missing of the Debian packages named; asks nothing, repeats cheaply.
install_packages() {
  command -v apt-get >/dev/null || die "this script installs Debian packages, and there is no apt-get"
  local missing=""
  for package in "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing="$missing $package"
  done
  [ -n "$missing" ] || return 0
  say "installing$missing"
  local log
  log=$(mktemp)
  { as_root apt-get update -qq &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
  } >"$log" 2>&1 || { tail -n 30 "$log" >&2; die "installing packages failed (log above)"; }
  rm -f "$log"
}

# build DIR TARGETS...: configures where needed and builds; CMAKE_ARGS may hold further options.
build() {
  local dir=$1
  shift
  say "building $* in $dir"
  # A new folder is for a build from nothing; one that a preset made stays as it is.
  local batches=""
  [ -e "$dir/CMakeCache.txt" ] || batches=-DCMAKE_UNITY_BUILD=ON
  cmake -S "$root" -B "$dir" -G Ninja -DCMAKE_BUILD_TYPE=Release $batches ${CMAKE_ARGS:-} >/dev/null ||
    die "configuring $dir failed"
  cmake --build "$dir" --target "$@" || die "building $dir failed"
}
