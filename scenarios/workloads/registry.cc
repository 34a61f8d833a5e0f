#include "scenarios/workloads/registry.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>

#include <stdexcept>

#include "scenarios/base/part.h"

namespace lockstep {
namespace {

Registry<ModelFactory>& models() {
  static Registry<ModelFactory> known("model");
  return known;
}

Registry<DataFactory>& data_sets() {
  static Registry<DataFactory> known("data set");
  return known;
}

void check_rows(const std::string& name, const char* what, const at::Tensor& rows,
                int64_t samples) {
  const auto refuse = [&](const std::string& why) {
    throw std::runtime_error(fmt::format("data set \"{}\": its {} {}", name, what, why));
  };
  if (!rows.defined()) refuse("are not there");
  if (rows.dim() == 0 || rows.size(0) != samples)
    refuse(fmt::format("are {} rows, and {} samples were asked for",
                       rows.dim() == 0 ? 0 : rows.size(0), samples));
  if (rows.scalar_type() != at::kFloat && rows.scalar_type() != at::kLong)
    refuse(fmt::format("are of type {}, not float32 or int64", c10::toString(rows.scalar_type())));
}

}  // namespace

bool register_model(const std::string& name, ModelFactory factory) {
  return models().add(name, std::move(factory));
}

bool register_data_set(const std::string& name, DataFactory factory) {
  return data_sets().add(name, std::move(factory));
}

void find_model(const std::string& name) { models().get(name); }

void find_data_set(const std::string& name) { data_sets().get(name); }

std::unique_ptr<Model> build_registered(const Options& options, const std::string& dtype) {
  const std::string& name = options.text("name");
  auto model = models().get(name)(own_options(options), dtype);
  if (model == nullptr || model->parameters().empty())
    throw std::runtime_error(fmt::format("model \"{}\" has no parameters", name));
  return model;
}

Batch draw_registered(const Part& part) {
  const std::string& name = part.options.text("name");
  const int64_t samples = part.options.integer("samples");
  Batch data = data_sets().get(name)(own_options(part.options), samples);
  check_rows(name, "inputs", data.input, samples);
  check_rows(name, "targets", data.target, samples);
  return data;
}

}  // namespace lockstep
