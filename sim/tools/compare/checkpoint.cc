#include "sim/tools/compare/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "scenarios/base/error.h"
#include "sim/weights/tensor.h"
#include "sim/weights/zip.h"

namespace lockstep {
namespace {

// Protocol 2, then the number by which torch.load knew its own files until PyTorch 1.6.
constexpr std::string_view kLegacyMagic("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
                                        14);

bool begins_with(std::span<const std::byte> bytes, std::string_view text) {
  return bytes.size() >= text.size() && std::memcmp(bytes.data(), text.data(), text.size()) == 0;
}

void read(std::span<const std::byte> bytes, Checkpoint* checkpoint) {
  if (is_zip(bytes)) return read_torch(bytes, checkpoint);
  if (begins_with(bytes, kLegacyMagic))
    throw WrongBytes("is in the format that torch.save had before PyTorch 1.6",
                     "a zip file: load and save it again with a newer PyTorch");
  if (is_safetensors(bytes)) return read_safetensors(bytes, checkpoint);
  throw WrongBytes("is neither a .safetensors file nor one of torch.save (a zip file)");
}

void check_names(const Checkpoint& checkpoint) {
  std::set<std::string_view> names;
  for (const CheckpointTensor& tensor : checkpoint.tensors)
    if (!names.insert(tensor.name).second)
      throw WrongBytes(fmt::format("has two values named {}", tensor.name));
}

// Each tensor may be many views of one storage, or repeat one number: a small file must not make
// much work.
void check_amount(const Checkpoint& checkpoint) {
  const auto size = static_cast<int64_t>(checkpoint.file->bytes().size());
  const int64_t most = 16 * size + (int64_t{64} << 20);
  int64_t sum = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors) {
    sum += tensor.numel() * bytes_of(tensor.dtype);
    if (sum > most)
      throw WrongBytes(fmt::format("has {} bytes, but its tensors have more than {}", size, most),
                       "at most 16 times the bytes of the file, and 64 MiB");
  }
}

}  // namespace

Expected<Checkpoint> read_weights_file(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return file.errors();
  Checkpoint checkpoint;
  checkpoint.path = path;
  checkpoint.file = file.value();
  try {
    read(checkpoint.file->bytes(), &checkpoint);
    check_names(checkpoint);
    check_amount(checkpoint);
  } catch (const WrongBytes& wrong) {
    return file_error(path, wrong.what(), wrong.allowed());
  }
  return checkpoint;
}

namespace {

// Nothing, or the first value that nobody may leave out.
std::optional<InputError> unread_tensors(const Checkpoint& checkpoint) {
  for (const SkippedValue& value : checkpoint.skipped)
    if (value.holds_tensors) {
      const WrongBytes wrong(
          fmt::format("data.pkl, byte {}: {} needs {}, which holds tensors, and lockstep executes "
                      "nothing in a file",
                      value.byte, value.name, value.type),
          "--key with the name of what is to be compared, or state_dict() saved in its place");
      return file_error(checkpoint.path, wrong.what(), wrong.allowed());
    }
  return std::nullopt;
}

void keep_below(const std::string& key, std::vector<SkippedValue>* skipped) {
  std::erase_if(*skipped, [&](const SkippedValue& value) {
    return value.name != key && !value.name.starts_with(key + "/");
  });
  for (SkippedValue& value : *skipped)
    if (value.name != key) value.name.erase(0, key.size() + 1);
}

}  // namespace

