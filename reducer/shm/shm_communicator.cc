#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

#include "reducer/comm/collective.h"
#include "reducer/comm/pending_work.h"
#include "reducer/local/sum_ranges.h"
#include "reducer/shm/shm_group.h"

namespace lockstep {
namespace {

// Runs collectives in shared memory, blocking. One thread.
//
// Tensors that lie in the arenas of all ranks (Communicator::allocate) are summed where they are:
// each rank adds its share of the elements over all ranks' tensors and writes the sum into all of
// them (of a reduce_scatter: its part, into its output). From all_to_all and all_gather each
// fetches what is for it. Any others go through staging memory, piece by piece.
class ShmCollectives {
 public:
  ShmCollectives(ShmGroup& group, SumOrder order) : group_(group), order_(order) {}
  // Throws CommError.
  void run(const CollectiveCall& call);

 private:
  void all_reduce(const CollectiveCall& call);
  void reduce_scatter(const CollectiveCall& call);
  void all_to_all(const CollectiveCall& call);
  void all_gather(const CollectiveCall& call);
  int64_t piece_of_parts(const CollectiveCall& call, int64_t at) const;
  void stage_parts(const CollectiveCall& call, int64_t at);
  void fetch_parts(const CollectiveCall& call, bool first_is_there);
  void fetch_in_place(const CollectiveCall& call, const std::vector<int64_t>& places,
                      int64_t offset, int64_t length);
  void move(const CollectiveCall& call);
  template <class T>
  void add_at_once(const CollectiveCall& call);
  template <class T>
  void add_in_place(const CollectiveCall& call, const std::vector<int64_t>& places);
  template <class T>
  void add_piece_by_piece(const CollectiveCall& call, bool first_is_there);
  template <class T>
  void add_part_in_place(const CollectiveCall& call, const std::vector<int64_t>& places);
  template <class T>
  int64_t slice_length(const CollectiveCall& call, int64_t begin) const;
  template <class T>
  void stage_slices(const CollectiveCall& call, int64_t begin);
  template <class T>
  void add_slices(const CollectiveCall& call, bool first_is_there);

  // What one rank has read of another's bytes: `length` from `at` on.
  using Take = std::function<void(int64_t rank, int64_t at, const std::byte* bytes, size_t length)>;
  // Every rank's `bytes[rank]` bytes are shown to all ranks.
  void show(const std::string& what, const void* own, const std::vector<int64_t>& bytes,
            Deadline deadline, const Take& take);
  void barrier(const std::string& what, bool first, Deadline deadline);
  int64_t place_of(const at::Tensor& tensor) const;
  template <class T>
  std::vector<const T*> stagings(int64_t offset) const;

  ShmGroup& group_;
  const SumOrder order_;
};

constexpr int64_t kLineBytes = 64;
constexpr int64_t kNoPlace = -1;

// Up to this size every rank adds everything itself: that saves a meeting.
constexpr int64_t kAtOnceBytesMax = 16 << 10;

struct Share {
  int64_t begin, end;
};

// The elements of `count` that a rank adds. Ranks write to cache lines of their own.
Share share_of(int64_t count, int64_t element_bytes, int64_t rank, int64_t ranks) {
  const int64_t line = kLineBytes / element_bytes;
  const int64_t each = ((count + ranks - 1) / ranks + line - 1) / line * line;
  return {std::min(count, rank * each), std::min(count, (rank + 1) * each)};
}

template <class T>
T* data_of(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.data_ptr());
}

std::byte* bytes_of(const at::Tensor& tensor) { return data_of<std::byte>(tensor); }

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
}

std::string signature(const CollectiveCall& call, SumOrder order) {
  const std::string text = describe(call);
  if (call.operation == Operation::all_reduce || call.operation == Operation::reduce_scatter)
    return text + " in order " + std::to_string(static_cast<int>(order));
  const bool rooted = call.operation == Operation::broadcast ||
                      call.operation == Operation::scatter || call.operation == Operation::gather;
  return rooted ? text + " of root " + std::to_string(call.root) : text;
}

