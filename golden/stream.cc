#include "golden/stream.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <limits>
#include <new>
#include <system_error>
#include <thread>

#include "scenarios/base/error.h"

namespace lockstep {

namespace {

constexpr int64_t kSlotAlignment = 64;
constexpr int64_t kLeft = std::numeric_limits<int64_t>::max();

int64_t aligned_slot(int64_t bytes) {
  return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

using Event = std::atomic<uint32_t>;
static_assert(sizeof(Event) == 4 && Event::is_always_lock_free);
static_assert(std::atomic<int64_t>::is_always_lock_free);

// Without FUTEX_PRIVATE_FLAG: the word may lie in a file that several processes map.
void sleep_while(Event& event, uint32_t value, std::chrono::milliseconds longest) {
  const timespec time = {.tv_sec = longest.count() / 1000,
                         .tv_nsec = longest.count() % 1000 * 1'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&event), FUTEX_WAIT, value, &time, nullptr, 0);
}

void announce(Event& event) {
  event.fetch_add(1, std::memory_order_acq_rel);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&event), FUTEX_WAKE,
          std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

// Sleeps until `ready` holds; false past the deadline. The event is read before the condition, so
// that what happens in between is not slept through; a spurious wake-up only asks again.
template <class Ready>
bool wait_until(Event& event, Deadline deadline, Ready ready) {
  for (;;) {
    const uint32_t value = event.load(std::memory_order_acquire);
    if (ready()) return true;
    const std::chrono::milliseconds left = time_left(deadline);
    if (left == std::chrono::milliseconds::zero()) return false;
    sleep_while(event, value, left);
  }
}

[[noreturn]] void fail(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::byte* map_shared(int fd, int64_t bytes) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* base = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (base == MAP_FAILED) fail("mapping a stream of " + std::to_string(bytes) + " bytes");
  return static_cast<std::byte*>(base);
}

struct File {
  explicit File(int descriptor) : fd(descriptor) {}
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int fd;
};

}  // namespace

struct StateStream::Header {
  Shape shape;
  alignas(64) Event writes{0};  // changes when an item was written or the producer has finished
  std::atomic<int64_t> written{0};
  std::atomic<uint32_t> finished{0};
  alignas(64) Event reads{0};  // changes when a consumer has read an item or left
  // One per consumer, behind the header: how many items it has read, or kLeft.
  std::atomic<int64_t>* read_counts() {
    return reinterpret_cast<std::atomic<int64_t>*>(reinterpret_cast<std::byte*>(this) +
                                                   sizeof(Header));
  }
  static int64_t bytes(const Shape& shape) {
    return aligned_slot(static_cast<int64_t>(
        sizeof(Header) + sizeof(std::atomic<int64_t>) * static_cast<size_t>(shape.consumers)));
  }
  static int64_t total_bytes(const Shape& shape) {
    return bytes(shape) + shape.slots * aligned_slot(shape.slot_bytes);
  }
  int64_t slowest() {
    const std::atomic<int64_t>* counts = read_counts();
    int64_t least = kLeft;
    for (int64_t i = 0; i < shape.consumers; ++i)
      least = std::min(least, counts[i].load(std::memory_order_acquire));
    return least;
  }
};

StateStream::StateStream(std::byte* base, int64_t mapped_bytes)
    : base_(base), mapped_bytes_(mapped_bytes) {}

StateStream::~StateStream() { munmap(base_, static_cast<size_t>(mapped_bytes_)); }

StateStream::Header* StateStream::header() const { return reinterpret_cast<Header*>(base_); }

const StateStream::Shape& StateStream::shape() const { return header()->shape; }

std::byte* StateStream::slot(int64_t item) const {
  const Shape& s = shape();
  return base_ + Header::bytes(s) + item % s.slots * aligned_slot(s.slot_bytes);
}

std::unique_ptr<StateStream> StateStream::make(int fd, const Shape& shape) {
  LOCKSTEP_CHECK(shape.slot_bytes >= 0 && shape.slots > 0 && shape.consumers > 0,
                 "a stream without slots or consumers");
  const int64_t bytes = Header::total_bytes(shape);
  std::byte* base = map_shared(fd, bytes);
  auto* header = new (base) Header;
  header->shape = shape;
  for (int64_t i = 0; i < shape.consumers; ++i)
    new (header->read_counts() + i) std::atomic<int64_t>(0);
  return std::unique_ptr<StateStream>(new StateStream(base, bytes));
}

std::unique_ptr<StateStream> StateStream::create(const std::string& path, const Shape& shape) {
  // Renamed when it is whole: whoever finds the path finds a stream.
  const std::string unfinished = path + ".new";
  const File file(
      ::open(unfinished.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.fd < 0) fail(unfinished);
  errno = posix_fallocate(file.fd, 0, Header::total_bytes(shape));
  if (errno != 0) fail(unfinished);
  auto stream = make(file.fd, shape);
  if (::rename(unfinished.c_str(), path.c_str()) != 0) fail(path);
  return stream;
}

std::unique_ptr<StateStream> StateStream::open(const std::string& path, Deadline deadline) {
  int fd = -1;
  while ((fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC)) < 0) {
    if (errno != ENOENT) fail(path);
    if (Clock::now() >= deadline) return nullptr;
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  const File file(fd);
  struct stat status;
  if (fstat(file.fd, &status) != 0) fail(path);
  return std::unique_ptr<StateStream>(
      new StateStream(map_shared(file.fd, status.st_size), status.st_size));
}

std::unique_ptr<StateStream> StateStream::in_memory(const Shape& shape) { return make(-1, shape); }

std::byte* StateStream::begin_write(Deadline deadline) {
  Header* h = header();
  const int64_t item = h->written.load(std::memory_order_relaxed);
  const bool free =
      wait_until(h->reads, deadline, [&] { return item - h->shape.slots < h->slowest(); });
  return free ? slot(item) : nullptr;
}

void StateStream::end_write() {
  Header* h = header();
  h->written.fetch_add(1, std::memory_order_release);
  announce(h->writes);
}

void StateStream::finish() {
  header()->finished.store(1, std::memory_order_release);
  announce(header()->writes);
}

bool StateStream::abandoned() const { return header()->slowest() == kLeft; }

const std::byte* StateStream::begin_read(int64_t consumer, int64_t item, Deadline deadline) {
  Header* h = header();
  LOCKSTEP_CHECK(consumer >= 0 && consumer < h->shape.consumers, "no such consumer");
  LOCKSTEP_CHECK(h->read_counts()[consumer].load(std::memory_order_relaxed) == item,
                 "items of a stream are read once and in order");
  bool written = false;
  wait_until(h->writes, deadline, [&] {
    // In this order: an item written before finish() is seen.
    const bool finished = h->finished.load(std::memory_order_acquire) != 0;
    written = h->written.load(std::memory_order_acquire) > item;
    return written || finished;
  });
  return written ? slot(item) : nullptr;
}

void StateStream::end_read(int64_t consumer) {
  std::atomic<int64_t>& count = header()->read_counts()[consumer];
  // It may have left in the middle of this item: one more than kLeft would hold the producer back.
  if (count.load(std::memory_order_relaxed) == kLeft) return;
  count.fetch_add(1, std::memory_order_acq_rel);
  announce(header()->reads);
}

void StateStream::leave(int64_t consumer) {
  header()->read_counts()[consumer].store(kLeft, std::memory_order_release);
  announce(header()->reads);
}

}  // namespace lockstep