Expected<Checkpoint> below_key(Checkpoint checkpoint, const std::string& key) {
  if (key.empty()) {
    if (auto unread = unread_tensors(checkpoint)) return *unread;
    return checkpoint;
  }
  const std::string prefix = key + "/";
  std::set<std::string> keys;
  keep_below(key, &checkpoint.skipped);
  std::vector<CheckpointTensor> kept;
  for (CheckpointTensor& tensor : checkpoint.tensors) {
    const size_t slash = tensor.name.find('/');
    if (slash != std::string::npos) keys.insert(tensor.name.substr(0, slash));
    if (!tensor.name.starts_with(prefix)) continue;
    tensor.name.erase(0, prefix.size());
    kept.push_back(std::move(tensor));
  }
  if (auto unread = unread_tensors(checkpoint)) return *unread;
  if (kept.empty() && !checkpoint.skipped.empty())
    return file_error(checkpoint.path,
                      WrongBytes(fmt::format("has no numbers below the key {}: it is, or holds, {}",
                                             key, checkpoint.skipped.front().type))
                          .what(),
                      "the key of tensors");
  if (kept.empty())
    return file_error(checkpoint.path, fmt::format("has nothing below the key {}", key),
                      keys.empty()
                          ? "no key: its names stand in one dictionary"
                          : fmt::format("a path that begins with {}", fmt::join(keys, ", ")));
  checkpoint.tensors = std::move(kept);
  return checkpoint;
}

namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kLargestHeader = 100'000'000;  // the format's own limit

struct Word {
  const char* word;
  Dtype dtype;
};
constexpr std::array<Word, 17> kWords = {{{"F64", Dtype::float64},
                                          {"F32", Dtype::float32},
                                          {"F16", Dtype::float16},
                                          {"BF16", Dtype::bfloat16},
                                          {"F8_E4M3", Dtype::float8_e4m3fn},
                                          {"F8_E5M2", Dtype::float8_e5m2},
                                          {"C128", Dtype::complex128},
                                          {"C64", Dtype::complex64},
                                          {"I64", Dtype::int64},
                                          {"I32", Dtype::int32},
                                          {"I16", Dtype::int16},
                                          {"I8", Dtype::int8},
                                          {"U64", Dtype::uint64},
                                          {"U32", Dtype::uint32},
                                          {"U16", Dtype::uint16},
                                          {"U8", Dtype::uint8},
                                          {"BOOL", Dtype::boolean}}};

struct Entry {
  std::string name, dtype;
  std::vector<uint64_t> shape, offsets;
  std::set<std::string> keys;
};

// The header's JSON, event by event: a tree of a hostile one could take a hundred times its bytes.
class Header : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> take() { return std::move(entries_); }

  bool null() override { return stray("null"); }
  bool boolean(bool) override { return stray("a truth value"); }
  bool number_integer(number_integer_t) override { return stray("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return stray("a fraction"); }
  bool binary(binary_t&) override { return stray("bytes"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr) return stray("a number");
    if (list_->size() > 64) throw WrongBytes(place() + " has more than 64 axes");
    list_->push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && metadata_) return true;
    if (depth_ != 2 || key_ != "dtype") return stray("a text");
    entries_.back().dtype = value;
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ >= 2 || list_ != nullptr) return stray("an object");
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    key_ = name;
    if (depth_ == 1) return begin_entry(name);
    if (metadata_) return true;
    if (!entries_.back().keys.insert(name).second)
      throw WrongBytes(fmt::format("{} has {} twice", place(), name));
    if (name != "dtype" && name != "shape" && name != "data_offsets")
      throw WrongBytes(fmt::format("{} has an unknown key {}", place(), name),
                       "dtype, shape and data_offsets");
    return true;
  }
  bool end_object() override {
    if (depth_ == 2 && !metadata_ && entries_.back().keys.size() != 3)
      throw WrongBytes(place() + " is incomplete", "dtype, shape and data_offsets");
    --depth_;
    metadata_ = false;
    return true;
  }
  bool start_array(size_t) override {
    const bool shape = key_ == "shape";
    if (depth_ != 2 || metadata_ || list_ != nullptr || (!shape && key_ != "data_offsets"))
      return stray("a list");
    list_ = shape ? &entries_.back().shape : &entries_.back().offsets;
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    throw WrongBytes(fmt::format("byte {}: the header is no JSON",
                                 kLengthBytes + std::max<size_t>(position, 1) - 1));
  }

 private:
  std::string place() const {
    if (depth_ == 0 || (entries_.empty() && !metadata_)) return "the header";
    return metadata_ ? "the header's __metadata__" : "tensor " + entries_.back().name;
  }
  bool stray(const char* what) const {
    throw WrongBytes(fmt::format("{} has {} where none belongs", place(), what));
  }
  bool begin_entry(const std::string& name) {
    if (!names_.insert(name).second) throw WrongBytes(fmt::format("the header has {} twice", name));
    metadata_ = name == "__metadata__";
    if (!metadata_) entries_.push_back({name, "", {}, {}, {}});
    return true;
  }

  std::vector<Entry> entries_;
  std::set<std::string> names_;
  std::string key_;
  std::vector<uint64_t>* list_ = nullptr;
  int depth_ = 0;
  bool metadata_ = false;
};

