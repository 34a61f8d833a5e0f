#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "scenarios/split.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {

// The first data.samples of an image set (scenarios/files): inputs float32 [samples, channels,
// height, width], from 0 to 1 and then normalized; targets int64 [samples] or, with target
// "input", the inputs as [samples, pixels]. Draws nothing from LibTorch's generators. Reads files:
// throws std::runtime_error where they have become unreadable since the plan looked at them.
Batch image_data(const Part& part);

// The samples of each step, gathered once and kept where later epochs return to them; of orders
// that never return only the last step's are kept. Keeps handles on `data`, and a copy of what was
// asked for.
class SampleCache {
 public:
  // `scenario` must outlive this object.
  SampleCache(const Scenario& scenario, const Batch& data);

  const Batch& batch(int64_t step);                // the global batch
  const std::vector<Batch>& shards(int64_t step);  // of every rank

 private:
  struct Place {
    int64_t step = 0;  // whose samples these are; 0: none yet
    Batch batch;
    std::vector<Batch> shards;
  };
  Place& place(int64_t step);

  int64_t world_size_;
  Split split_;
  Batch data_;
  std::vector<Place> places_;  // of the steps of one epoch, or one for all
};

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
