#include "scenarios/checkpoint_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "scenarios/base/file.h"
#include "scenarios/base/hash.h"
#include "scenarios/json/exact.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const std::string kMagic = "lockstep checkpoint 1\n";
constexpr size_t kLengthBytes = 8;
constexpr size_t kHashBytes = 16;
constexpr int64_t kCheckpointBytesMost = int64_t{8} << 30;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw CheckpointError(fmt::format("checkpoint {}: {}", path, what));
}

[[noreturn]] void fail_errno(const std::string& path, const std::string& what) {
  fail(path, fmt::format("{}: {}", what, std::strerror(errno)));
}

std::string hash_of(const char* data, size_t bytes) {
  Hash128 hash;
  hash.update(data, bytes);
  const auto digest = hash.digest();
  return {reinterpret_cast<const char*>(digest.data()), kHashBytes};
}

template <class F, class V>
void members(F& file, V&& use) {
  use("step", file.step);
  use("epoch", file.epoch);
  use("world_size", file.world_size);
  use("written_by", file.written_by);
  use("seed", file.seed);
  use("batch_size", file.batch_size);
  use("next_batch", file.next_batch);
  use("dtype", file.dtype);
  use("best_step", file.best_step);
  use("resumed_after", file.resumed_after);
}

// Text in which every bit of a double survives.
Json number(const std::optional<double>& value) {
  return value ? Json(fmt::format("{:a}", *value)) : Json(nullptr);
}

std::optional<double> number_from(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return std::stod(json.get<std::string>());
}

Json header_of(const CheckpointFile& file) {
  Json header = Json::object();
  members(file, [&](const char* key, const auto& value) { header[key] = value; });
  header["metric"] = number(file.metric);
  header["best_metric"] = number(file.best_metric);
  header["tensors"] = Json::array();
  for (const SavedTensor& tensor : file.tensors) {
    Json& json = header["tensors"].emplace_back(Json{{"group", tensor.group},
                                                     {"name", tensor.name},
                                                     {"dtype", tensor.dtype},
                                                     {"shape", tensor.shape},
                                                     {"bytes", tensor.bytes.size()}});
    if (tensor.device != "cpu") json["device"] = tensor.device;
  }
  return header;
}

CheckpointFile from_header(const Json& header) {
  CheckpointFile file;
  members(file, [&](const char* key, auto& value) { get_exact(header.at(key), value); });
  file.metric = number_from(header.at("metric"));
  file.best_metric = number_from(header.at("best_metric"));
  for (const Json& json : header.at("tensors")) {
    SavedTensor tensor;
    json.at("group").get_to(tensor.group);
    json.at("name").get_to(tensor.name);
    json.at("dtype").get_to(tensor.dtype);
    get_exact(json.at("shape"), tensor.shape);
    if (json.contains("device")) json["device"].get_to(tensor.device);
    file.tensors.push_back(std::move(tensor));
  }
  return file;
}

void write_all(int fd, const std::string& bytes, const std::string& path) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = write(fd, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_errno(path, "cannot be written");
    done += static_cast<size_t>(count);
  }
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

// A rename is on the disk only when its folder is.
void sync_folder(const std::string& folder) {
  const Descriptor opened{open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (opened.fd >= 0) fsync(opened.fd);
}

}  // namespace

std::string encode_checkpoint(const CheckpointFile& file) {
  const std::string header = header_of(file).dump();
  std::string bytes = kMagic;
  for (size_t i = 0; i < kLengthBytes; ++i)
    bytes += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  bytes += header;
  for (const SavedTensor& tensor : file.tensors) bytes += tensor.bytes;
  return bytes + hash_of(bytes.data(), bytes.size());
}

CheckpointFile decode_checkpoint(const std::string& bytes, const std::string& path) {
  const size_t start = kMagic.size() + kLengthBytes;
  if (bytes.compare(0, kMagic.size(), kMagic) != 0)
    fail(path, "this is not a checkpoint of lockstep");
  if (bytes.size() < start + kHashBytes)
    fail(path, fmt::format("cut short at {} bytes", bytes.size()));
  uint64_t header_bytes = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    header_bytes |= uint64_t{static_cast<uint8_t>(bytes[kMagic.size() + i])} << (8 * i);
  if (header_bytes > bytes.size() - start - kHashBytes)
    fail(path, fmt::format("cut short: {} bytes do not hold its header", bytes.size()));
  const Json header = json_or_discarded(std::string_view(bytes).substr(start, header_bytes));
  if (header.is_discarded()) fail(path, "damaged: its header cannot be read");
  try {
    CheckpointFile file = from_header(header);
    uint64_t place = start + header_bytes;
    for (size_t i = 0; i < file.tensors.size(); ++i) {
      const auto size = get_exact<uint64_t>(header.at("tensors").at(i).at("bytes"));
      const uint64_t left = bytes.size() - kHashBytes - place;
      if (size > left)
        fail(path,
             fmt::format("cut short: {} bytes end in {}", bytes.size(), file.tensors[i].name));
      file.tensors[i].bytes = bytes.substr(place, size);
      place += size;
    }
    if (place + kHashBytes != bytes.size()) fail(path, "damaged: longer than its header says");
    if (hash_of(bytes.data(), place) != bytes.substr(place))
      fail(path, "damaged: its checksum does not fit its contents");
    return file;
  } catch (const nlohmann::json::exception& error) {
    fail(path, fmt::format("damaged: {}", error.what()));
  } catch (const std::logic_error& error) {  // of std::stod
    fail(path, fmt::format("damaged: a metric is no number ({})", error.what()));
  }
}

void write_checkpoint(const CheckpointFile& file, const std::string& path,
                      const std::string& suffix) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (error) fail(path, fmt::format("its folder cannot be made: {}", error.message()));
  const std::string unfinished = path + ".new." + suffix;
  {
    const Descriptor out{open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
    if (out.fd < 0) fail_errno(unfinished, "cannot be made");
    write_all(out.fd, encode_checkpoint(file), unfinished);
    if (fsync(out.fd) != 0) fail_errno(unfinished, "cannot be synced");
  }
  if (rename(unfinished.c_str(), path.c_str()) != 0) fail_errno(path, "cannot be put in place");
  sync_folder(folder.empty() ? "." : folder);
}

CheckpointFile read_checkpoint(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) fail(path, "there is no such file");
  const auto bytes = read_foreign_file(path, kCheckpointBytesMost);
  if (!bytes) fail(path, bytes.errors().front().message);
  return decode_checkpoint(bytes.value(), path);
}

}  // namespace lockstep
