#include "sim/judge/foreign/unpacked.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "scenarios/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kPiece = size_t{1} << 20;

struct Close {
  void operator()(gzFile file) const { gzclose(file); }
};
using File = std::unique_ptr<gzFile_s, Close>;

std::string why_of(gzFile file, int saved_errno) {
  int code = Z_OK;
  const char* text = gzerror(file, &code);
  if (code == Z_ERRNO) return std::strerror(saved_errno);
  if (code == Z_BUF_ERROR) return "the gzip file is cut off";
  return fmt::format("the gzip file is damaged ({})", text);
}

}  // namespace

Expected<std::string> read_unpacked(const std::string& path, size_t most) {
  errno = 0;
  const File file(gzopen(path.c_str(), "rb"));
  if (!file) return file_error(path, std::strerror(errno == 0 ? ENOMEM : errno));
  std::string text;
  for (;;) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    const int count = gzread(file.get(), text.data() + before, kPiece);
    const int saved_errno = errno;
    text.resize(before + static_cast<size_t>(std::max(count, 0)));
    int code = Z_OK;
    gzerror(file.get(), &code);
    if (count < 0 || code != Z_OK) return file_error(path, why_of(file.get(), saved_errno));
    if (count == 0) return text;
    if (text.size() > most)
      return file_error(path, fmt::format("it holds more than {} bytes", most), "a smaller trace");
  }
}

}  // namespace lockstep
