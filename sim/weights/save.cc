#include "sim/weights/save.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "scenarios/base/error.h"
#include "sim/weights/pickler.h"

namespace lockstep {
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