void ShmCollectives::run(const CollectiveCall& call) {
  const c10::NoGradGuard no_grad;
  if (call.operation == Operation::barrier) return barrier("barrier", true, call.deadline);
  if (own_tensor(call).numel() == 0) return;
  if (call.operation == Operation::all_reduce) return all_reduce(call);
  if (call.operation == Operation::reduce_scatter) return reduce_scatter(call);
  if (call.operation == Operation::all_to_all) return all_to_all(call);
  if (call.operation == Operation::all_gather) return all_gather(call);
  move(call);
}

void ShmCollectives::barrier(const std::string& what, bool first, Deadline deadline) {
  if (first)
    group_.barrier_with_places(what, kNoPlace, deadline);
  else
    group_.meet(deadline);
}

int64_t ShmCollectives::place_of(const at::Tensor& tensor) const {
  const auto place = group_.memory()->place_of(tensor.data_ptr(), tensor.nbytes());
  return place ? static_cast<int64_t>(*place) : kNoPlace;
}

// `offset`: in bytes.
template <class T>
std::vector<const T*> ShmCollectives::stagings(int64_t offset) const {
  std::vector<const T*> all;
  for (int64_t r = 0; r < group_.world_size(); ++r)
    all.push_back(reinterpret_cast<const T*>(group_.staging(r) + offset));
  return all;
}

void ShmCollectives::all_reduce(const CollectiveCall& call) {
  const at::Tensor& tensor = call.output;
  if (tensor.is_sparse()) {
    sum_sparse_tensors(tensor, group_.world_size(),
                       [&](const void* own, const std::vector<int64_t>& bytes, void* all) {
                         std::vector<int64_t> begins{0};
                         for (int64_t n : bytes) begins.push_back(begins.back() + n);
                         show(describe(call), own, bytes, call.deadline,
                              [&](int64_t r, int64_t at, const std::byte* from, size_t length) {
                                auto* const to = static_cast<std::byte*>(all) +
                                                 begins[static_cast<size_t>(r)] + at;
                                std::memcpy(to, from, length);
                              });
                       });
    return;
  }
  for_summable(tensor.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (bytes <= kAtOnceBytesMax) return add_at_once<T>(call);
    const int64_t own_place = place_of(tensor);
    const auto staged = std::min<int64_t>(bytes, static_cast<int64_t>(group_.staging_bytes()));
    if (own_place == kNoPlace) copy_bytes(group_.staging(group_.rank()), bytes_of(tensor), staged);
    const auto places =
        group_.barrier_with_places(signature(call, order_), own_place, call.deadline);
    const auto elsewhere = std::count(places.begin(), places.end(), kNoPlace);
    if (elsewhere == 0) return add_in_place<T>(call, places);
    // All that is elsewhere is staged by now.
    add_piece_by_piece<T>(call, elsewhere == group_.world_size());
  });
}

template <class T>
void ShmCollectives::add_at_once(const CollectiveCall& call) {
  const at::Tensor& tensor = call.output;
  copy_bytes(group_.staging(group_.rank()), bytes_of(tensor),
             static_cast<int64_t>(tensor.nbytes()));
  barrier(signature(call, order_), true, call.deadline);
  const auto ranges = sum_ranges(order_, group_.world_size(), tensor.numel(), sizeof(T));
  sum_into<T>(ranges, 0, tensor.numel(), stagings<T>(0), {data_of<T>(tensor)});
  group_.next_staging();
}

template <class T>
void ShmCollectives::add_in_place(const CollectiveCall& call, const std::vector<int64_t>& places) {
  const int64_t count = call.output.numel();
  const Share share = share_of(count, sizeof(T), group_.rank(), group_.world_size());
  std::vector<const T*> inputs;
  std::vector<T*> outputs;
  for (int64_t r = 0; r < group_.world_size(); ++r) {
    std::byte* const begin = group_.memory()->arena(r) + places[static_cast<size_t>(r)];
    outputs.push_back(reinterpret_cast<T*>(begin) + share.begin);
    inputs.push_back(outputs.back());
  }
  const auto ranges = sum_ranges(order_, group_.world_size(), count, sizeof(T));
  sum_into<T>(ranges, share.begin, share.end, inputs, outputs);
  group_.meet(call.deadline);
}

