#include "sim/tools/compare/torch_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sim/tools/compare/checkpoint.h"
#include "sim/tools/compare/unpickler.h"
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
  throw WrongBytes("is a zip file without its end: it was cut short", "a whole file of torch.save");
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
  bool compressed = false;
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
  item.compressed = method != 0;
  if (item.compressed) item.size = packed;
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
    if (item.compressed && entries.compressed.empty()) entries.compressed = item.name;
  }
  return entries;
}

namespace {

using Kind = PickleValue::Kind;
using Entries = std::map<std::string, std::span<const std::byte>>;

// Values may be shared, and contain themselves: names grow by depth and by number.
constexpr size_t kMostDepth = 32;
constexpr size_t kMostNames = size_t{1} << 20;
constexpr size_t kMostNameBytes = size_t{64} << 20;

// Gives each value the path of keys that leads to it.
class Names {
 public:
  Names(const Pickle& pickle, Checkpoint* checkpoint)
      : pickle_(pickle), found_(&checkpoint->tensors), skipped_(&checkpoint->skipped) {}

  // Plain numbers, in the order of tensors without a place.
  std::vector<std::byte> numbers() { return std::move(numbers_); }

  void visit(uint32_t index, const std::string& name, size_t depth) {
    const PickleValue& value = pickle_.values[index];
    bytes_ += name.size();
    if (depth > kMostDepth || ++visited_ > kMostNames || bytes_ > kMostNameBytes)
      throw WrongBytes("data.pkl: dictionaries in dictionaries that do not end, or nearly so",
                       "a depth of at most 32, 1048576 values, 64 MiB of names");
    switch (value.kind) {
      case Kind::tensor:
        found_->push_back(pickle_.tensors[static_cast<size_t>(value.integer)]);
        found_->back().name = name;
        break;
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        add_number(value, name);
        break;
      case Kind::list:
        for (size_t i = 0; i < value.items.size(); ++i)
          visit(value.items[i], joined(name, std::to_string(i)), depth + 1);
        break;
      case Kind::dict:
        for (size_t i = 0; i + 1 < value.items.size(); i += 2) {
          if (pickle_.values[value.items[i]].kind == Kind::foreign)
            skip(value.items[i], value.items[i + 1], joined(name, "(a key)"));
          else
            visit(value.items[i + 1], joined(name, key_of(value.items[i])), depth + 1);
        }
        break;
      case Kind::foreign:
        if (depth == 0) refuse(value);
        skip(index, index, name);
        break;
      default:
        break;
    }
  }

 private:
  static std::string joined(const std::string& name, const std::string& key) {
    return name.empty() ? key : name + "/" + key;
  }

  [[noreturn]] static void refuse(const PickleValue& value) {
    throw WrongBytes(
        fmt::format("data.pkl, byte {}: needs {}, and lockstep executes nothing in a file",
                    value.integer, foreign_type(value)),
        "tensors, numbers and texts in dictionaries, lists and tuples: save state_dict()");
  }

  // A foreign value; of a dictionary that has one as a key, also what stands below it.
  void skip(uint32_t foreign, uint32_t below, const std::string& name) {
    if (leads_.empty()) leads_ = lead_to_tensors(pickle_);
    const PickleValue& value = pickle_.values[foreign];
    skipped_->push_back(
        {name, foreign_type(value), leads_[foreign] || leads_[below], value.integer});
  }

  std::string key_of(uint32_t index) const {
    const PickleValue& key = pickle_.values[index];
    switch (key.kind) {
      case Kind::text:
        return std::string(key.text);
      case Kind::integer:
        return std::to_string(key.integer);
      case Kind::boolean:
        return key.integer != 0 ? "True" : "False";
      case Kind::real:
        return fmt::format("{}", key.real);
      case Kind::none:
        return "None";
      case Kind::list:  // a tuple
        return fmt::format("tuple {}", index);
      default:
        throw WrongBytes("data.pkl: a dictionary with a key that is neither text nor number");
    }
  }

  void add_number(const PickleValue& value, const std::string& name) {
    CheckpointTensor number;
    number.name = name;
    std::byte bytes[8] = {};
    if (value.kind == Kind::boolean) {
      number.dtype = Dtype::boolean;
      bytes[0] = static_cast<std::byte>(value.integer);
    } else if (value.kind == Kind::integer) {
      number.dtype = Dtype::int64;
      std::memcpy(bytes, &value.integer, sizeof bytes);
    } else {
      number.dtype = Dtype::float64;
      std::memcpy(bytes, &value.real, sizeof bytes);
    }
    numbers_.insert(numbers_.end(), bytes, bytes + sizeof bytes);
    found_->push_back(std::move(number));
  }

  const Pickle& pickle_;
  std::vector<CheckpointTensor>* found_;
  std::vector<SkippedValue>* skipped_;
  std::vector<bool> leads_;  // once it is needed
  std::vector<std::byte> numbers_;
  size_t visited_ = 0, bytes_ = 0;
};

// "archive/" of "archive/data.pkl".
std::string folder_of(const Entries& entries) {
  constexpr std::string_view kPickle = "data.pkl";
  std::string folder;
  int64_t found = 0;
  for (const auto& [name, bytes] : entries) {
    if (!name.ends_with(kPickle)) continue;
    const std::string before = name.substr(0, name.size() - kPickle.size());
    if (before.empty() || before.find('/') != before.size() - 1) continue;
    folder = before;
    ++found;
  }
  if (found != 1)
    throw WrongBytes(fmt::format("is a zip file with {} entries NAME/data.pkl", found),
                     "one, as torch.save writes it");
  return folder;
}

void check_kind(const Entries& entries, const std::string& folder) {
  if (entries.contains(folder + "constants.pkl"))
    throw WrongBytes("is a TorchScript module, whose weights are part of its code",
                     "what torch.save(module.state_dict(), FILE) writes");
  const auto order = entries.find(folder + "byteorder");
  if (order == entries.end()) return;
  const auto bytes = order->second;
  if (bytes.size() != 6 || std::memcmp(bytes.data(), "little", 6) != 0)
    throw WrongBytes("was written on a machine of another byte order", "little");
}

}  // namespace

void read_torch(std::span<const std::byte> bytes, Checkpoint* checkpoint) {
  const ZipEntries archive = zip_entries(bytes);
  const Entries& entries = archive.bytes;
  const std::string folder = folder_of(entries);
  check_kind(entries, folder);
  if (!archive.compressed.empty())
    throw WrongBytes(fmt::format("entry {} is compressed", archive.compressed),
                     "entries stored as they are, as torch.save writes them");
  const Pickle pickle = unpickle(entries.at(folder + "data.pkl"), entries, folder + "data/");
  Names names(pickle, checkpoint);
  names.visit(pickle.root, "", 0);
  const auto numbers = std::make_shared<const std::vector<std::byte>>(names.numbers());
  size_t at = 0;
  for (CheckpointTensor& tensor : checkpoint->tensors)
    if (tensor.first == nullptr) {
      tensor.first = numbers->data() + at;
      at += 8;
    }
  checkpoint->values = numbers;
  checkpoint->format = "torch";
}

}  // namespace lockstep
