#include "reducer/kinds/composite.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "scenarios/base/check.h"
#include "scenarios/base/names.h"

namespace lockstep {
namespace {

// Gives a reducer's parameters and buckets the numbers that they have among those of all.
class ProbeOfPart : public Probe {
 public:
  ProbeOfPart(Probe& inner, std::vector<int64_t> registration)
      : inner_(inner), registration_(std::move(registration)) {}

  void number_buckets_from(int64_t first) { first_bucket_ = first; }
  int64_t registered(int64_t parameter) const {
    return registration_[static_cast<size_t>(parameter)];
  }

  void parameter_ready(int64_t parameter) noexcept override {
    inner_.parameter_ready(registered(parameter));
  }
  void bucket_ready(int64_t bucket) noexcept override {
    inner_.bucket_ready(first_bucket_ + bucket);
  }
  void arrival(uint32_t sequence, Operation operation, int64_t bucket, int64_t bytes,
               uint8_t dtype) noexcept override {
    inner_.arrival(sequence, operation, bucket, bytes, dtype);
  }
  void end(uint32_t sequence, int64_t bucket) noexcept override { inner_.end(sequence, bucket); }
  // All are assigned by CompositeReducer, once it knows how many buckets each part has.
  void assigned(int64_t, int64_t, int64_t) noexcept override {}

 private:
  Probe& inner_;
  const std::vector<int64_t> registration_;
  int64_t first_bucket_ = 0;
};

struct PartOfModel {
  NamedTensors parameters, buffers;
  std::vector<int64_t> registration;
};

// Tensors that are in `module` (empty: in any) and, or not, in `ignored`.
PartOfModel part_of(const NamedTensors& parameters, const NamedTensors& buffers,
                    const std::string& module, const std::vector<std::string>& ignored,
                    bool takes_ignored) {
  const auto is_in = [&](const NamedTensor& tensor) {
    return (module.empty() || is_named_in({module}, tensor.name)) &&
           is_named_in(ignored, tensor.name) == takes_ignored;
  };
  PartOfModel part;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!is_in(parameters[i])) continue;
    part.parameters.push_back(parameters[i]);
    part.registration.push_back(static_cast<int64_t>(i));
  }
  std::copy_if(buffers.begin(), buffers.end(), std::back_inserter(part.buffers), is_in);
  return part;
}

class CompositeReducer : public Reducer {
 public:
  CompositeReducer(const ReducerOptions& options, const NamedTensors& parameters,
                   const NamedTensors& buffers, Communicator& communicator, Probe& probe)
      : probe_(probe), searches_unused_(options.find_unused_parameters || options.static_graph) {
    ReducerOptions own = options;
    own.ignored = own.wrapped_modules = {};
    std::vector<std::string> modules = options.wrapped_modules;
    if (modules.empty()) modules.emplace_back();
    for (const std::string& module : modules)
      add(own, part_of(parameters, buffers, module, options.ignored, false), communicator);
    if (options.average_ignored) {
      own.kind = "manual";
      own.synchronize_at_construction = false;
      add(own, part_of(parameters, {}, "", options.ignored, true), communicator);
    }
    number_buckets();
  }

  void before_forward(bool synchronizes) override {
    for (const Part& part : parts_) part.reducer->before_forward(synchronizes);
    if (assigned_ != layout()) number_buckets();
  }
  void after_forward() override {
    for (const Part& part : parts_) part.reducer->after_forward();
  }
  void before_backward(const std::vector<at::Tensor>& outputs) override {
    for (const Part& part : parts_) part.reducer->before_backward(outputs);
  }
  void after_backward() override {
    for (const Part& part : parts_) part.reducer->after_backward();
  }
  bool shadow() override { LOCKSTEP_CHECK(false, "several reducers do not join"); }

  BucketLayout layout() const override {
    BucketLayout all;
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part)
      for (std::vector<int64_t> bucket : part->reducer->layout()) {
        for (int64_t& parameter : bucket) parameter = part->probe->registered(parameter);
        all.push_back(std::move(bucket));
      }
    return all;
  }

  ReducerData data() override {
    ReducerData all;
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) all += part->reducer->data();
    return all;
  }

 private:
  struct Part {
    std::unique_ptr<ProbeOfPart> probe;
    std::unique_ptr<Reducer> reducer;
  };

  void add(const ReducerOptions& options, const PartOfModel& tensors, Communicator& communicator) {
    auto probe = std::make_unique<ProbeOfPart>(probe_, tensors.registration);
    auto reducer = make_reducer(options, tensors.parameters, tensors.buffers, communicator, *probe);
    parts_.push_back({std::move(probe), std::move(reducer)});
  }

  // The last module's first: backward comes to it first. A map of used parameters goes after each
  // reducer's last bucket, and is counted like one.
  void number_buckets() {
    assigned_ = layout();
    int64_t bucket = 0;
    for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
      part->probe->number_buckets_from(bucket);
      const BucketLayout own = part->reducer->layout();
      for (const std::vector<int64_t>& parameters : own) {
        for (size_t place = 0; place < parameters.size(); ++place)
          probe_.assigned(part->probe->registered(parameters[place]), bucket,
                          static_cast<int64_t>(place));
        ++bucket;
      }
      if (searches_unused_ && !own.empty()) ++bucket;
    }
  }

  Probe& probe_;
  const bool searches_unused_;
  std::vector<Part> parts_;  // in the order of the modules' forwards
  BucketLayout assigned_;
};

}  // namespace

std::unique_ptr<Reducer> make_several(const ReducerOptions& options, const NamedTensors& parameters,
                                      const NamedTensors& buffers, Communicator& communicator,
                                      Probe& probe) {
  return std::make_unique<CompositeReducer>(options, parameters, buffers, communicator, probe);
}

}  // namespace lockstep
