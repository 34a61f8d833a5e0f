#include "scenarios/workloads/data.h"

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <torch/data/dataloader/stateless.h>
#include <torch/data/datasets/base.h>
#include <torch/data/iterator.h>
#include <torch/data/samplers/base.h>

#include <cmath>
#include <condition_variable>
#include <mutex>
#include <set>
#include <stdexcept>

#include "scenarios/base/error.h"
#include "scenarios/image_files.h"
#include "scenarios/manifest.h"
#include "scenarios/workloads/registry.h"
#include "scenarios/workloads/workload.h"

namespace lockstep {
namespace {

constexpr double kTargetDenominator = 64;

// Multiples of 1/denominator, uniform in [low, high].
at::Tensor on_grid(at::IntArrayRef sizes, double low, double high, double denominator) {
  const auto first = static_cast<int64_t>(std::ceil(low * denominator));
  const auto last = static_cast<int64_t>(std::floor(high * denominator));
  return at::randint(first, last + 1, sizes, at::kFloat).div_(denominator);
}

// Feature 0 is 1 in one block of samples, -1 in the next.
at::Tensor routed(const std::vector<int64_t>& sizes, int64_t block) {
  at::Tensor input = at::randn(sizes, at::kFloat);
  const at::Tensor blocks = at::arange(sizes[0], at::kLong).div(block, "floor").remainder(2);
  input.select(1, 0).copy_(1 - 2 * blocks);
  return input;
}

Batch tokens(int64_t samples, int64_t length, int64_t vocabulary) {
  const at::Tensor text = at::randint(vocabulary, {samples, length + 1}, at::kLong);
  return {text.narrow(1, 0, length).contiguous(), text.narrow(1, 1, length).contiguous()};
}

Batch draw(const Part& part, const std::vector<int64_t>& input,
           const std::vector<int64_t>& target) {
  const Options& options = part.options;
  if (part.kind == "dyadic") {
    const double low = options.number("low");
    const double high = options.number("high");
    const at::Tensor inputs = on_grid(input, low, high, options.number("denominator"));
    return {inputs, on_grid(target, low, high, kTargetDenominator)};
  }
  if (is_image_file_kind(part.kind)) return image_data(part);
  if (part.kind == "tokens") return tokens(input[0], input[1], options.integer("vocabulary"));
  const at::Tensor inputs = part.kind == "routed" ? routed(input, options.integer("block"))
                                                  : at::randn(input, at::kFloat);
  if (part.kind == "randn" || part.kind == "routed") return {inputs, at::randn(target, at::kFloat)};
  LOCKSTEP_CHECK(part.kind == "classes" || part.kind == "images", "no data set " + part.kind);
  if (options.has("target") && options.text("target") == "input")
    return {inputs, inputs.flatten(1)};
  return {inputs, at::randint(options.integer("classes"), target, at::kLong)};
}

Batch draw_float32(const Part& part) {
  if (part.kind == "registered") return draw_registered(part);
  const SampleSpec spec = sample_spec(part, "float32");
  const auto sizes = [&](std::vector<int64_t> shape) {
    shape.insert(shape.begin(), part.options.integer("samples"));
    return shape;
  };
  return draw(part, sizes(spec.input_shape), sizes(spec.target_shape));
}

}  // namespace

Batch draw_data(const Part& part, const std::string& dtype) {
  const Batch data = draw_float32(part);
  const auto in_dtype = [&](const at::Tensor& values) {
    return values.is_floating_point() ? values.to(scalar_type(dtype)) : values;
  };
  return {in_dtype(data.input), in_dtype(data.target)};
}

SampleSpec sample_spec(const Part& part, const std::string& dtype) {
  const auto shape = data_shape(part);
  LOCKSTEP_CHECK(shape, "no data set " + part.kind);
  const c10::ScalarType numbers = scalar_type(dtype);
  return {shape->input, shape->target, shape->vocabulary > 0 ? at::kLong : numbers,
          shape->classes > 0 ? at::kLong : numbers};
}

std::vector<int64_t> samples_in(const Batch& batch, int64_t first, int64_t count) {
  if (batch.samples.empty()) return {};
  const auto begin = batch.samples.begin() + first;
  return {begin, begin + count};
}

std::vector<Batch> micro_batches(const Batch& shard, int64_t count) {
  const int64_t samples = shard.input.size(0);
  LOCKSTEP_CHECK(count > 0 && samples % count == 0, "the plan lets only equal micro-batches pass");
  if (count == 1) return {shard};
  std::vector<Batch> parts;
  for (int64_t first = 0; first < samples; first += samples / count)
    parts.push_back({shard.input.narrow(0, first, samples / count).clone(),
                     shard.target.narrow(0, first, samples / count).clone(),
                     samples_in(shard, first, samples / count)});
  return parts;
}

Batch select(const Batch& data, const std::vector<int64_t>& indices) {
  const at::Tensor rows = at::tensor(indices, at::kLong);
  return {data.input.index_select(0, rows), data.target.index_select(0, rows), indices};
}

namespace {

// One number for all channels or one for each, as a tensor that fits [samples, channels, ...].
at::Tensor by_channel(const Options& options, const std::string& key, int64_t channels) {
  const OptionValue& list = options.all().find(key)->second;
  std::vector<double> values;
  if (const auto* whole = std::get_if<std::vector<int64_t>>(&list))
    values.assign(whole->begin(), whole->end());
  else
    values = std::get<std::vector<double>>(list);
  const auto count = static_cast<int64_t>(values.size());
  LOCKSTEP_CHECK(count == 1 || count == channels, "the plan lets no other lists pass");
  return at::tensor(values, at::kDouble).to(at::kFloat).reshape({1, count, 1, 1});
}

at::Tensor bytes_as(const std::vector<uint8_t>& bytes, at::IntArrayRef sizes, at::ScalarType type) {
  const at::TensorOptions options(at::kByte);
  return at::from_blob(const_cast<uint8_t*>(bytes.data()), sizes, options).to(type);
}

}  // namespace

Batch image_data(const Part& part) {
  const int64_t samples = part.options.integer("samples");
  const auto loaded = load_images(part, samples);
  if (!loaded) throw std::runtime_error(to_text(loaded.errors()[0]));
  const ImageSet& images = loaded.value();
  const ImageShape& shape = images.shape;
  at::Tensor input =
      bytes_as(images.pixels, {samples, shape.channels, shape.height, shape.width}, at::kFloat);
  input.div_(255).sub_(by_channel(part.options, "mean", shape.channels));
  input.div_(by_channel(part.options, "std", shape.channels));
  if (part.options.text("target") == "input") return {input, input.flatten(1)};
  return {input, bytes_as(images.labels, {samples}, at::kLong)};
}

SampleCache::SampleCache(const Scenario& scenario, const Batch& data)
    : world_size_(shards_of(scenario)),
      split_(scenario),
      data_(data),
      places_(shuffles_each_epoch(scenario.split) ? 1
                                                  : static_cast<size_t>(split_.steps_per_epoch())) {
}

SampleCache::Place& SampleCache::place(int64_t step) {
  const int64_t same = split_.same_step(step);
  Place& place = places_[same == 0 ? 0 : static_cast<size_t>(same - 1)];
  const int64_t wanted = same == 0 ? step : same;
  if (place.step != wanted) place = {wanted, {}, {}};
  return place;
}

const Batch& SampleCache::batch(int64_t step) {
  Place& found = place(step);
  if (!found.batch.input.defined()) found.batch = select(data_, split_.batch(step));
  return found.batch;
}

const std::vector<Batch>& SampleCache::shards(int64_t step) {
  Place& found = place(step);
  for (auto rank = static_cast<int64_t>(found.shards.size()); rank < world_size_; ++rank)
    found.shards.push_back(select(data_, split_.shard(step, rank)));
  return found.shards;
}

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