// Each rank adds its share of a piece in its own staging memory, where the others fetch it.
template <class T>
void ShmCollectives::add_piece_by_piece(const CollectiveCall& call, bool first_is_there) {
  T* const own = data_of<T>(call.output);
  const int64_t count = call.output.numel();
  const auto piece = static_cast<int64_t>(group_.staging_bytes() / sizeof(T));
  const auto ranges = sum_ranges(order_, group_.world_size(), count, sizeof(T));
  for (int64_t begin = 0; begin < count; begin += piece) {
    const int64_t length = std::min(piece, count - begin);
    auto* const staged = reinterpret_cast<T*>(group_.staging(group_.rank()));
    if (begin > 0 || !first_is_there) {
      copy_bytes(staged, own + begin, length * static_cast<int64_t>(sizeof(T)));
      group_.meet(call.deadline);
    }
    const Share share = share_of(length, sizeof(T), group_.rank(), group_.world_size());
    const auto offset = share.begin * static_cast<int64_t>(sizeof(T));
    sum_into<T>(ranges, begin + share.begin, begin + share.end, stagings<T>(offset),
                {staged + share.begin});
    group_.meet(call.deadline);
    for (int64_t r = 0; r < group_.world_size(); ++r) {
      const Share theirs = share_of(length, sizeof(T), r, group_.world_size());
      copy_bytes(own + begin + theirs.begin, reinterpret_cast<T*>(group_.staging(r)) + theirs.begin,
                 (theirs.end - theirs.begin) * static_cast<int64_t>(sizeof(T)));
    }
    group_.next_staging();
  }
}

void ShmCollectives::reduce_scatter(const CollectiveCall& call) {
  for_summable(call.output.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t own_place = place_of(call.input);
    if (own_place == kNoPlace) stage_slices<T>(call, 0);
    const auto places =
        group_.barrier_with_places(signature(call, order_), own_place, call.deadline);
    const auto elsewhere = std::count(places.begin(), places.end(), kNoPlace);
    if (elsewhere == 0) return add_part_in_place<T>(call, places);
    add_slices<T>(call, elsewhere == group_.world_size());
  });
}

template <class T>
void ShmCollectives::add_part_in_place(const CollectiveCall& call,
                                       const std::vector<int64_t>& places) {
  const int64_t ranks = group_.world_size(), part = call.output.numel();
  const int64_t first = group_.rank() * part;
  std::vector<const T*> inputs;
  for (int64_t r = 0; r < ranks; ++r) {
    const std::byte* const begin = group_.memory()->arena(r) + places[static_cast<size_t>(r)];
    inputs.push_back(reinterpret_cast<const T*>(begin) + first);
  }
  const auto ranges = sum_ranges(order_, ranks, part * ranks, sizeof(T));
  sum_into<T>(ranges, first, first + part, inputs, {data_of<T>(call.output)});
  group_.meet(call.deadline);  // until then the others read this rank's
}

template <class T>
int64_t ShmCollectives::slice_length(const CollectiveCall& call, int64_t begin) const {
  const auto most = static_cast<int64_t>(group_.staging_bytes() / sizeof(T)) / group_.world_size();
  return std::min(most, call.output.numel() - begin);
}

// Of every rank's part the elements from `begin` on: all will have something to add.
template <class T>
void ShmCollectives::stage_slices(const CollectiveCall& call, int64_t begin) {
  const auto bytes = slice_length<T>(call, begin) * static_cast<int64_t>(sizeof(T));
  for (int64_t r = 0; r < group_.world_size(); ++r)
    copy_bytes(group_.staging(group_.rank()) + r * bytes,
               data_of<T>(call.input) + r * call.output.numel() + begin, bytes);
}

template <class T>
void ShmCollectives::add_slices(const CollectiveCall& call, bool first_is_there) {
  const int64_t ranks = group_.world_size(), part = call.output.numel();
  const auto ranges = sum_ranges(order_, ranks, part * ranks, sizeof(T));
  for (int64_t begin = 0; begin < part; begin += slice_length<T>(call, 0)) {
    const int64_t length = slice_length<T>(call, begin);
    const auto bytes = length * static_cast<int64_t>(sizeof(T));
    if (begin > 0 || !first_is_there) {
      stage_slices<T>(call, begin);
      group_.meet(call.deadline);
    }
    const int64_t first = group_.rank() * part + begin;
    sum_into<T>(ranges, first, first + length, stagings<T>(group_.rank() * bytes),
                {data_of<T>(call.output) + begin});
    group_.next_staging();
  }
}