Dtype dtype_of(const Entry& entry) {
  for (const Word& word : kWords)
    if (entry.dtype == word.word) return word.dtype;
  throw WrongBytes(
      fmt::format("tensor {} has dtype {}, which lockstep does not know", entry.name, entry.dtype));
}

CheckpointTensor tensor_of(const Entry& entry, std::span<const std::byte> data) {
  CheckpointTensor tensor;
  tensor.name = entry.name;
  tensor.dtype = dtype_of(entry);
  const std::string what = "tensor " + entry.name;
  if (entry.offsets.size() != 2 || entry.offsets[0] > entry.offsets[1] ||
      entry.offsets[1] > data.size())
    throw WrongBytes(
        fmt::format("{}: data_offsets leave the {} bytes of data, or are none", what, data.size()));
  for (const uint64_t size : entry.shape) {
    if (size > uint64_t{1} << 48) throw WrongBytes(what + " has a shape beyond any file");
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  tensor.strides = row_major_strides(tensor.shape, what);
  const auto storage = data.subspan(entry.offsets[0], entry.offsets[1] - entry.offsets[0]);
  place(storage, 0, what, &tensor);
  if (tensor.numel() * bytes_of(tensor.dtype) != static_cast<int64_t>(storage.size()))
    throw WrongBytes(fmt::format("{}: shape and dtype need {} bytes, data_offsets give {}", what,
                                 tensor.numel() * bytes_of(tensor.dtype), storage.size()));
  return tensor;
}

// As the format demands: no byte belongs to two tensors, none to nobody.
void check_cover(std::vector<Entry> entries, size_t size) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  uint64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.offsets[0] != end)
      throw WrongBytes(
          fmt::format("tensor {} begins at byte {} of the data, where the one before it "
                      "ends at {}",
                      entry.name, entry.offsets[0], end),
          "tensors without overlap or gap");
    end = entry.offsets[1];
  }
  if (end != size)
    throw WrongBytes(
        fmt::format("has {} bytes of data, of which no tensor has those from {} on", size, end));
}

uint64_t header_length(std::span<const std::byte> bytes) {
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length;
}

}  // namespace

bool is_safetensors(std::span<const std::byte> bytes) {
  return bytes.size() > kLengthBytes && bytes[kLengthBytes] == std::byte{'{'};
}

void read_safetensors(std::span<const std::byte> bytes, Checkpoint* checkpoint) {
  const uint64_t length = header_length(bytes);
  if (length > kLargestHeader || length > bytes.size() - kLengthBytes)
    throw WrongBytes(fmt::format("says that its header has {} bytes, and has {} after it", length,
                                 bytes.size() - kLengthBytes),
                     "at most 100000000, within the file");
  const auto* text = reinterpret_cast<const char*>(bytes.data() + kLengthBytes);
  Header header;
  nlohmann::json::sax_parse(text, text + length, &header);
  const auto data = bytes.subspan(kLengthBytes + length);
  const std::vector<Entry> entries = header.take();
  for (const Entry& entry : entries) checkpoint->tensors.push_back(tensor_of(entry, data));
  check_cover(entries, data.size());
  checkpoint->format = "safetensors";
}

}  // namespace lockstep
