#include "sim/tools/explain/archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "sim/weights/tensor.h"
#include "sim/weights/zip.h"

namespace lockstep {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kNameMost = size_t{64} << 10;  // of a long name's own record
constexpr size_t kPiece = size_t{1} << 20;

bool is_gzip(std::string_view head) { return head.starts_with("\x1f\x8b"); }
bool is_tar(std::string_view head) { return head.size() >= 262 && head.substr(257, 5) == "ustar"; }

[[noreturn]] void too_large(const ArchiveLimits& limits) {
  throw WrongBytes(fmt::format("unpacks to more than {} bytes", limits.bytes),
                   "unpack it, and name the folder");
}

// What both kinds give, within the limits.
class Unpacked {
 public:
  explicit Unpacked(const ArchiveLimits& limits) : limits_(limits) {}

  void add_alone(std::string name, std::string bytes) {
    files_.push_back({std::move(name), std::move(bytes), true});
  }
  void add(std::string name, std::string bytes) {
    while (name.starts_with("./")) name.erase(0, 2);
    if (name.empty() || name.ends_with('/')) return;
    if (files_.size() >= limits_.files)
      throw WrongBytes(fmt::format("holds more than {} files", limits_.files));
    if (!names_.insert(name).second) throw WrongBytes(fmt::format("has two files named {}", name));
    files_.push_back({std::move(name), std::move(bytes), false});
  }
  std::vector<ArchivedFile> take() { return std::move(files_); }

 private:
  const ArchiveLimits limits_;
  std::set<std::string> names_;
  std::vector<ArchivedFile> files_;
};

struct InflateEnd {
  void operator()(z_stream* stream) const { inflateEnd(stream); }
};

// Deflated bytes without a header, as zip has them; at most `most` come out.
std::string inflated(std::span<const std::byte> packed, size_t most, const std::string& name,
                     const ArchiveLimits& limits) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw WrongBytes("no memory to unpack it");
  const std::unique_ptr<z_stream, InflateEnd> ends(&stream);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());  // of a file of at most 1 GiB
  std::string out, piece(std::min(kPiece, most + 1), '\0');
  for (int state = Z_OK; state != Z_STREAM_END;) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = inflate(&stream, Z_NO_FLUSH);
    const size_t got = piece.size() - stream.avail_out;
    if (got > most - out.size()) too_large(limits);
    out.append(piece, 0, got);
    if (state != Z_STREAM_END && (state != Z_OK || got == 0))
      throw WrongBytes(fmt::format("entry {} is damaged: it does not unpack", name));
  }
  return out;
}

uint32_t checksum_of(const std::string& bytes) {
  return static_cast<uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

void read_zip(const std::string& whole, const ArchiveLimits& limits, Unpacked* unpacked) {
  const ZipEntries entries = zip_entries(std::as_bytes(std::span(whole)));
  size_t left = static_cast<size_t>(limits.bytes);
  for (const auto& [name, bytes] : entries.bytes) {
    const auto method = entries.packed.find(name);
    if (method != entries.packed.end() && method->second != 8)
      throw WrongBytes(fmt::format("entry {} is packed by method {}", name, method->second),
                       "stored or deflated entries");
    if (method == entries.packed.end() && bytes.size() > left) too_large(limits);
    std::string text = method == entries.packed.end()
                           ? std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())
                           : inflated(bytes, left, name, limits);
    const uint32_t checksum = entries.checksums.at(name);
    if (checksum != 0 && checksum != checksum_of(text))
      throw WrongBytes(fmt::format("entry {} is damaged: its checksum is another", name));
    left -= text.size();
    unpacked->add(name, std::move(text));
  }
}

struct GzipClose {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

// The bytes of a file, unpacked where gzip packed it.
class TarBytes {
 public:
  TarBytes(gzFile_s* file, const ArchiveLimits& limits) : file_(file), limits_(limits) {}

  std::string take(int64_t size) {
    std::string out;
    for (int64_t left = size; left > 0;) {
      std::string piece(static_cast<size_t>(std::min<int64_t>(left, kPiece)), '\0');
      const size_t got = read(&piece);
      if (got < piece.size()) cut_short();
      left -= static_cast<int64_t>(got);
      out += piece;
    }
    return out;
  }

