#include "sim/weights/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "scenarios/base/error.h"
#include "sim/weights/readers.h"
#include "sim/weights/wrong_bytes.h"

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

int64_t CheckpointTensor::numel() const {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

bool CheckpointTensor::contiguous() const {
  if (numel() == 0) return true;
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

// The largest index is found without overflow: sizes and strides are not trusted.
void place(std::span<const std::byte> storage, int64_t offset, const std::string& what,
           CheckpointTensor* tensor) {
  const auto outside = [&] {
    return WrongBytes(
        fmt::format("{}: shape [{}] with strides [{}] from element {} on leaves its "
                    "storage of {} bytes",
                    what, fmt::join(tensor->shape, ", "), fmt::join(tensor->strides, ", "), offset,
                    storage.size()));
  };
  const int64_t width = bytes_of(tensor->dtype);
  const auto available = static_cast<int64_t>(storage.size()) / width;
  int64_t numel = 1, last = offset;
  if (offset < 0) throw outside();
  for (size_t i = 0; i < tensor->shape.size(); ++i) {
    const int64_t size = tensor->shape[i], stride = tensor->strides[i];
    int64_t reach = 0;
    if (size < 0 || stride < 0 || __builtin_mul_overflow(numel, size, &numel) ||
        numel > (int64_t{1} << 48) ||
        __builtin_mul_overflow(std::max<int64_t>(size - 1, 0), stride, &reach) ||
        __builtin_add_overflow(last, reach, &last))
      throw outside();
  }
  if (numel == 0 ? offset > available : last >= available) throw outside();
  tensor->first = storage.data() + offset * width;
}

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

}  // namespace lockstep
