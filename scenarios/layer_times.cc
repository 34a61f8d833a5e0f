#include "scenarios/layer_times.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>

#include "scenarios/base/clock.h"
#include "scenarios/base/error.h"
#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/schema.h"
#include "scenarios/manifest.h"
#include "scenarios/profiler/kineto_trace.h"
#include "scenarios/traced_layers.h"

namespace lockstep {
namespace {

LayerTimes by_work(const ModelManifest& manifest) {
  LayerTimes times;
  for (const LayerSpec& layer : manifest.layers) {
    const auto work = static_cast<double>(layer.macs + layer.elements);
    times.push_back({layer.name, work, 2 * work});
  }
  return times;
}

void scale(double factor, LayerTimes* times) {
  for (LayerTime& time : *times) {
    time.forward_ms *= factor;
    time.backward_ms *= factor;
  }
}

Expected<LayerTimes> by_profile(const Scenario& scenario, const ModelManifest& manifest) {
  const std::string& path = scenario.compute.options.text("profile");
  if (is_kineto_trace(path)) {
    auto times = traced_layers(path, scenario, manifest);
    if (times) scale(scenario.time_scale, &times.value());
    return times;
  }
  auto profile = read_profile(path);
  const std::string problem =
      profile ? problem_with(profile.value(), scenario, manifest) : to_text(profile.errors()[0]);
  if (!problem.empty())
    return InputError{.file = "",
                      .line = 0,
                      .column = 0,
                      .pointer = "/compute/profile",
                      .message = profile ? "the profile does not suit: " + problem : problem,
                      .allowed =
                          "what `lockstep profile` writes for this scenario's model, or a trace of "
                          "torch.profiler.profile(record_shapes=True)"};
  const double share = planned_samples(scenario) / static_cast<double>(profile.value().samples);
  scale(share * scenario.time_scale, &profile.value().layers);
  return profile.value().layers;
}

// Multiplies one kind of time so that all layers together take `total`; shares that are all 0
// become equal.
void stretch(double total, double LayerTime::*time, LayerTimes* times) {
  double sum = 0;
  for (const LayerTime& layer : *times) sum += layer.*time;
  const double even = total / static_cast<double>(times->size());
  for (LayerTime& layer : *times) layer.*time = sum > 0 ? layer.*time * (total / sum) : even;
}

}  // namespace

double planned_samples(const Scenario& scenario) {
  return static_cast<double>(scenario.batch_size) /
         static_cast<double>(shards_of(scenario) * scenario.accumulate_steps);
}

Expected<LayerTimes> layer_times(const Scenario& scenario) {
  const auto data = data_shape(scenario.data);
  const auto manifest =
      manifest_of(scenario.model, scenario.dtype, data ? data->input : std::vector<int64_t>{});
  LOCKSTEP_CHECK(manifest != nullptr, "layers of model " + scenario.model.kind);
  const Options& options = scenario.compute.options;
  const bool measured = options.has("profile");
  auto found = measured ? by_profile(scenario, *manifest) : by_work(*manifest);
  if (!found) return found;
  LayerTimes& times = found.value();
  const bool total = options.has("forward_ms");
  if (total) stretch(options.number("forward_ms"), &LayerTime::forward_ms, &times);
  if (options.has("backward_ms"))
    stretch(options.number("backward_ms"), &LayerTime::backward_ms, &times);
  else if (total && !measured)
    stretch(2 * options.number("forward_ms"), &LayerTime::backward_ms, &times);
  double ready_ms = 0;
  for (size_t i = times.size(); i-- > 0;) times[i].ready_ms = ready_ms += times[i].backward_ms;
  return found;
}

namespace {

using Json = nlohmann::ordered_json;

const Schema& profile_schema() {
  static const Schema schema(profile_schema_text());
  return schema;
}

std::string text_of_profile(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Whatever the order of the keys.
bool same_json(const std::string& a, const std::string& b) {
  return nlohmann::json::parse(a) == nlohmann::json::parse(b);
}

LayerProfile profile_of(const Json& json) {
  LayerProfile profile;
  profile.model = json["model"].dump();
  profile.dtype = json.value("dtype", "");
  profile.samples = json["samples"].get<int64_t>();
  profile.sample = json["sample"].get<std::vector<int64_t>>();
  profile.repetitions = json.value("repetitions", int64_t{1});
  profile.cpu = json.value("cpu", "");
  profile.libraries = json.value("libraries", "");
  for (const Json& layer : json["layers"])
    profile.layers.push_back({layer["layer"].get<std::string>(), layer["forward_ms"].get<double>(),
                              layer["backward_ms"].get<double>()});
  return profile;
}

}  // namespace

std::string profiled_model(const Scenario& scenario) { return as_json(scenario)["model"].dump(); }

std::string to_text(const LayerProfile& profile) {
  Json head;
  head["format"] = "lockstep_profile";
  head["version"] = 1;
  head["model"] = Json::parse(profile.model);
  head["dtype"] = profile.dtype;
  head["samples"] = profile.samples;
  head["sample"] = profile.sample;
  head["repetitions"] = profile.repetitions;
  head["cpu"] = profile.cpu;
  head["libraries"] = profile.libraries;
  std::string text = "{\n";
  const auto dump = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  for (const auto& [key, value] : head.items())
    text += fmt::format("  \"{}\": {},\n", key, dump(value));
  text += "  \"layers\": [\n";
  for (size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerTime& time = profile.layers[i];
    const Json layer = {
        {"layer", time.layer}, {"forward_ms", time.forward_ms}, {"backward_ms", time.backward_ms}};
    text += fmt::format("    {}{}\n", dump(layer), i + 1 < profile.layers.size() ? "," : "");
  }
  return text + "  ]\n}\n";
}

Expected<LayerProfile> read_profile(const std::string& path) {
  const auto text = read_foreign_file(path);
  if (!text) return text.errors();
  return profile_from(text.value(), path);
}

Expected<LayerProfile> profile_from(const std::string& text, const std::string& path) {
  const auto read = read_json_of(profile_schema().root(), text, printable(path));
  if (!read) return read.errors();
  return profile_of(read.value().document);
}

std::string problem_with(const LayerProfile& profile, const Scenario& scenario,
                         const ModelManifest& manifest) {
  const std::string model = profiled_model(scenario);
  if (!same_json(profile.model, model))
    return fmt::format("it was measured on model {}, but the scenario's is {}", profile.model,
                       model);
  const auto data = data_shape(scenario.data);
  if (data && data->input != profile.sample)
    return fmt::format("it was measured on samples of {}, but the scenario's are {}",
                       text_of_profile(profile.sample), text_of_profile(data->input));
  for (size_t i = 0; i < manifest.layers.size(); ++i) {
    const std::string& name = manifest.layers[i].name;
    if (i < profile.layers.size() && profile.layers[i].layer == name) continue;
    return i < profile.layers.size()
               ? fmt::format("its layer {} is \"{}\", but the model's is \"{}\"", i,
                             profile.layers[i].layer, name)
               : fmt::format("it has {} layers, but the model has {}", i, manifest.layers.size());
  }
  if (profile.layers.size() == manifest.layers.size()) return "";
  return fmt::format("it has {} layers, but the model has {}", profile.layers.size(),
                     manifest.layers.size());
}

namespace {

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;

// A signal that has a handler does not end it.
void sleep_until(int64_t target_ns) {
  const timespec target{target_ns / kNsPerSecond, target_ns % kNsPerSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &target, nullptr) == EINTR) {
  }
}

}  // namespace

TimeSource monotonic_time() { return {now_ns, sleep_until}; }

ComputeClock::ComputeClock(LayerTimes times, double planned_samples, TimeSource time)
    : times_(std::move(times)),
      time_(std::move(time)),
      planned_samples_(planned_samples),
      pauses_ms_(times_.size(), 0) {
  LOCKSTEP_CHECK(!times_.empty() && planned_samples > 0, "a clock without layers or samples");
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // else sleeps end 50 us late, to save energy
}

void ComputeClock::set_pause_before_layer(const std::string& layer, double ms) {
  const std::string of_parameter = layer.substr(0, layer.rfind('.'));
  for (size_t i = 0; i < times_.size(); ++i)
    if (times_[i].layer == layer || times_[i].layer == of_parameter) {
      pauses_ms_[i] = ms;
      return;
    }
  LOCKSTEP_CHECK(false, "no layer " + layer);
}

void ComputeClock::begin() {
  begin_ns_ = time_.now_ns();
  pass_scale_ = factor_ * share_;
  done_ms_ = 0;
}

void ComputeClock::begin_forward(int64_t samples) {
  share_ = static_cast<double>(samples) / planned_samples_;
  begin();
}

void ComputeClock::begin_backward() { begin(); }

void ComputeClock::wait_forward(size_t layer) {
  wait_for(times_.at(layer).forward_ms * pass_scale_);
}

void ComputeClock::wait_backward(size_t layer) {
  wait_for(times_.at(layer).backward_ms * pass_scale_ + pauses_ms_[layer]);
}

int64_t ComputeClock::due_ns() const { return begin_ns_ + std::llround(done_ms_ * kNsPerMs); }

void ComputeClock::note_halt(int64_t due_ns) {
  const int64_t late_ns = time_.now_ns() - due_ns;
  if (late_ns >= kHaltedMs * kNsPerMs) begin_ns_ += late_ns;
}

void ComputeClock::wait_for(double ms) {
  note_halt(due_ns());  // of the layer before
  done_ms_ += ms;
  for (int64_t now = time_.now_ns(); now < due_ns(); now = time_.now_ns()) {
    const int64_t slice_end_ns = std::min(now + kSliceMs * kNsPerMs, due_ns());
    time_.sleep_until_ns(slice_end_ns);
    note_halt(slice_end_ns);
  }
}

}  // namespace lockstep