void ShmCollectives::show(const std::string& what, const void* own,
                          const std::vector<int64_t>& bytes, Deadline deadline, const Take& take) {
  const auto piece = static_cast<int64_t>(group_.staging_bytes());
  const int64_t mine = bytes[static_cast<size_t>(group_.rank())];
  const int64_t most = *std::max_element(bytes.begin(), bytes.end());
  for (int64_t at = 0; at < most; at += piece) {
    copy_bytes(group_.staging(group_.rank()), static_cast<const std::byte*>(own) + at,
               std::min(piece, mine - at));
    barrier(what, at == 0, deadline);
    for (int64_t r = 0; r < group_.world_size(); ++r) {
      const int64_t length = std::min(piece, bytes[static_cast<size_t>(r)] - at);
      if (length > 0) take(r, at, group_.staging(r), static_cast<size_t>(length));
    }
    group_.next_staging();
  }
}

void ShmCollectives::all_to_all(const CollectiveCall& call) {
  const int64_t ranks = group_.world_size();
  const int64_t part = static_cast<int64_t>(call.input.nbytes()) / ranks;
  const int64_t own_place = place_of(call.input);
  if (own_place == kNoPlace) stage_parts(call, 0);
  const auto places = group_.barrier_with_places(signature(call, order_), own_place, call.deadline);
  const auto elsewhere = std::count(places.begin(), places.end(), kNoPlace);
  if (elsewhere == 0) return fetch_in_place(call, places, group_.rank() * part, part);
  fetch_parts(call, elsewhere == ranks);
}

int64_t ShmCollectives::piece_of_parts(const CollectiveCall& call, int64_t at) const {
  const int64_t ranks = group_.world_size();
  const int64_t part = static_cast<int64_t>(call.input.nbytes()) / ranks;
  return std::min(static_cast<int64_t>(group_.staging_bytes()) / ranks, part - at);
}

// A piece of every part, so that each rank finds something for it. `at`: in bytes.
void ShmCollectives::stage_parts(const CollectiveCall& call, int64_t at) {
  const int64_t ranks = group_.world_size(), self = group_.rank();
  const int64_t part = static_cast<int64_t>(call.input.nbytes()) / ranks;
  const int64_t length = piece_of_parts(call, at);
  for (int64_t r = 0; r < ranks; ++r)
    if (r != self)
      copy_bytes(group_.staging(self) + r * length, bytes_of(call.input) + r * part + at, length);
}

void ShmCollectives::fetch_parts(const CollectiveCall& call, bool first_is_there) {
  const int64_t ranks = group_.world_size(), self = group_.rank();
  const int64_t part = static_cast<int64_t>(call.input.nbytes()) / ranks;
  for (int64_t at = 0, length = 0; at < part; at += length) {
    length = piece_of_parts(call, at);
    if (at > 0 || !first_is_there) {
      stage_parts(call, at);
      group_.meet(call.deadline);
    }
    for (int64_t r = 0; r < ranks; ++r)
      copy_bytes(
          bytes_of(call.output) + r * part + at,
          r == self ? bytes_of(call.input) + self * part + at : group_.staging(r) + self * length,
          length);
    group_.next_staging();
  }
}

// Of every rank's memory `length` bytes from `offset` on, one after the other.
void ShmCollectives::fetch_in_place(const CollectiveCall& call, const std::vector<int64_t>& places,
                                    int64_t offset, int64_t length) {
  for (int64_t r = 0; r < group_.world_size(); ++r)
    copy_bytes(bytes_of(call.output) + r * length,
               group_.memory()->arena(r) + places[static_cast<size_t>(r)] + offset, length);
  group_.meet(call.deadline);  // until then the others read this rank's
}

void ShmCollectives::all_gather(const CollectiveCall& call) {
  const auto part = static_cast<int64_t>(call.input.nbytes());
  const int64_t own_place = place_of(call.input);
  const auto most = static_cast<int64_t>(group_.staging_bytes());
  const auto stage = [&](int64_t at) {
    copy_bytes(group_.staging(group_.rank()), bytes_of(call.input) + at, std::min(most, part - at));
  };
  if (own_place == kNoPlace) stage(0);
  const auto places = group_.barrier_with_places(signature(call, order_), own_place, call.deadline);
  const auto elsewhere = std::count(places.begin(), places.end(), kNoPlace);
  if (elsewhere == 0) return fetch_in_place(call, places, 0, part);
  for (int64_t at = 0; at < part; at += most) {
    const int64_t length = std::min(most, part - at);
    if (at > 0 || elsewhere < group_.world_size()) {
      stage(at);
      group_.meet(call.deadline);
    }
    for (int64_t r = 0; r < group_.world_size(); ++r)
      copy_bytes(bytes_of(call.output) + r * part + at, group_.staging(r), length);
    group_.next_staging();
  }
}

