#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sim/tools/compare/checkpoint.h"

namespace lockstep {

// What pickle's protocols 2 to 5 describe, as far as torch.save writes it for nested dictionaries,
// lists and tuples of tensors, numbers and texts. Values live in one table and refer to each other
// by index, so that no nesting, loop or sharing in a hostile file costs stack or time here.
struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    text,
    list,     // tuples and torch.Size too
    dict,     // OrderedDict and defaultdict too
    global,   // a name from the list in pickle_calls.cc: a class or function that is never called
    storage,  // `storage`, of `dtype`
    tensor,   // index into Pickle::tensors
    opaque,   // known to hold no number: a device, bytes, an integer of more than 64 bits
    foreign   // what only code could make, and sets, which have no order: `text` says of which name
              // ("module\nname"), `integer` at which byte, `items` from which values; nothing of it
              // is ever called
  };
  Kind kind = Kind::none;
  Dtype dtype = Dtype::uint8;
  bool untyped = false;  // of a storage: its elements are bytes
  int64_t integer = 0;   // also the truth value, and the place of a tensor
  double real = 0;
  std::string_view text;  // into the file, or into Pickle::names
  std::span<const std::byte> storage;
  std::vector<uint32_t> items;  // of a dict: key, value, key, value ...
};

struct Pickle {
  std::vector<PickleValue> values;
  std::vector<CheckpointTensor> tensors;  // without names
  std::deque<std::string> names;          // of protocol 4: "module\nname", which the file has apart
  uint32_t root = 0;
  size_t copied = 0;  // items of containers made from others: that, too, is bounded
};
inline constexpr size_t kMostPickleValues = size_t{2} << 20;

// Interprets `pickle` (data.pkl); storage "7" is `files` at `folder` + "7". Executes nothing: what
// is made by a name that is not on the list of pickle_calls.cc becomes a foreign value. A name of
// the list that is called otherwise than torch.save calls it is an error with the byte where it
// stands. Throws WrongBytes.
Pickle unpickle(std::span<const std::byte> pickle,
                const std::map<std::string, std::span<const std::byte>>& files,
                const std::string& folder);

// "argparse.Namespace", of a foreign value.
std::string foreign_type(const PickleValue& value);

// By value: may it be, or lead to, a tensor or a storage? In doubt, of a pickle that was made to be
// hard to follow, all may.
std::vector<bool> lead_to_tensors(const Pickle& pickle);

}  // namespace lockstep
