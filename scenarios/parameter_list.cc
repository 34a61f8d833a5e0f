#include "scenarios/parameter_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <utility>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "scenarios/profiler/kineto_training.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kForms =
    "JSON of names and shapes ({\"conv1.weight\": [64, 3, 7, 7]}), safetensors, or a trace of "
    "torch.profiler.profile(record_shapes=True)";

bool is_shape(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape) {
    if (size < 1 || size > kMostListedElements / elements) return false;
    elements *= size;
  }
  return !shape.empty();
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= 500 && printable(name) == name &&
         name.find(' ') == std::string_view::npos && name.front() != '.' && name.back() != '.' &&
         name.find("..") == std::string_view::npos;
}

bool is_buffer(std::string_view name) {
  return name.ends_with("running_mean") || name.ends_with("running_var") ||
         name.ends_with("num_batches_tracked");
}

// "layer.2" before "layer.10".
bool comes_before(const ListedParameter& a, const ListedParameter& b) {
  const std::string &x = a.name, &y = b.name;
  const auto number_at = [](const std::string& text, size_t* at) {
    const size_t begin = *at;
    while (*at < text.size() && std::isdigit(static_cast<unsigned char>(text[*at])) != 0) ++*at;
    return text.substr(begin, *at - begin);
  };
  size_t i = 0, j = 0;
  while (i < x.size() && j < y.size()) {
    std::string of_x = number_at(x, &i), of_y = number_at(y, &j);
    of_x.erase(0, std::min(of_x.find_first_not_of('0'), of_x.size()));
    of_y.erase(0, std::min(of_y.find_first_not_of('0'), of_y.size()));
    if (of_x.size() != of_y.size()) return of_x.size() < of_y.size();
    if (of_x != of_y) return of_x < of_y;
    if (i == x.size() || j == y.size()) break;
    if (x[i] != y[j]) return x[i] < y[j];
    ++i, ++j;
  }
  return x.size() - i < y.size() - j;
}

// Whole numbers have no gradient: safetensors says the type.
bool is_whole(const Json& value) {
  if (!value.is_object() || !value.contains("dtype") || !value["dtype"].is_string()) return false;
  const auto& dtype = value["dtype"].get_ref<const std::string&>();
  return dtype.starts_with("I") || dtype.starts_with("U") || dtype == "BOOL";
}

// A shape may stand alone or, as in a header of safetensors, beside other members.
std::optional<std::vector<int64_t>> shape_in(const Json& value) {
  const Json& list = value.is_object() && value.contains("shape") ? value["shape"] : value;
  if (!list.is_array()) return std::nullopt;
  std::vector<int64_t> shape;
  for (const Json& size : list) {
    if (!size.is_number_integer()) return std::nullopt;
    shape.push_back(size.get<int64_t>());
  }
  if (shape.empty()) shape.push_back(1);  // a single number
  if (!is_shape(shape)) return std::nullopt;
  return shape;
}

Expected<std::vector<ListedParameter>> listed_in(std::string_view text, const std::string& file) {
  Json document;
  Places places(file);
  InputErrors errors;
  if (!read_json(text, file, &document, &places, &errors)) return errors;
  if (!document.is_object()) return file_error(file, "it is no list of parameters", kForms);
  std::vector<ListedParameter> parameters;
  for (const auto& [name, value] : document.items()) {
    if (name == "__metadata__" || is_buffer(name) || is_whole(value)) continue;
    const auto shape = shape_in(value);
    if (is_name(name) && shape && parameters.size() < kMostListed) {
      parameters.push_back({name, *shape});
      continue;
    }
    InputError error{file, 0, 0, pointer_join("", name), "", kForms};
    error.message = !is_name(name)
                        ? fmt::format("\"{}\" is no name of a parameter", shortened(name))
                    : shape ? fmt::format("more than {} parameters", kMostListed)
                            : "no shape, or one of too many numbers";
    error.allowed =
        shape ? kForms : fmt::format("a list of sizes, {} numbers at most", kMostListedElements);
    places.locate(error.pointer, !is_name(name), &error);
    return error;
  }
  if (parameters.empty()) return file_error(file, "it lists no parameter", kForms);
  return parameters;
}

