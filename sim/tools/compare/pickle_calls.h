#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "sim/tools/compare/unpickler.h"
#include "sim/weights/tensor.h"

namespace lockstep {

// The bytes of a pickle, one after the other; throws WrongBytes where there are no more.
class CodeReader {
 public:
  static constexpr size_t kMostName = 200;  // characters of a module's or class's

  explicit CodeReader(std::span<const std::byte> code) : code_(code) {}

  size_t size() const { return code_.size(); }
  size_t at() const { return at_; }
  size_t left() const { return code_.size() - at_; }
  std::string_view chars(size_t at, size_t size) const {
    return {reinterpret_cast<const char*>(code_.data()) + at, size};
  }
  template <class T>
  T take() {
    T number;
    std::memcpy(&number, take_text(sizeof number).data(), sizeof number);
    return number;
  }
  std::string_view take_text(size_t size) {
    if (size > code_.size() - at_) throw WrongBytes("cut short");
    at_ += size;
    return chars(at_ - size, size);
  }
  std::string_view take_line() {
    const std::string_view rest = chars(at_, code_.size() - at_).substr(0, kMostName);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) throw WrongBytes("a name without an end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

 private:
  std::span<const std::byte> code_;
  size_t at_ = 0;
};

// What torch.save's pickles refer to by name, and what it would make: here plain values.

struct StorageFiles {
  const std::map<std::string, std::span<const std::byte>>& files;
  const std::string& folder;
};

// The names by which sets are shown: their items have no order, so that they are not compared.
inline constexpr std::string_view kSetName = "builtins\nset",
                                  kFrozenSetName = "builtins\nfrozenset";

bool is_known_global(std::string_view module, std::string_view name);

// Of a name that is not known: PyTorch makes a tensor, or a storage, by it.
bool makes_a_tensor(std::string_view global);

// ('storage', torch.FloatStorage, '0', 'cpu', 6), a persistent id.
PickleValue storage_of(const Pickle& pickle, const PickleValue& id, const StorageFiles& files);

// What a call of the global with that text ("module\nname") would return.
PickleValue called(Pickle* pickle, std::string_view global, const PickleValue& arguments);

}  // namespace lockstep
