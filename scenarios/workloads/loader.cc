#include "scenarios/workloads/loader.h"

#include <ATen/core/Tensor.h>
#include <torch/data/dataloader/stateless.h>
#include <torch/data/datasets/base.h>
#include <torch/data/iterator.h>
#include <torch/data/samplers/base.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "scenarios/base/check.h"

namespace lockstep {
namespace {

struct Request {
  int64_t step = 0;
  std::vector<int64_t> indices;
  size_t size() const { return 1; }  // LibTorch counts what a request asks for: one batch
};

// Asks for the steps' batches in their order, on the user's thread.
class StepSampler : public torch::data::samplers::Sampler<Request> {
 public:
  explicit StepSampler(const Loader::Options* options) : options_(options) {}
  void reset(torch::optional<size_t> = torch::nullopt) override { next_ = options_->first_step; }
  torch::optional<Request> next(size_t) override {
    if (next_ > options_->last_step) return torch::nullopt;
    const int64_t step = next_++;
    return Request{step, options_->indices(step)};
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}

 private:
  const Loader::Options* options_;
  int64_t next_ = 1;
};

// Which steps have been delivered, for batches that are to be late.
class Progress {
 public:
  void delivered(int64_t step) {
    const std::lock_guard lock(mutex_);
    delivered_.insert(step);
    changed_.notify_all();
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }
  void await(int64_t step) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || delivered_.contains(step); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int64_t> delivered_;
  bool stopped_ = false;
};

// Every worker thread has a copy.
class StepDataset : public torch::data::datasets::BatchDataset<StepDataset, LoadedBatch, Request> {
 public:
  StepDataset(const Loader::Options* options, Progress* progress)
      : options_(options), progress_(progress) {}
  LoadedBatch get_batch(Request request) override {
    Batch batch = options_->fetch(request.step, request.indices);
    if (!options_->ordered && options_->late && options_->late(request.step))
      progress_->await(request.step + 1);
    return {request.step, std::move(request.indices), std::move(batch)};
  }
  torch::optional<size_t> size() const override { return torch::nullopt; }

 private:
  const Loader::Options* options_;
  Progress* progress_;
};

using DataLoader = torch::data::StatelessDataLoader<StepDataset, StepSampler>;

torch::data::DataLoaderOptions loader_options(const Loader::Options& options) {
  return torch::data::DataLoaderOptions()
      .workers(static_cast<size_t>(options.workers))
      .enforce_ordering(options.ordered);
}

}  // namespace

struct Loader::Threads {
  explicit Threads(Options given)
      : options(std::move(given)),
        loader(StepDataset(&options, &progress), StepSampler(&options), loader_options(options)),
        next(loader.begin()) {}
  ~Threads() { progress.stop(); }

  const Options options;
  Progress progress;  // before the loader, whose threads use it
  DataLoader loader;
  torch::data::Iterator<LoadedBatch> next;
  bool begun = false;
};

Loader::Loader(Options options) {
  LOCKSTEP_CHECK(options.workers > (options.ordered ? 0 : 1), "too few workers");
  threads_ = std::make_unique<Threads>(std::move(options));
}

Loader::~Loader() = default;

LoadedBatch Loader::next() {
  // The iterator is moved on only now: it would wait for a batch that may be late.
  if (threads_->begun) ++threads_->next;
  threads_->begun = true;
  LoadedBatch loaded = std::move(*threads_->next);
  threads_->progress.delivered(loaded.step);
  return loaded;
}

}  // namespace lockstep
