#include "sim/worker/export.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <bit>
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "scenarios/base/error.h"
#include "scenarios/split.h"
#include "scenarios/workloads/workload.h"
#include "sim/fault/mutants.h"
#include "sim/worker/libraries.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little, "descriptions below say '<'");

const char* descr_of(at::ScalarType type) {
  static constexpr std::pair<at::ScalarType, const char*> kDescriptions[] = {
      {at::kFloat, "<f4"}, {at::kDouble, "<f8"}, {at::kHalf, "<f2"}, {at::kBFloat16, "<u2"},
      {at::kLong, "<i8"},  {at::kInt, "<i4"},    {at::kByte, "|u1"}, {at::kBool, "|b1"}};
  for (const auto& [known, description] : kDescriptions)
    if (known == type) return description;
  LOCKSTEP_CHECK(false, "no export of such numbers");
}

using Json = nlohmann::ordered_json;

void write_text(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".new";
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file << text;
  file.flush();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0)
    throw std::runtime_error("could not write " + path);
}

NamedTensors exported_gradients_of(const NamedTensors& parameters) {
  NamedTensors gradients;
  for (const NamedTensor& parameter : parameters)
    gradients.push_back({parameter.name, parameter.tensor.grad()});
  return gradients;
}

Json set_json(const RunPlan& plan) {
  Json json = Json::object();
  for (const auto& [axis, value] : plan.set) json[axis] = value;
  return json;
}

}  // namespace

std::string npy_header(const std::string& descr, at::IntArrayRef shape) {
  std::string sizes;
  for (int64_t size : shape) sizes += fmt::format("{}, ", size);
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr, sizes);
  constexpr size_t kBefore = 10, kAlignment = 64;
  const size_t used = kBefore + text.size() + 1;
  text.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

void write_npy(const std::string& path, const at::Tensor& tensor) {
  const at::Tensor dense = tensor.detach().cpu().contiguous();
  const std::string header = npy_header(descr_of(dense.scalar_type()), dense.sizes());
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  file.write(static_cast<const char*>(dense.data_ptr()),
             static_cast<std::streamsize>(dense.nbytes()));
  file.flush();
  if (!file) throw std::runtime_error("could not write " + path);
}

Export::Export(const RunPlan& plan) : plan_(plan), manifest_(std::make_unique<Json>()) {
  Json& json = *manifest_;
  json["format"] = "lockstep_export";
  json["version"] = 1;
  json["file"] = plan.file;
  json["set"] = set_json(plan);
  json["libraries"] = Json::parse(libraries_json());
  json["scenario"] = as_json(plan.scenario);
}

Export::~Export() = default;

void Export::data(const Batch& data) {
  (*manifest_)["data"] = save("data", {{"input", data.input}, {"target", data.target}});
}

void Export::initial(const Training& training) {
  Json& json = (*manifest_)["initial"];
  json["parameters"] = save("initial.parameter", training.parameters);
  json["buffers"] = save("initial.buffer", training.buffers);
}

void Export::final(const Training& training, const std::string& reducer_data) {
  Json& json = (*manifest_)["final"];
  json["parameters"] = save("final.parameter", training.parameters);
  json["buffers"] = save("final.buffer", training.buffers);
  json["gradients"] = save("final.gradient", exported_gradients_of(training.parameters));
  json["optimizer_state"] = save("final.optimizer_state", training.optimizer->state());
  json["reducer_data"] = reducer_data.empty() ? Json(nullptr) : Json::parse(reducer_data);
  save_order();
  (*manifest_)["order"] = "order.json";
  write_text(plan_.export_dir + "/manifest.json",
             manifest_->dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json Export::save(const std::string& what, const NamedTensors& tensors) {
  Json list = Json::array();
  for (const NamedTensor& one : tensors) {
    Json& entry = list.emplace_back();
    entry["name"] = one.name;
    entry["file"] = nullptr;
    if (!one.tensor.defined()) continue;
    const at::Tensor dense = one.tensor.is_sparse() ? one.tensor.to_dense() : one.tensor;
    const std::string file = fmt::format("{}.{}.npy", what, list.size() - 1);
    write_npy(plan_.export_dir + "/" + file, dense);
    entry["dtype"] = to_word(dense.scalar_type());
    entry["shape"] = dense.sizes().vec();
    entry["file"] = file;
  }
  return list;
}

void Export::save_order() const {
  const Scenario& scenario = plan_.scenario;
  Split split(scenario);
  Json order = Json::array();
  for (int64_t step = 1; step <= scenario.steps; ++step) {
    Json& ranks = order.emplace_back(Json::array());
    for (int64_t rank = 0; rank < shards_of(scenario); ++rank)
      ranks.push_back(followed_samples(scenario.mutants, step, rank, shards_of(scenario), &split));
  }
  write_text(plan_.export_dir + "/order.json", order.dump() + "\n");
}

}  // namespace lockstep
