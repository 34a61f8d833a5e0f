#pragma once

#include "sim/weights/unpickler.h"

namespace lockstep {

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
