#include "sim/weights/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sim/weights/tensor.h"

namespace lockstep {

// Offsets and signatures: PKWARE's APPNOTE.TXT 6.3.10, section 4.3.
namespace {

using Bytes = std::span<const std::byte>;

template <class T>
T number(Bytes bytes, uint64_t at, const char* what) {
  if (at > bytes.size() || sizeof(T) > bytes.size() - at)
    throw WrongBytes(fmt::format("byte {}: {} leaves the file", at, what));
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

Bytes part(Bytes bytes, uint64_t at, uint64_t size, const std::string& what) {
  if (at > bytes.size() || size > bytes.size() - at)
    throw WrongBytes(fmt::format("{}: {} bytes from {} on leave the file", what, size, at));
  return bytes.subspan(at, size);
}

struct Directory {
  uint64_t entries = 0, size = 0, offset = 0;
};

// The record at the end, with a comment of up to 64 KiB behind it.
uint64_t find_end(Bytes bytes) {
  constexpr uint64_t kRecord = 22, kComment = 0xffff;
  const uint64_t size = bytes.size();
  for (uint64_t back = kRecord; back <= std::min(size, kRecord + kComment); ++back)
    if (number<uint32_t>(bytes, size - back, "end") == 0x06054b50 &&
        number<uint16_t>(bytes, size - back + 20, "comment") == back - kRecord)
      return size - back;
  throw WrongBytes("is a zip file without its end: it was cut short", "a whole file");
}

Directory directory_of(Bytes bytes) {
  const uint64_t end = find_end(bytes);
  Directory directory{number<uint16_t>(bytes, end + 10, "count"),
                      number<uint32_t>(bytes, end + 12, "size"),
                      number<uint32_t>(bytes, end + 16, "offset")};
  const bool large =
      directory.entries == 0xffff || directory.size == 0xffffffff || directory.offset == 0xffffffff;
  if (large && end >= 20 && number<uint32_t>(bytes, end - 20, "locator") == 0x07064b50) {
    const auto at = number<uint64_t>(bytes, end - 12, "zip64 offset");
    if (number<uint32_t>(bytes, at, "zip64 record") != 0x06064b50)
      throw WrongBytes(fmt::format("byte {}: no zip64 record, where the end points to", at));
    directory = {number<uint64_t>(bytes, at + 32, "count"),
                 number<uint64_t>(bytes, at + 40, "size"),
                 number<uint64_t>(bytes, at + 48, "offset")};
  }
  return directory;
}

struct ZipItem {
  std::string name;
  uint64_t local = 0, size = 0;
  uint64_t begin = 0;  // of the data
  uint16_t method = 0;
  uint32_t checksum = 0;
};

// Sizes and offset that do not fit into 32 bits stand in extra field 1, those that do are left out.
void take_large(Bytes extra, bool* size_known, uint64_t packed32, ZipItem* item) {
  for (uint64_t at = 0; at + 4 <= extra.size();) {
    const auto id = number<uint16_t>(extra, at, "extra field");
    const auto length = number<uint16_t>(extra, at + 2, "extra field");
    if (id == 1) {
      const Bytes field = part(extra, at + 4, length, "extra field of " + item->name);
      uint64_t next = 0;
      const auto take = [&](uint64_t* value) {
        *value = number<uint64_t>(field, next, "zip64 size");
        next += 8;
      };
      if (item->size == 0xffffffff) take(&item->size);
      uint64_t packed = packed32;
      if (packed == 0xffffffff) take(&packed);
      *size_known = packed == item->size;
      if (item->local == 0xffffffff) take(&item->local);
      return;
    }
    at += 4 + uint64_t{length};
  }
}

// One record of the directory; `at` moves behind it.
ZipItem item_at(Bytes bytes, uint64_t* at) {
  if (number<uint32_t>(bytes, *at, "directory") != 0x02014b50)
    throw WrongBytes(fmt::format("byte {}: no entry of the zip directory, where one belongs", *at));
  const auto flags = number<uint16_t>(bytes, *at + 8, "directory");
  const auto method = number<uint16_t>(bytes, *at + 10, "directory");
  const uint64_t packed = number<uint32_t>(bytes, *at + 20, "directory");
  ZipItem item;
  item.size = number<uint32_t>(bytes, *at + 24, "directory");
  const auto name_length = number<uint16_t>(bytes, *at + 28, "directory");
  const auto extra_length = number<uint16_t>(bytes, *at + 30, "directory");
  const auto comment_length = number<uint16_t>(bytes, *at + 32, "directory");
  item.local = number<uint32_t>(bytes, *at + 42, "directory");
  const Bytes name = part(bytes, *at + 46, name_length, "a name");
  item.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  if ((flags & 1) != 0) throw WrongBytes(fmt::format("entry {} is encrypted", item.name));
  item.method = method;
  item.checksum = number<uint32_t>(bytes, *at + 16, "directory");
  if (method != 0) item.size = packed;
  bool size_known = packed == item.size;
  take_large(part(bytes, *at + 46 + name_length, extra_length, "extra field of " + item.name),
             &size_known, packed, &item);
  if (!size_known) throw WrongBytes("entry " + item.name + " is stored, but in two sizes");
  *at += 46 + uint64_t{name_length} + extra_length + comment_length;
  return item;
}

void find_data(Bytes bytes, ZipItem* item) {
  if (number<uint32_t>(bytes, item->local, "an entry") != 0x04034b50)
    throw WrongBytes(fmt::format("byte {}: entry {} does not begin here, as the directory says",
                                 item->local, item->name));
  // Below 2^48 after the read above, so that the sum is no smaller.
  item->begin = item->local + 30 + number<uint16_t>(bytes, item->local + 26, "an entry") +
                number<uint16_t>(bytes, item->local + 28, "an entry");
  (void)part(bytes, item->begin, item->size, "entry " + item->name);
}

void check_overlap(std::vector<ZipItem> items) {
  std::sort(items.begin(), items.end(),
            [](const ZipItem& a, const ZipItem& b) { return a.local < b.local; });
  for (size_t i = 1; i < items.size(); ++i)
    if (items[i].local < items[i - 1].begin + items[i - 1].size)
      throw WrongBytes(fmt::format("entries {} and {} overlap", items[i - 1].name, items[i].name));
}

}  // namespace

bool is_zip(Bytes bytes) {
  return bytes.size() >= 4 && (number<uint32_t>(bytes, 0, "magic") == 0x04034b50 ||
                               number<uint32_t>(bytes, 0, "magic") == 0x06054b50);
}

ZipEntries zip_entries(Bytes bytes) {
  const Directory directory = directory_of(bytes);
  (void)part(bytes, directory.offset, directory.size, "the zip directory");
  std::vector<ZipItem> items;
  uint64_t at = directory.offset;
  for (uint64_t i = 0; i < directory.entries; ++i) {  // ends with the file at the latest
    items.push_back(item_at(bytes, &at));
    find_data(bytes, &items.back());
  }
  check_overlap(items);
  ZipEntries entries;
  for (const ZipItem& item : items) {
    if (!entries.bytes.emplace(item.name, bytes.subspan(item.begin, item.size)).second)
      throw WrongBytes(fmt::format("has two entries named {}", item.name));
    entries.checksums[item.name] = item.checksum;
    if (item.method != 0) entries.packed[item.name] = item.method;
  }
  return entries;
}

}  // namespace lockstep
