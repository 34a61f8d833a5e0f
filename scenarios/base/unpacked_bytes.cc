#include "scenarios/base/unpacked_bytes.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "scenarios/base/file.h"

namespace lockstep {
namespace {

constexpr size_t kPiece = size_t{1} << 18;

std::string why_of(gzFile file, int saved_errno) {
  int code = Z_OK;
  const char* text = gzerror(file, &code);
  if (code == Z_ERRNO) return std::strerror(saved_errno);
  if (code == Z_BUF_ERROR) return "the gzip file is cut off";
  return fmt::format("the gzip file is damaged ({})", text);
}

}  // namespace

Expected<std::unique_ptr<UnpackedBytes>> UnpackedBytes::open(const std::string& path,
                                                             int64_t unpacked_always) {
  auto file = open_foreign_file(path, kUnpackedMost);
  if (!file) return file.errors();
  const gzFile unpacking = gzdopen(file.value().fd.get(), "rb");
  if (unpacking == nullptr) return file_error(path, std::strerror(ENOMEM));
  file.value().fd.release();  // gzclose() closes it
  const int64_t most = std::max(unpacked_always, kMostExpansion * file.value().bytes);
  return std::unique_ptr<UnpackedBytes>(
      new UnpackedBytes(unpacking, std::min(kUnpackedMost, most)));
}

UnpackedBytes::~UnpackedBytes() { gzclose(file_); }

bool UnpackedBytes::refill() {
  if (!problem_.empty()) return false;
  piece_.resize(kPiece);
  at_ = 0;
  const int count = gzread(file_, piece_.data(), kPiece);
  const int saved_errno = errno;
  piece_.resize(static_cast<size_t>(std::max(count, 0)));
  int code = Z_OK;
  gzerror(file_, &code);
  if (count < 0 || code != Z_OK) problem_ = why_of(file_, saved_errno);
  unpacked_bytes_ += count;
  if (problem_.empty() && unpacked_bytes_ > unpacked_most_)
    throw TooMuch(fmt::format("it unpacks to more than {} bytes", unpacked_most_));
  return problem_.empty() && count > 0;
}

void UnpackedBytes::look_for_damage() {
  while (refill()) continue;
  at_ = piece_.size();
}

void UnpackedBytes::too_long() const {
  throw TooMuch(fmt::format("one value is longer than {} bytes", kLongestToken));
}

}  // namespace lockstep
