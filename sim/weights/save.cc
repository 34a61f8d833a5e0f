#include "sim/weights/save.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "scenarios/base/error.h"
#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/weights/tensor.h"

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
  for (const Json& size : entry.at("shape")) tensor.shape.push_back(whole_number(size));
  tensor.strides = row_major_strides(tensor.shape, name);
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

namespace {

const char* storage_class(Dtype dtype) {
  switch (dtype) {
    case Dtype::float64:
      return "DoubleStorage";
    case Dtype::float32:
      return "FloatStorage";
    case Dtype::float16:
      return "HalfStorage";
    case Dtype::bfloat16:
      return "BFloat16Storage";
    case Dtype::complex128:
      return "ComplexDoubleStorage";
    case Dtype::complex64:
      return "ComplexFloatStorage";
    case Dtype::int64:
      return "LongStorage";
    case Dtype::int32:
      return "IntStorage";
    case Dtype::int16:
      return "ShortStorage";
    case Dtype::int8:
      return "CharStorage";
    case Dtype::uint8:
      return "ByteStorage";
    case Dtype::boolean:
      return "BoolStorage";
    default:
      throw std::runtime_error(fmt::format("torch.save has no storage of {}", to_word(dtype)));
  }
}

template <class T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string text(const std::string& value) {
  return "X" + raw(static_cast<uint32_t>(value.size())) + value;
}

std::string integer(int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) return "J" + raw(static_cast<int32_t>(value));
  return "\x8a\x08" + raw(value);  // LONG1
}

std::string tuple(const std::vector<int64_t>& values) {
  std::string code = "(";
  for (int64_t value : values) code += integer(value);
  return code + "t";
}

std::vector<int64_t> contiguous_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

// _rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())
std::string tensor_code(const CheckpointTensor& tensor, size_t index) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\n" +
         storage_class(tensor.dtype) + "\n" + text(std::to_string(index)) + text("cpu") +
         integer(tensor.numel()) + "tQ" + integer(0) + tuple(tensor.shape) +
         tuple(contiguous_strides(tensor.shape)) + "\x89" + "ccollections\nOrderedDict\n)RtR";
}

std::string key_code(const std::string& key) {
  const bool digits =
      !key.empty() && key.size() < 10 &&
      std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
  return digits ? integer(std::stoll(key)) : text(key);
}

struct Item {
  std::string rest;  // of its name
  size_t index;
};

// Items of one key stand together from the first of them on.
std::string dict_code(const std::vector<Item>& items,
                      const std::vector<CheckpointTensor>& tensors) {
  std::vector<std::pair<std::string, std::vector<Item>>> keys;
  std::string code = "}(";
  for (const Item& item : items) {
    const size_t slash = item.rest.find('/');
    const std::string key = item.rest.substr(0, slash);
    auto place = std::find_if(keys.begin(), keys.end(),
                              [&](const auto& known) { return known.first == key; });
    if (place == keys.end()) place = keys.insert(keys.end(), {key, {}});
    place->second.push_back(
        {slash == std::string::npos ? "" : item.rest.substr(slash + 1), item.index});
  }
  for (const auto& [key, below] : keys) {
    code += key_code(key);
    code += below.size() == 1 && below[0].rest.empty()
                ? tensor_code(tensors[below[0].index], below[0].index)
                : dict_code(below, tensors);
  }
  return code + "u";
}

}  // namespace

std::string pickled(const std::vector<CheckpointTensor>& tensors) {
  std::vector<Item> items;
  for (size_t i = 0; i < tensors.size(); ++i) items.push_back({tensors[i].name, i});
  return "\x80\x02" + dict_code(items, tensors) + ".";
}

