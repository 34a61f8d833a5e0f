#include "sim/launch/memory_room.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <sstream>
#include <stdexcept>
#include <thread>
#include <vector>

#include "sim/launch/files.h"

namespace lockstep {
namespace {

constexpr int64_t kMega = 1'000'000;
constexpr int64_t kBlasBuffer = int64_t{136} << 20;  // OpenBLAS's, for each thread that computes
constexpr int64_t kOwn = int64_t{128} << 20;         // heaps, records, streams, a small model
constexpr int64_t kOwnThreads = 6;

int64_t stack_bytes() {
  pthread_attr_t attributes;
  size_t bytes = size_t{8} << 20;
  if (pthread_getattr_default_np(&attributes) == 0) {
    pthread_attr_getstacksize(&attributes, &bytes);
    pthread_attr_destroy(&attributes);
  }
  return static_cast<int64_t>(bytes);
}

int64_t needed(int64_t computing) {
  const int64_t threads = kOwnThreads + computing + std::thread::hardware_concurrency();
  return computing * kBlasBuffer + threads * stack_bytes() + kOwn;
}

bool can_be_had(int64_t bytes) {
  const auto size = static_cast<size_t>(bytes);
  void* room = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return false;
  ::munmap(room, size);
  return true;
}

struct Limit {
  const char* what;
  const char* option;
  rlim_t bytes;
};

// Of those that are set the tighter one; nothing is set: no option.
Limit tightest_limit() {
  Limit least{"", "", RLIM_INFINITY};
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < least.bytes)
    least = {"address space", "ulimit -v", limit.rlim_cur};
  if (::getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur < least.bytes)
    least = {"data", "ulimit -d", limit.rlim_cur};
  return least;
}

int64_t taken_bytes() {
  std::istringstream pages(read_file("/proc/self/statm"));
  int64_t size = 0;
  pages >> size;
  return size * ::sysconf(_SC_PAGESIZE);
}

// OpenBLAS keeps the buffers that it has once got.
void take_blas_buffers(int64_t computing) {
  using Take = void* (*)(int);
  using Leave = void (*)(void*);
  const auto take = reinterpret_cast<Take>(::dlsym(RTLD_DEFAULT, "blas_memory_alloc"));
  const auto leave = reinterpret_cast<Leave>(::dlsym(RTLD_DEFAULT, "blas_memory_free"));
  if (take == nullptr || leave == nullptr) return;
  std::vector<void*> buffers;
  for (int64_t thread = 0; thread < computing; ++thread) buffers.push_back(take(0));
  for (void* buffer : buffers) leave(buffer);
}

}  // namespace

std::string why_no_room(int64_t computing) {
  const Limit limit = tightest_limit();
  if (limit.bytes == RLIM_INFINITY || can_be_had(needed(computing))) return "";
  return fmt::format(
      "memory is limited to {} MB of {} ({}), which is too little: this process has mapped {} MB, "
      "and needs {} MB more",
      limit.bytes / kMega, limit.what, limit.option, taken_bytes() / kMega,
      needed(computing) / kMega);
}

void take_room(int64_t computing) {
  if (const std::string why = why_no_room(computing); !why.empty()) throw std::runtime_error(why);
  if (tightest_limit().bytes != RLIM_INFINITY) take_blas_buffers(computing);
}

}  // namespace lockstep
