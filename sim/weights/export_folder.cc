#include "sim/weights/export_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "scenarios/base/error.h"
#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/weights/readers.h"
#include "sim/weights/wrong_bytes.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Behind magic, version, length and description of an .npy file of version 1.0.
std::span<const std::byte> numbers_of(std::span<const std::byte> bytes) {
  constexpr size_t kBefore = 10;
  if (bytes.size() < kBefore || std::memcmp(bytes.data(), "\x93NUMPY\x01\x00", 8) != 0)
    throw WrongBytes("is no .npy file of version 1.0");
  uint16_t length;
  std::memcpy(&length, bytes.data() + 8, sizeof length);
  if (length > bytes.size() - kBefore) throw WrongBytes("is an .npy file that was cut short");
  return bytes.subspan(kBefore + length);
}

CheckpointTensor exported_tensor(const Json& entry, const std::string& name,
                                 std::span<const std::byte> bytes) {
  CheckpointTensor tensor;
  tensor.name = name;
  const auto dtype = dtype_of_word(entry.at("dtype").get<std::string>());
  if (!dtype) throw WrongBytes("has a dtype that lockstep does not know");
  tensor.dtype = *dtype;
  entry.at("shape").get_to(tensor.shape);
  tensor.strides.assign(tensor.shape.size(), 1);
  for (size_t i = tensor.shape.size(); i-- > 1;)
    tensor.strides[i - 1] = tensor.strides[i] * std::max<int64_t>(tensor.shape[i], 1);
  place(numbers_of(bytes), 0, name, &tensor);
  return tensor;
}

// Python counts steps in a float32 without axes, LibTorch's C++ in an integer.
void as_python_counts(CheckpointTensor* tensor, ExportedState* state) {
  if (tensor->dtype != Dtype::int64 || tensor->numel() != 1) return;
  int64_t steps;
  std::memcpy(&steps, tensor->first, sizeof steps);
  const auto count = static_cast<float>(steps);
  std::vector<std::byte> bytes(sizeof count);
  std::memcpy(bytes.data(), &count, sizeof count);
  state->numbers.push_back(std::make_shared<const std::vector<std::byte>>(std::move(bytes)));
  tensor->dtype = Dtype::float32;
  tensor->shape.clear();
  tensor->strides.clear();
  tensor->first = state->numbers.back()->data();
}

class Reader {
 public:
  Reader(std::string folder, ExportedState* state) : folder_(std::move(folder)), state_(state) {}

  void read(const Json& final) {
    for (const Json& entry : final.at("parameters")) {
      const auto name = entry.at("name").get<std::string>();
      numbers_.emplace(name, numbers_.size());
      add(entry, "state_dict/" + name);
    }
    for (const Json& entry : final.at("buffers"))
      add(entry, "state_dict/" + entry.at("name").get<std::string>());
    for (const Json& entry : final.at("optimizer_state"))
      add(entry, optimizer_name(entry.at("name").get<std::string>()));
  }

 private:
  // "fc1.weight.exp_avg" -> "optimizer/state/0/exp_avg"
  std::string optimizer_name(const std::string& name) const {
    constexpr std::array<std::string_view, 7> kWords = {
        "step", "exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg", "sum"};
    const size_t dot = name.rfind('.');
    const auto known =
        dot == std::string::npos ? numbers_.end() : numbers_.find(name.substr(0, dot));
    const bool word = known != numbers_.end() && (std::find(kWords.begin(), kWords.end(),
                                                            name.substr(dot + 1)) != kWords.end() ||
                                                  name.ends_with(".max_exp_avg_sq"));
    if (!word) return "other_state/" + name;
    return fmt::format("optimizer/state/{}/{}", known->second, name.substr(dot + 1));
  }

  void add(const Json& entry, const std::string& name) {
    if (entry.at("file").is_null()) return;  // a tensor that does not exist
    auto file = MappedFile::open(folder_ + "/" + entry.at("file").get<std::string>());
    if (!file) throw WrongBytes(to_text(file.errors().front()));
    state_->files.push_back(file.value());
    state_->tensors.push_back(exported_tensor(entry, name, file.value()->bytes()));
    if (name.ends_with("/step")) as_python_counts(&state_->tensors.back(), state_);
  }

  std::string folder_;
  ExportedState* state_;
  std::map<std::string, size_t> numbers_;
};

}  // namespace

Expected<ExportedState> read_export(const std::string& folder) {
  const std::string path = folder + "/manifest.json";
  const auto text = read_foreign_file(path, kResultBytesMost);
  if (!text) return text.errors();
  const auto parsed = parse_foreign_json(text.value(), path, "the manifest of an export");
  if (!parsed) return parsed.errors();
  const Json& manifest = parsed.value();
  if (!manifest.is_object()) return file_error(path, "is no object", "the manifest of an export");
  ExportedState state;
  try {
    Reader(folder, &state).read(manifest.at("final"));
  } catch (const std::exception& error) {
    return file_error(path, error.what());
  }
  return state;
}

}  // namespace lockstep
