#pragma once

#include <functional>
#include <vector>

#include "reducer/comm/collective.h"
#include "reducer/local/sum_ranges.h"
#include "reducer/shm/shm_group.h"

namespace lockstep {

// Runs collectives in shared memory, blocking. One thread.
//
// Tensors that lie in the arenas of all ranks (Communicator::allocate) are summed where they are:
// each rank adds its share of the elements over all ranks' tensors and writes the sum into all of
// them (of a reduce_scatter: its part, into its output). Any others go through staging memory,
// piece by piece.
class ShmCollectives {
 public:
  ShmCollectives(ShmGroup& group, SumOrder order) : group_(group), order_(order) {}
  // Throws CommError.
  void run(const CollectiveCall& call);

 private:
  void all_reduce(const CollectiveCall& call);
  void reduce_scatter(const CollectiveCall& call);
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

}  // namespace lockstep