void ShmCollectives::move(const CollectiveCall& call) {
  const auto part = static_cast<int64_t>(own_tensor(call).nbytes());
  const auto root = static_cast<size_t>(call.root);
  const int64_t self = group_.rank();
  const bool all_show = call.operation == Operation::gather;
  std::vector<int64_t> bytes(static_cast<size_t>(group_.world_size()), all_show ? part : 0);
  if (call.operation == Operation::broadcast) bytes[root] = part;
  if (call.operation == Operation::scatter) bytes[root] = part * group_.world_size();
  const at::Tensor& shown = call.operation == Operation::broadcast ? call.output : call.input;
  const void* const own = shown.defined() ? shown.data_ptr() : nullptr;
  std::byte* const to = call.output.defined() ? bytes_of(call.output) : nullptr;
  show(signature(call, order_), own, bytes, call.deadline,
       [&](int64_t r, int64_t at, const std::byte* from, size_t size) {
         const auto length = static_cast<int64_t>(size);
         if (call.operation == Operation::scatter) {
           const int64_t begin = std::max(at, self * part);
           const int64_t end = std::min(at + length, (self + 1) * part);
           if (begin < end)
             copy_bytes(to + (begin - self * part), from + (begin - at), end - begin);
         } else if (call.operation != Operation::broadcast || r != self) {
           if (to != nullptr) copy_bytes(to + (all_show ? r * part : 0) + at, from, length);
         }
       });
}

class ShmCommunicator : public QueuedCommunicator {
 public:
  ShmCommunicator(const CommOptions& options, const std::shared_ptr<Store>& store,
                  Deadline deadline)
      : QueuedCommunicator(options.rank, options.world_size) {
    if (options.world_size == 1) return;
    group_ = std::make_unique<ShmGroup>(options, *store, deadline);
    collectives_ = std::make_unique<ShmCollectives>(*group_, sum_order(options.algorithm));
    thread_ = std::make_unique<CommThread>();
  }

  ~ShmCommunicator() override { shut_down(); }

  at::Tensor allocate(int64_t elements, at::ScalarType dtype) override {
    const auto bytes = static_cast<size_t>(elements) * c10::elementSize(dtype);
    std::shared_ptr<ShmMemory> memory = group_ != nullptr ? group_->memory() : nullptr;
    std::byte* const taken = memory != nullptr ? memory->take(bytes) : nullptr;
    if (taken == nullptr) return CollectiveCommunicator::allocate(elements, dtype);
    return at::from_blob(
        taken, {elements}, [memory, taken, bytes](void*) { memory->release(taken, bytes); }, dtype);
  }

  // After a failure nobody waits; before one, what is queued is let through first. What this rank
  // has shared stays in the others' memory when it goes: it does not wait for them.
  void close(Deadline deadline) noexcept override {
    if (group_ != nullptr && !failed_) drained(*thread_, deadline);
    shut_down();
  }

 protected:
  std::exception_ptr attempt(const CollectiveCall& call, const std::string& what) override {
    return error_of(what, [&] { collectives_->run(call); });
  }
  void give_up() noexcept override { group_->leave(); }

 private:
  // Whatever is still queued ends as closed; what is under way is cut short.
  void shut_down() noexcept {
    failed_ = true;
    if (group_ == nullptr) return;
    group_->cancel();
    thread_.reset();
    collectives_.reset();
    group_.reset();
  }

  std::unique_ptr<ShmGroup> group_;
  std::unique_ptr<ShmCollectives> collectives_;
};

}  // namespace

std::unique_ptr<Communicator> make_shm_communicator(const CommOptions& options,
                                                    std::shared_ptr<Store> store,
                                                    Deadline deadline) {
  return std::make_unique<ShmCommunicator>(options, store, deadline);
}

}  // namespace lockstep
