#include "sim/worker/collective_board.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <system_error>
#include <type_traits>

#include "golden/half_types.h"
#include "golden/reduction_order.h"
#include "scenarios/base/hash.h"

namespace lockstep {
namespace {

constexpr int64_t kLine = 64;
constexpr const char* kBoardKey = "collective_board";
constexpr const char* kBoardName = "lockstep-collective";

[[noreturn]] void fail(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

[[noreturn]] void refuse_board(const std::string& why) {
  throw CommError(CommFailure::rejected, "rank 0's memory for the inputs: " + why);
}

struct BoardPlace {
  int64_t pid = 0, fd = 0;
};

// "PID FD": two numbers, and nothing that could be a path.
BoardPlace parse_place(const std::string& text) {
  BoardPlace place;
  const char* const end = text.data() + text.size();
  const auto [space, bad_pid] = std::from_chars(text.data(), end, place.pid);
  if (bad_pid != std::errc() || space == end || *space != ' ') refuse_board("it is nowhere");
  const auto [last, bad_fd] = std::from_chars(space + 1, end, place.fd);
  if (bad_fd != std::errc() || last != end || place.pid <= 0 || place.fd < 0)
    refuse_board("it is nowhere");
  return place;
}

template <class Visit>
void for_dtype(const std::string& dtype, Visit visit) {
  if (dtype == "float64") return visit(double{});
  if (dtype == "float16") return visit(Float16{});
  if (dtype == "bfloat16") return visit(Brain16{});
  visit(float{});
}

template <class T>
T rounded(double value) {
  if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(value);
  else
    return T(static_cast<float>(value));
}

// SplitMix64: a counter in, bits out.
uint64_t mixed(uint64_t counter) {
  uint64_t z = counter * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

template <class T>
void fill(uint64_t seed, int64_t count, T* out) {
  constexpr double kScales[] = {0x1p-52, 0x1p-53, 0x1p-54, 0x1p-55,
                                0x1p-56, 0x1p-57, 0x1p-58, 0x1p-59};
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = mixed(seed + static_cast<uint64_t>(i));
    const auto mantissa =
        static_cast<double>(static_cast<int64_t>(bits >> 11) - (int64_t{1} << 52));
    out[i] = rounded<T>(mantissa * kScales[bits & 7]);
  }
}

int64_t differing(const std::byte* a, const std::byte* b, int64_t bytes, int64_t width) {
  if (std::memcmp(a, b, static_cast<size_t>(bytes)) == 0) return 0;
  int64_t count = 0;
  for (int64_t at = 0; at < bytes; at += width)
    count += std::memcmp(a + at, b + at, static_cast<size_t>(width)) != 0;
  return count;
}

std::vector<std::string> orders_of(const CollectiveSpec& spec) {
  std::vector<std::string> orders;
  for (const CollectiveGroup& group : spec.groups) {
    const std::string order = spec.adds() ? group.order() : "";
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(order);
  }
  return orders;
}

int64_t in_lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

CollectiveBoard::CollectiveBoard(const CollectiveSpec& spec, int64_t rank, Store& store,
                                 Deadline deadline)
    : spec_(spec),
      rank_(rank),
      orders_(orders_of(spec)),
      slot_bytes_(in_lines(input_bytes(spec.elements.back()))),
      expected_bytes_(in_lines(spec.elements.back() * element_bytes(spec.dtype))),
      bytes_(static_cast<size_t>(slot_bytes_ * spec.world_size +
                                 expected_bytes_ * static_cast<int64_t>(orders_.size()))) {
  if (rank == 0)
    make(store);
  else
    open(store.get(kBoardKey, deadline));
  void* const base = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) fail("mmap of the inputs");
  base_ = static_cast<std::byte*>(base);
}

CollectiveBoard::~CollectiveBoard() { ::munmap(base_, bytes_); }

void CollectiveBoard::make(Store& store) {
  fd_.reset(::memfd_create(kBoardName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd_.valid() || ::ftruncate(fd_.get(), static_cast<off_t>(bytes_)) != 0)
    fail("memory for the inputs");
  ::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  store.set(kBoardKey, fmt::format("{} {}", ::getpid(), fd_.get()));
}

// The store is read by all and written by all: what it names is opened only where it is a memory of
// this name and size.
void CollectiveBoard::open(const std::string& where) {
  const auto [pid, number] = parse_place(where);
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, number);
  std::array<char, 64> target{};
  if (::readlink(path.c_str(), target.data(), target.size() - 1) < 0)
    fail("rank 0's memory for the inputs");
  if (std::string_view(target.data()) != fmt::format("/memfd:{} (deleted)", kBoardName))
    refuse_board(path + " is another file");
  fd_.reset(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd_.valid()) fail("rank 0's memory for the inputs");
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0 || static_cast<size_t>(status.st_size) != bytes_)
    refuse_board(path + " has another size");
}

int64_t CollectiveBoard::input_bytes(int64_t elements) const {
  const int64_t parts = spec_.operation == "all_gather" ? spec_.world_size : 1;
  return elements / parts * element_bytes(spec_.dtype);
}

int64_t CollectiveBoard::result_bytes(int64_t elements) const {
  const int64_t parts = spec_.operation == "reduce_scatter" ? spec_.world_size : 1;
  return elements / parts * element_bytes(spec_.dtype);
}

void CollectiveBoard::fill_input(int64_t elements) {
  const uint64_t seed = substream_seed(spec_.seed, "collective", static_cast<uint64_t>(rank_));
  for_dtype(spec_.dtype, [&](auto zero) {
    using T = decltype(zero);
    fill(seed, input_bytes(elements) / static_cast<int64_t>(sizeof(T)),
         reinterpret_cast<T*>(input_of(rank_)));
  });
}

std::byte* CollectiveBoard::expected(size_t group) const {
  const std::string order = spec_.adds() ? spec_.groups[group].order() : "";
  const auto place = std::find(orders_.begin(), orders_.end(), order) - orders_.begin();
  return base_ + spec_.world_size * slot_bytes_ + place * expected_bytes_;
}

template <class T>
void CollectiveBoard::add_inputs(int64_t count) {
  std::vector<const T*> inputs;
  for (int64_t rank = 0; rank < spec_.world_size; ++rank)
    inputs.push_back(reinterpret_cast<const T*>(input_of(rank)));
  for (size_t group = 0; group < spec_.groups.size(); ++group) {
    auto* const sum = reinterpret_cast<T*>(expected(group));
    sum_in_order<T>(spec_.groups[group].order(), inputs, count, sum);
  }
}

void CollectiveBoard::compute_expected(int64_t elements) {
  if (spec_.adds())
    return for_dtype(spec_.dtype, [&](auto zero) { add_inputs<decltype(zero)>(elements); });
  const int64_t bytes = input_bytes(elements);
  const int64_t ranks = spec_.operation == "broadcast" ? 1 : spec_.world_size;
  for (int64_t rank = 0; rank < ranks; ++rank)
    std::memcpy(expected(0) + rank * bytes, input_of(rank), static_cast<size_t>(bytes));
}

int64_t CollectiveBoard::count_wrong(size_t group, int64_t elements, const void* result) const {
  const int64_t bytes = result_bytes(elements);
  const int64_t at = spec_.operation == "reduce_scatter" ? rank_ * bytes : 0;
  return differing(expected(group) + at, static_cast<const std::byte*>(result), bytes,
                   element_bytes(spec_.dtype));
}

}  // namespace lockstep
