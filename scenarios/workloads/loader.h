#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "scenarios/workloads/workload.h"

namespace lockstep {

struct LoadedBatch {
  int64_t step = 0;
  std::vector<int64_t> indices;  // of its samples in the data set
  Batch batch;
};

// The batches of steps first_step..last_step, prepared ahead of their use by the worker threads of
// LibTorch's own DataLoader. One thread uses an object; its destructor ends the workers.
class Loader {
 public:
  struct Options {
    int64_t workers = 1;  // at least 1; 2 where not ordered
    int64_t first_step = 1, last_step = 1;
    // False: LibTorch's enforce_ordering(false), batches come as they are ready.
    bool ordered = true;
    // Not ordered: a batch that is not ready before its successor has been delivered. Of two
    // neighbours one at most, and not the last. Called on worker threads.
    std::function<bool(int64_t step)> late;
    std::function<std::vector<int64_t>(int64_t step)> indices;  // called on the user's thread
    // Called on worker threads, several at once.
    std::function<Batch(int64_t step, const std::vector<int64_t>& indices)> fetch;
  };
  explicit Loader(Options options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Blocks until the next batch is ready: of the next step or, not ordered, of any. What `fetch`
  // throws comes out here, inside LibTorch's exception. Not more often than there are steps.
  LoadedBatch next();

 private:
  struct Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace lockstep
