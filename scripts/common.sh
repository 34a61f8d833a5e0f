# Shared by the scripts beside it; not run by itself.
set -euo pipefail
called_from=$PWD
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

build_packages="g++ cmake ninja-build ccache git libtorch-dev libgloo-dev nlohmann-json3-dev
  libcli11-dev libvalijson-dev libfmt-dev libssl-dev libxxhash-dev zlib1g-dev libopenblas0-pthread"
test_packages="libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev python3 file
  python3-torch python3-numpy python3-pytest python3-clang
  openmpi-bin slurm-wlm munge redis-server iproute2 mount openssh-server openssh-client
  chromium chromium-driver fonts-dejavu-core"
check_packages="clang-format clang-tidy"
fuzz_packages="clang libclang-rt-dev lld llvm"  # llvm names functions in stacks
peer_packages="libsimgrid-dev libopenmpi-dev"  # what bench/peers compares with

# Of build/fuzzers, and of build/sanitized: tests that need no LibTorch, and the fuzzers for a few executions.
fuzz_args="-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ -DLOCKSTEP_LIBTORCH=OFF
  -DLOCKSTEP_SANITIZE=address,undefined -DLOCKSTEP_FUZZ=ON"
sanitized_args="$fuzz_args -DLOCKSTEP_FEW_EXECUTIONS=ON"

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
  [ ! -e "$root/third_party" ] || return 0  # an unpacked bundle takes what there is
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

# The mirror that apt is set up with.
debian_mirror() {
  local mirror
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | head -n 1)
  [ -n "$mirror" ] || die "apt has no Debian mirror set up"
  echo "$mirror"
}

# debian_sources FOLDER PACKAGES...: fetches their source packages (testing, signed) into FOLDER.
debian_sources() {
  local dir=$1 mirror apt options
  shift
  mirror=$(debian_mirror)
  apt=$dir/apt
  mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
  echo "deb-src $mirror testing main" >"$apt/sources.list"
  # Snapshots of mirrors are older than their lists allow.
  options="-qq -o Dir::State::Lists=$apt/lists -o Dir::Cache=$apt/cache -o Dir::Etc::SourceList=$apt/sources.list
    -o Dir::Etc::SourceParts=/dev/null -o Acquire::Check-Valid-Until=false -o Acquire::Languages=none
    -o APT::Sandbox::User=root"
  say "fetching the source of $* from $mirror"
  { apt-get $options update && (cd "$dir" && apt-get $options source --download-only --tar-only "$@"); } >"$apt/log" 2>&1 ||
    { tail -n 20 "$apt/log" >&2; die "fetching source packages failed (log above)"; }
}

# unpack_source ARCHIVE FOLDER: with or without a folder around it all.
unpack_source() {
  mkdir -p "$2"
  local strip=0
  [ "$(tar tf "$1" | sed 's|^\./||' | cut -d / -f 1 | sort -u | grep -c .)" != 1 ] || strip=1
  tar xf "$1" -C "$2" --strip-components=$strip
}

wheel_version=2.15.0  # of `--torch wheel`: the newest that was tested