  // All that is left, as far as a file of one job's can be.
  std::string take_rest() {
    std::string out, piece(kPiece, '\0');
    for (size_t got = kPiece; got == kPiece;) {
      got = read(&piece);
      out.append(piece, 0, got);
      if (static_cast<int64_t>(out.size()) > limits_.bytes) too_large(limits_);
    }
    if (const auto why = damage()) throw WrongBytes(*why);
    return out;
  }

  // A damaged gzip file may show it at its end only.
  void to_the_end() {
    std::string piece(kPiece, '\0');
    while (read(&piece) == piece.size()) {
    }
    if (const auto why = damage()) throw WrongBytes(*why);
  }

  int64_t at() const { return at_; }

  [[noreturn]] void cut_short() {
    if (const auto why = damage()) throw WrongBytes(*why);
    throw WrongBytes(fmt::format("byte {}: the tar archive is cut short", at_), "a whole file");
  }

 private:
  size_t read(std::string* piece) {
    const int got = gzread(file_, piece->data(), static_cast<unsigned>(piece->size()));
    if (got < 0) cut_short();
    at_ += got;
    if (at_ > limits_.bytes + static_cast<int64_t>(kPiece)) too_large(limits_);
    return static_cast<size_t>(got);
  }

  std::optional<std::string> damage() {
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    if (code == Z_OK || code == Z_STREAM_END) return std::nullopt;
    if (code == Z_BUF_ERROR) return "the gzip file is cut off";
    return fmt::format("the gzip file is damaged ({})", text);
  }

  gzFile_s* file_;
  const ArchiveLimits limits_;
  int64_t at_ = 0;
};

// Fields of a header: POSIX.1-2017, pax, "ustar Interchange Format".
std::string field(std::string_view header, size_t at, size_t size) {
  const std::string_view text = header.substr(at, size);
  return std::string(text.substr(0, std::min(text.find('\0'), size)));
}

std::optional<int64_t> octal(std::string_view header, size_t at, size_t size) {
  std::string_view text = header.substr(at, size);
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  int64_t value = 0;
  size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '7'; ++digits)
    value = value * 8 + (text[digits] - '0');  // of at most 12 digits
  const bool ends = digits == text.size() || text[digits] == ' ' || text[digits] == '\0';
  return ends && digits > 0 ? std::optional(value) : std::nullopt;
}

bool checksum_is_right(std::string_view header) {
  int64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i)
    sum += i >= 148 && i < 156 ? ' ' : static_cast<uint8_t>(header[i]);
  return octal(header, 148, 8) == sum;
}

class TarReader {
 public:
  TarReader(gzFile_s* file, const ArchiveLimits& limits, Unpacked* unpacked)
      : bytes_(file, limits), limits_(limits), unpacked_(unpacked) {}

  void read() {
    while (true) {
      const std::string header = bytes_.take(kBlock);
      if (header.find_first_not_of('\0') == std::string::npos) return bytes_.to_the_end();
      take_member(header);
    }
  }

 private:
  [[noreturn]] void wrong(const char* what) const {
    throw WrongBytes(fmt::format("byte {}: {}", bytes_.at() - static_cast<int64_t>(kBlock), what),
                     "a zip or tar archive, the latter packed by gzip or not");
  }

  void take_member(const std::string& header) {
    if (!is_tar(header) || !checksum_is_right(header))
      wrong("no header of a tar archive, where one belongs");
    const auto size = octal(header, 124, 12);
    if (!size && static_cast<uint8_t>(header[124]) >= 0x80) too_large(limits_);
    if (!size) wrong("a header without a size");
    const char type = header[156];
    const bool has_bytes = std::string_view("12346").find(type) == std::string_view::npos;
    const int64_t length = has_bytes ? *size : 0;
    if (length > limits_.bytes) too_large(limits_);
    if ((type == 'L' || type == 'x') && length > static_cast<int64_t>(kNameMost))
      wrong("a name longer than 64 KiB");
    std::string content = bytes_.take(length);
    bytes_.take((static_cast<int64_t>(kBlock) - length % static_cast<int64_t>(kBlock)) %
                static_cast<int64_t>(kBlock));
    take_content(type, header, std::move(content));
  }

