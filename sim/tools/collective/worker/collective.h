#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reducer/communicator.h"
#include "scenarios/base/file.h"
#include "sim/launch/protocol.h"
#include "sim/tools/collective/spec.h"
#include "sim/worker/worker_process.h"

namespace lockstep {

// What `lockstep collective` judges communicators by: memory of its own that all ranks map, with
// every rank's input and what must come out, by golden/reduction_order.h. No communicator is given
// any of it. Rank 0 makes it as a memfd that the others open through /proc.
class CollectiveBoard {
 public:
  // Blocks until rank 0 has made it or the deadline has passed. Throws CommError, rejected where
  // the store names anything but rank 0's memory, and std::system_error where there is no memory.
  CollectiveBoard(const CollectiveSpec& spec, int64_t rank, Store& store, Deadline deadline);
  ~CollectiveBoard();
  CollectiveBoard(const CollectiveBoard&) = delete;
  CollectiveBoard& operator=(const CollectiveBoard&) = delete;

  // This rank's numbers, `elements` as in CollectiveSpec::elements: other ones on every rank,
  // between -1 and 1, of magnitudes so different that sums round.
  void fill_input(int64_t elements);
  // For every communicator, by rank 0 alone, once all have filled theirs; the others look at it
  // after that.
  void compute_expected(int64_t elements);

  const std::byte* input() const { return input_of(rank_); }
  // How many elements of this rank's result by communicator `group` differ in a bit from what must
  // come out.
  int64_t count_wrong(size_t group, int64_t elements, const void* result) const;

  // Bytes of this rank's input and of its result.
  int64_t input_bytes(int64_t elements) const;
  int64_t result_bytes(int64_t elements) const;

 private:
  void make(Store& store);
  void open(const std::string& where);
  int64_t count_wrong_parts(int64_t bytes, const void* result) const;
  std::byte* input_of(int64_t rank) const { return base_ + rank * slot_bytes_; }
  std::byte* expected(size_t group) const;
  template <class T>
  void add_inputs(int64_t count);

  const CollectiveSpec& spec_;
  const int64_t rank_;
  const std::vector<std::string> orders_;  // of addition, each once; one where nothing is added
  const int64_t slot_bytes_, expected_bytes_;
  const size_t bytes_;
  UniqueFd fd_;
  std::byte* base_ = nullptr;
};

// One rank of `lockstep collective`, whose spec lies in task.run_dir: connects all communicators of
// the spec, then measures size by size. Iterations of a size go in turn over the communicators
// (A B C, C B A), so that what disturbs the machine disturbs all alike; every rank begins one after
// a barrier in shared memory. Before each the inputs are put in place again and results of the one
// before are overwritten; after each the result is compared bit for bit. Before all, once, an
// element of rank 0 is damaged on purpose. Leaves its rank_file.h. Blocks until done; every wait
// has a deadline. Returns the exit code of the process.
int run_collective_process(const WorkerTask& task, Control& control);

}  // namespace lockstep