namespace {

constexpr std::string_view kWeights = "state_dict/";

std::string_view bytes_of_tensor(const CheckpointTensor& tensor) {
  LOCKSTEP_CHECK(tensor.contiguous(), "only contiguous tensors are written");
  return {reinterpret_cast<const char*>(tensor.first),
          static_cast<size_t>(tensor.numel() * bytes_of(tensor.dtype))};
}

const char* safetensors_word(Dtype dtype) {
  constexpr const char* kNames[] = {"F64",  "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2",
                                    "C128", "C64", "I64", "I32",  "I16",     "I8",
                                    "U64",  "U32", "U16", "U8",   "BOOL"};
  return kNames[static_cast<size_t>(dtype)];
}

// The widest elements first, as the format's own library does: so each is aligned.
void write_safetensors(const std::vector<CheckpointTensor>& all, std::ostream& out) {
  std::vector<const CheckpointTensor*> tensors;
  for (const CheckpointTensor& tensor : all)
    if (tensor.name.starts_with(kWeights)) tensors.push_back(&tensor);
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) {
    return bytes_of(a->dtype) > bytes_of(b->dtype);
  });
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  size_t at = 0;
  for (const CheckpointTensor* tensor : tensors) {
    const size_t end = at + bytes_of_tensor(*tensor).size();
    header[tensor->name.substr(kWeights.size())] = {{"dtype", safetensors_word(tensor->dtype)},
                                                    {"shape", tensor->shape},
                                                    {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof length);
  out << text;
  for (const CheckpointTensor* tensor : tensors) out << bytes_of_tensor(*tensor);
}

// A zip archive of stored entries, each aligned to 64 bytes as torch.save does it.
class ZipWriter {
 public:
  explicit ZipWriter(std::ostream& out) : out_(out) {}

  void add(const std::string& name, std::string_view data) {
    constexpr size_t kAlignment = 64;
    const size_t local = at_;
    const size_t padding =
        (kAlignment - (at_ + kLocal + name.size() + 4) % kAlignment) % kAlignment;
    const std::string extra =
        "FB" + number(static_cast<uint16_t>(padding)) + std::string(padding, 'Z');
    const std::string common = common_part(name, data, extra.size());
    put("PK\x03\x04" + common + name + extra);
    put(data);
    if (at_ > UINT32_MAX)
      throw std::runtime_error("over 4 GiB do not fit into a .pt file of ours: take .safetensors");
    directory_ += "PK\x01\x02" + number<uint16_t>(20) + common_part(name, data, 0) +
                  number<uint16_t>(0) + number<uint16_t>(0) + number<uint16_t>(0) +
                  number<uint32_t>(0) + number(static_cast<uint32_t>(local)) + name;
    ++entries_;
  }

  void finish() {
    LOCKSTEP_CHECK(entries_ < UINT16_MAX, "more entries than a zip archive has without zip64");
    const size_t begin = at_;
    put(directory_);
    put(std::string("PK\x05\x06\0\0\0\0", 8) + number(static_cast<uint16_t>(entries_)) +
        number(static_cast<uint16_t>(entries_)) + number(static_cast<uint32_t>(directory_.size())) +
        number(static_cast<uint32_t>(begin)) + number<uint16_t>(0));
  }

 private:
  static constexpr size_t kLocal = 30;

  template <class T>
  static std::string number(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  }
  // Version needed to length of the extra field, which stands alike in both headers. No date: the
  // same tensors are the same bytes.
  static std::string common_part(const std::string& name, std::string_view data, size_t extra) {
    const auto size = static_cast<uint32_t>(data.size());
    const auto checksum = static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const unsigned char*>(data.data()), data.size()));
    return number<uint16_t>(20) + number<uint16_t>(0) + number<uint16_t>(0) + number<uint16_t>(0) +
           number<uint16_t>(0x21) + number(checksum) + number(size) + number(size) +
           number(static_cast<uint16_t>(name.size())) + number(static_cast<uint16_t>(extra));
  }
  void put(std::string_view bytes) {
    out_ << bytes;
    at_ += bytes.size();
  }

  std::ostream& out_;
  std::string directory_;
  size_t at_ = 0, entries_ = 0;
};

void write_torch(const std::vector<CheckpointTensor>& tensors, std::ostream& out) {
  if (tensors.size() > 60'000) throw std::runtime_error("more than 60000 tensors");
  ZipWriter zip(out);
  zip.add("archive/data.pkl", pickled(tensors));
  zip.add("archive/byteorder", "little");
  for (size_t i = 0; i < tensors.size(); ++i)
    zip.add("archive/data/" + std::to_string(i), bytes_of_tensor(tensors[i]));
  zip.add("archive/version", "3\n");
  zip.finish();
}

bool is_safetensors_name(const std::string& path) { return path.ends_with(".safetensors"); }

}  // namespace

std::string why_no_checkpoint_name(const std::string& path) {
  if (is_safetensors_name(path) || path.ends_with(".pt") || path.ends_with(".pth")) return "";
  return path + ": ends neither in .safetensors nor in .pt or .pth";
}

std::string safetensors_bytes(const std::vector<CheckpointTensor>& tensors) {
  std::ostringstream out;
  write_safetensors(tensors, out);
  return out.str();
}

std::string torch_bytes(const std::vector<CheckpointTensor>& tensors) {
  std::ostringstream out;
  write_torch(tensors, out);
  return out.str();
}

void save_checkpoint(const std::string& path, const std::vector<CheckpointTensor>& tensors) {
  const std::string unfinished = fmt::format("{}.{}.new", path, getpid());
  try {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    if (is_safetensors_name(path))
      write_safetensors(tensors, file);
    else
      write_torch(tensors, file);
    file.close();
    if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0)
      throw std::runtime_error(std::strerror(errno));
  } catch (const std::exception& error) {
    unlink(unfinished.c_str());
    throw std::runtime_error(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace lockstep
