#include "reducer/shm/shm_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr const char* kName = "lockstep";

// At the head of the memory.
struct Head {
  std::array<uint64_t, 2> nonce;
  int64_t world_size;
};

// What rank 0 leaves in the store.
struct Place {
  std::string host;  // of the kernel that runs
  int64_t pid = 0;
  int fd = -1;
  std::array<uint64_t, 2> nonce{};
};

size_t round_up_to(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

std::string running_kernel() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id.empty() ? "-" : id;
}

std::string to_text(const Place& place) {
  std::ostringstream text;
  text << place.host << ' ' << place.pid << ' ' << place.fd << ' ' << place.nonce[0] << ' '
       << place.nonce[1];
  return text.str();
}

Place parse(const std::string& text) {
  std::istringstream words(text);
  Place place;
  words >> place.host >> place.pid >> place.fd >> place.nonce[0] >> place.nonce[1];
  return place;
}

[[noreturn]] void refuse(const std::string& why) {
  throw CommError(CommFailure::rejected, "connecting over shared memory: " + why);
}

std::string reason() { return std::strerror(errno); }

// The place of an open file description's lock on byte `rank`.
struct flock byte_lock(int64_t rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

ShmMemory::ShmMemory(const CommOptions& options, size_t control_bytes, Store& store,
                     Deadline deadline)
    : rank_(options.rank),
      world_size_(options.world_size),
      numbers_(options.names),
      arenas_at_(kHeadBytes + round_up_to(control_bytes)),
      bytes_(arenas_at_ + static_cast<size_t>(options.world_size) * kArenaBytes) {
  const std::string key = options.prefix + "shm";
  try {
    if (rank_ == 0) {
      const std::string where = make();
      lock_own_byte();
      store.set(key, where);
    } else {
      open_of(store.get(key, deadline));
      lock_own_byte();
    }
  } catch (...) {
    if (base_ != nullptr) munmap(base_, bytes_);
    if (fd_ >= 0) close(fd_);
    throw;
  }
}

ShmMemory::~ShmMemory() {
  munmap(base_, bytes_);
  close(fd_);
}

std::string ShmMemory::make() {
  fd_ = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd_ < 0) refuse("no memory: memfd_create: " + reason());
  if (ftruncate(fd_, static_cast<off_t>(bytes_)) != 0) refuse("no memory: ftruncate: " + reason());
  fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  map();
  Place place{running_kernel(), getpid(), fd_, {}};
  if (getrandom(place.nonce.data(), sizeof place.nonce, 0) != sizeof place.nonce)
    refuse("no random number: " + reason());
  *reinterpret_cast<Head*>(base_) = {place.nonce, world_size_};
  return to_text(place);
}

void ShmMemory::open_of(const std::string& where) {
  const Place place = parse(where);
  const std::string self = "rank " + std::to_string(numbers_.of(rank_));
  const std::string first = "rank " + std::to_string(numbers_.of(0));
  if (place.host != running_kernel())
    refuse(self + " runs on another host than " + first +
           "; communicator shm joins ranks of one host");
  const std::string path = "/proc/" + std::to_string(place.pid) + "/fd/" + std::to_string(place.fd);
  std::array<char, 64> target{};
  const std::string wanted = std::string("/memfd:") + kName;
  // What else may have that number now is not even opened.
  if (readlink(path.c_str(), target.data(), target.size() - 1) < 0)
    refuse(self + " cannot reach the memory of " + first + ", " + path + ": " + reason());
  if (!std::string(target.data()).starts_with(wanted))
    refuse(path + " is not " + first + "'s memory");
  fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd_ < 0) refuse(self + " cannot open the memory of " + first + ", " + path + ": " + reason());
  struct stat status {};
  if (fstat(fd_, &status) != 0 || static_cast<size_t>(status.st_size) != bytes_)
    refuse(path + " does not have the size of memory of " + std::to_string(world_size_) + " ranks");
  map();
  const Head& head = *reinterpret_cast<const Head*>(base_);
  if (head.nonce != place.nonce || head.world_size != world_size_)
    refuse(path + " is not " + first + "'s memory");
}

void ShmMemory::map() {
  void* const base =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  if (base == MAP_FAILED)
    refuse("no room for " + std::to_string(bytes_ >> 30) + " GiB of addresses: " + reason());
  base_ = static_cast<std::byte*>(base);
  madvise(base_, bytes_, MADV_DONTDUMP);
}

// Every rank has an open file description of its own: opening through /proc makes a new one.
void ShmMemory::lock_own_byte() {
  struct flock lock = byte_lock(rank_);
  if (fcntl(fd_, F_OFD_SETLK, &lock) != 0)
    refuse("no lock of rank " + std::to_string(numbers_.of(rank_)) + ": " + reason());
}

bool ShmMemory::is_alive(int64_t rank) const {
  struct flock lock = byte_lock(rank);
  return fcntl(fd_, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

std::byte* ShmMemory::take(size_t bytes) {
  const size_t whole = round_up_to(bytes);
  std::lock_guard lock(mutex_);
  size_t at = 0;
  for (const auto& [begin, length] : taken_) {
    if (begin - at >= whole) break;
    at = begin + length;
  }
  if (whole == 0 || whole > kArenaBytes - at) return nullptr;
  std::byte* const memory = arena(rank_) + at;
  // Pages now: later there would be a signal where there is no memory for them.
  if (fallocate(fd_, 0, memory - base_, static_cast<off_t>(whole)) != 0) return nullptr;
  taken_.emplace(at, whole);
  return memory;
}

// The pages go back: whoever takes them next finds zeros.
void ShmMemory::release(std::byte* memory, size_t bytes) {
  const std::lock_guard lock(mutex_);
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, memory - base_,
            static_cast<off_t>(round_up_to(bytes)));
  taken_.erase(static_cast<size_t>(memory - arena(rank_)));
}

std::optional<size_t> ShmMemory::place_of(const void* memory, size_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(memory);
  const auto begin = reinterpret_cast<uintptr_t>(arena(rank_));
  if (at < begin || bytes > kArenaBytes || at - begin > kArenaBytes - bytes) return std::nullopt;
  return at - begin;
}

}  // namespace lockstep