// The JSON in front of the tensors: its length, 8 bytes little endian, then itself. Nothing where
// there is none: 8 characters of a text are no length that fits into a file.
std::optional<std::string> safetensors_header(const ForeignFile& file) {
  uint64_t length = 0;
  if (file.bytes < 10 || !read_at(file.fd.get(), 0, &length, sizeof length)) return std::nullopt;
  if (length < 2 || length > static_cast<uint64_t>(kTextBytesMost) ||
      length > static_cast<uint64_t>(file.bytes) - sizeof length)
    return std::nullopt;
  std::string header(length, '\0');
  if (!read_at(file.fd.get(), sizeof length, header.data(), length) || header.front() != '{')
    return std::nullopt;
  return header;
}

// The last gradient's parameter is the first.
Expected<ParameterList> traced_in(const std::string& path) {
  const auto trace = read_kineto_trace(path);
  if (!trace) return trace.errors();
  const auto training = training_of(trace.value());
  if (!training) return training.errors();
  const auto& shapes = training.value().shapes;
  if (shapes.size() > kMostListed)
    return file_error(printable(path), fmt::format("more than {} parameters", kMostListed), kForms);
  ParameterList list{{}, training.value().dtype};
  for (auto shape = shapes.rbegin(); shape != shapes.rend(); ++shape) {
    list.parameters.push_back({fmt::format("parameter{}", list.parameters.size()), *shape});
    std::vector<int64_t>& sizes = list.parameters.back().shape;
    if (sizes.empty()) sizes.push_back(1);  // a single number
    if (!is_shape(sizes))
      return file_error(printable(path), "a gradient has no numbers, or too many", kForms);
  }
  return list;
}

}  // namespace

std::optional<ListedParameter> listed_parameter(std::string_view text) {
  const size_t blank = text.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  ListedParameter parameter{std::string(text.substr(0, blank)), {}};
  std::string_view sizes = text.substr(blank + 1);
  while (true) {
    const size_t end = std::min(sizes.find('x'), sizes.size());
    const auto size = number_in<int64_t>(sizes.substr(0, end));
    if (!size) return std::nullopt;
    parameter.shape.push_back(*size);
    if (end == sizes.size()) break;
    sizes.remove_prefix(end + 1);
  }
  if (!is_name(parameter.name) || !is_shape(parameter.shape)) return std::nullopt;
  return parameter;
}

std::string to_text(const ListedParameter& parameter) {
  return fmt::format("{} {}", parameter.name, fmt::join(parameter.shape, "x"));
}

Expected<ParameterList> read_parameter_list(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 50;
  const std::string name = printable(path);
  const auto file = open_foreign_file(path, kMostBytes);
  if (!file) return file.errors();
  if (const auto header = safetensors_header(file.value())) {
    auto parameters = listed_in(*header, name);
    if (!parameters) return parameters.errors();
    std::stable_sort(parameters.value().begin(), parameters.value().end(), comes_before);
    return ParameterList{std::move(parameters.value()), ""};
  }
  if (is_kineto_trace(path)) return traced_in(path);
  char first = 0;
  if (!read_at(file.value().fd.get(), 0, &first, 1))
    return file_error(name, "it is empty, or cannot be read", kForms);
  if (first != '{' && std::isspace(static_cast<unsigned char>(first)) == 0)
    return file_error(name, "it is no list of parameters", kForms);
  const auto text = read_foreign_file(path);
  if (!text) return text.errors();
  auto parameters = listed_in(text.value(), name);
  if (!parameters) return parameters.errors();
  return ParameterList{std::move(parameters.value()), ""};
}

}  // namespace lockstep
