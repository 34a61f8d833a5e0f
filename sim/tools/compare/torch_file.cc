#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "sim/tools/compare/checkpoint.h"
#include "sim/tools/compare/unpickler.h"
#include "sim/weights/tensor.h"
#include "sim/weights/zip.h"

namespace lockstep {
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
  if (!archive.packed.empty())
    throw WrongBytes(fmt::format("entry {} is compressed", archive.packed.begin()->first),
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