  void take_content(char type, const std::string& header, std::string content) {
    switch (type) {
      case 'L':
        long_name_ = content.substr(0, content.find('\0'));
        return;
      case 'x':
        return take_pax(content);
      case 'g':
      case 'K':
        return;
      case 'S':
        wrong("a sparse file");
      case '0':
      case '\0':
      case '7':
        unpacked_->add(long_name_.empty() ? name_of(header) : long_name_, std::move(content));
        break;
      default:
        break;
    }
    long_name_.clear();
  }

  // "27 path=folder/a long name\n"
  void take_pax(std::string_view records) {
    while (!records.empty()) {
      const size_t space = records.find(' ');
      const auto length = number_in<int64_t>(records.substr(0, space));
      if (space == std::string_view::npos || !length || *length <= static_cast<int64_t>(space) ||
          static_cast<size_t>(*length) > records.size())
        wrong("an extended header that is damaged");
      std::string_view record = records.substr(space + 1, static_cast<size_t>(*length) - space - 1);
      if (record.ends_with('\n')) record.remove_suffix(1);
      if (record.starts_with("path=")) long_name_ = record.substr(5);
      if (record.starts_with("size=")) too_large(limits_);
      if (record.starts_with("GNU.sparse.")) wrong("a sparse file");
      records.remove_prefix(static_cast<size_t>(*length));
    }
  }

  // The prefix is POSIX's: GNU's "ustar  " has times there.
  static std::string name_of(const std::string& header) {
    const std::string prefix = header[262] == '\0' ? field(header, 345, 155) : "";
    return (prefix.empty() ? "" : prefix + "/") + field(header, 0, 100);
  }

  TarBytes bytes_;
  const ArchiveLimits limits_;
  Unpacked* unpacked_;
  std::string long_name_;
};

using GzipFile = std::unique_ptr<gzFile_s, GzipClose>;

GzipFile opened(UniqueFd fd) {
  GzipFile file(gzdopen(fd.get(), "rb"));
  if (file == nullptr) throw WrongBytes(std::strerror(ENOMEM));
  (void)fd.release();
  return file;
}

// Does it hold a tar archive, by what it begins with?
bool holds_tar(gzFile_s* file) {
  std::string head(kBlock, '\0');
  const int got = gzread(file, head.data(), static_cast<unsigned>(head.size()));
  const bool tar = got == static_cast<int>(kBlock) && is_tar(head);
  return gzrewind(file) != 0 || tar;
}

bool is_named_tar(const std::string& path) {
  return path.ends_with(".tar.gz") || path.ends_with(".tgz") || path.ends_with(".tar");
}

void read_gzip_or_tar(UniqueFd fd, const std::string& path, bool packed,
                      const ArchiveLimits& limits, Unpacked* unpacked) {
  const GzipFile file = opened(std::move(fd));
  if (!packed || is_named_tar(path) || holds_tar(file.get()))
    return TarReader(file.get(), limits, unpacked).read();
  std::string name = std::filesystem::path(path).filename().string();
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  unpacked->add_alone(std::move(name), TarBytes(file.get(), limits).take_rest());
}

}  // namespace

bool is_archive(std::string_view head) {
  return is_zip(std::as_bytes(std::span(head))) || is_gzip(head) || is_tar(head);
}

Expected<std::vector<ArchivedFile>> read_archive(const std::string& path,
                                                 const ArchiveLimits& limits) {
  auto file = open_foreign_file(path, limits.bytes);
  if (!file) return file.errors();
  std::string head(static_cast<size_t>(std::min<int64_t>(file.value().bytes, 4)), '\0');
  if (!head.empty() && !read_at(file.value().fd.get(), 0, head.data(), head.size()))
    return file_error(path, "cannot be read");
  try {
    Unpacked unpacked(limits);
    if (is_zip(std::as_bytes(std::span(head)))) {
      const auto whole = read_foreign_file(path, limits.bytes);
      if (!whole) return whole.errors();
      read_zip(whole.value(), limits, &unpacked);
    } else {
      read_gzip_or_tar(std::move(file.value().fd), path, is_gzip(head), limits, &unpacked);
    }
    return unpacked.take();
  } catch (const WrongBytes& wrong) {
    return file_error(path, wrong.what(), wrong.allowed());
  }
}

}  // namespace lockstep