# choose_torch debian|wheel[:VERSION]|FOLDER: which LibTorch is built with, as variables for build():
# torch_name ("" or what names its build folders), torch_args, and the packages that are needed.
choose_torch() {
  torch_name="" torch_args=""
  [ "$1" != debian ] || return 0
  build_packages=$(echo $build_packages binutils | sed 's/libtorch-dev\|libgloo-dev\|libopenblas0-pthread//g')
  local folder=$1
  case $1 in
    wheel | wheel:*)
      local version=${1#wheel}
      version=${version#:}
      version=${version:-$wheel_version}
      folder=$root/build/wheels/$version
      fetch_wheel "$version" "$folder"
      torch_name=-wheel-$version ;;
    *)
      case $folder in /*) ;; *) folder=$called_from/$folder ;; esac
      [ -d "$folder" ] || die "--torch $1: debian, wheel, wheel:VERSION or a folder is wanted, and there is no such folder"
      folder=$(realpath "$folder")
      torch_name=-torch-$(echo "$folder" | cksum | cut -d ' ' -f 1) ;;
  esac
  [ -e "$folder/lib/libtorch_cpu.so" ] || folder=$folder/torch
  [ -e "$folder/lib/libtorch_cpu.so" ] || die "--torch $1: there is no lib/libtorch_cpu.so in $folder"
  torch_args="-DLOCKSTEP_TORCH=$folder"
  install_packages binutils
  readelf -d "$folder/lib/libtorch_cpu.so" | grep -q 'NEEDED.*libgloo' && return 0
  local gloo=$root/third_party/gloo
  if [ ! -e "$gloo" ]; then
    gloo=$root/build/gloo
    "$root/scripts/gloo_source" "$gloo"
  fi
  torch_args="$torch_args -DLOCKSTEP_GLOO=$gloo"
}

# fetch_wheel VERSION FOLDER: PyPI's wheel of torch unpacked in FOLDER, not in anybody's Python, and the two
# small libraries of the CUDA toolkit that its libtorch_cpu.so needs with or without a GPU.
fetch_wheel() {
  local version=$1 dir=$2
  [ ! -e "$dir/.complete" ] || return 0
  install_packages python3
  python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  say "fetching the wheel of torch $version from PyPI into $dir (some 550 MB)"
  rm -rf "$dir"
  pip_into "$dir" --no-deps "torch==$version"
  pip_into "$dir" $(python3 - "$dir"/torch-*.dist-info/METADATA <<'EOF'
import re, sys
for line in open(sys.argv[1]):
    need = re.match(r"Requires-Dist: ([\w-]+)(?:\[[^]]*\])?\s*\(?(==[\w.]+)", line)
    if need and need[1] == "cuda-toolkit":
        print("cuda-toolkit[cudart,cupti]" + need[2])
    elif need and re.fullmatch(r"nvidia-cuda-(runtime|cupti)(-cu\d+)?", need[1]):
        print(need[1] + need[2])
EOF
  )
  touch "$dir/.complete"
}

# fetch_cuda_libraries FOLDER: beside the wheel in FOLDER what its libtorch_cuda.so needs (some 2 GB; the driver is
# the machine's).
fetch_cuda_libraries() {
  local dir=$1
  [ ! -e "$dir/.cuda" ] || return 0
  say "fetching the CUDA libraries of the wheel in $dir from PyPI (some 2 GB)"
  pip_into "$dir" $(sed -n 's/^Requires-Dist: \(\(nvidia-\|cuda-toolkit\)[^ ;(]*\) *(\{0,1\}\(==[^ ;)]*\).*/\1\3/p' \
    "$dir"/torch-*.dist-info/METADATA)
  touch "$dir/.cuda"
}

# As unpacked for one fixed Python, whichever runs pip: nothing of it is run.
pip_into() {
  local dir=$1 platforms="" log
  shift
  [ $# -gt 0 ] && [ "$*" != --no-deps ] || return 0
  for minor in $(seq 5 34); do platforms="$platforms --platform manylinux_2_${minor}_x86_64"; done
  log=$(mktemp)
  python3 -m pip install -q --disable-pip-version-check --no-cache-dir --target "$dir" $platforms \
    --platform manylinux2014_x86_64 --python-version 3.12 --only-binary=:all: "$@" >"$log" 2>&1 ||
    { tail -n 20 "$log" >&2; die "fetching $* failed (log above)"; }
  rm -f "$log"
}

# The commit that changes are counted from: the merge base with the main branch, there HEAD~20; nothing where the clone
# does not reach back to it.
base_of_changes() {
  local base
  base=$(git merge-base HEAD origin/main 2>/dev/null) || base=""
  if [ -z "$base" ] || [ "$base" = "$(git rev-parse HEAD)" ]; then
    base=$(git rev-parse --verify --quiet HEAD~20) || base=""
  fi
  echo "$base"
}

# In an unpacked bundle: builds the dependencies that came along, once, and tells build() of them.
build_third_party() {
  local generator="Unix Makefiles" prefix=$root/build/third_party/prefix
  if command -v ninja >/dev/null; then generator=Ninja; fi
  export CMAKE_GENERATOR=$generator CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
  if [ ! -e "$prefix/.complete" ]; then
    say "building the dependencies"
    cmake -S third_party -B build/third_party -DCMAKE_INSTALL_PREFIX="$prefix" -Wno-dev >/dev/null || die "configuring them failed"
    cmake --build build/third_party >/dev/null || die "building them failed"
    cmake --install build/third_party >/dev/null || die "installing them failed"
    touch "$prefix/.complete"
  fi
  CMAKE_ARGS="-DCMAKE_PREFIX_PATH=$prefix ${CMAKE_ARGS:-}"
}

# build FOLDER TARGETS...: configures where needed and builds; CMAKE_ARGS may hold further options.
build() {
  local dir=$1
  shift
  say "building $* in $dir"
  # A new folder is for a build from nothing; one that a preset made stays as it is.
  local batches=""
  [ -e "$dir/CMakeCache.txt" ] || batches=-DCMAKE_UNITY_BUILD=ON
  cmake -S "$root" -B "$dir" -G "${CMAKE_GENERATOR:-Ninja}" -DCMAKE_BUILD_TYPE=Release $batches ${torch_args:-} ${CMAKE_ARGS:-} >/dev/null ||
    die "configuring $dir failed"
  cmake --build "$dir" --target "$@" || die "building $dir failed"
}
