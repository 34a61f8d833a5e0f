#include <algorithm>
#include <string>
#include <vector>

#include "sim/weights/pickle_calls.h"
#include "sim/weights/unpickler.h"

namespace lockstep {
namespace {

using Kind = PickleValue::Kind;

}  // namespace

std::string foreign_type(const PickleValue& value) {
  std::string name(value.text);
  std::replace(name.begin(), name.end(), '\n', '.');
  return name;
}

std::vector<bool> lead_to_tensors(const Pickle& pickle) {
  constexpr int kMostPasses = 64;
  std::vector<bool> leads(pickle.values.size());
  bool changed = true;
  for (int pass = 0; changed && pass < kMostPasses; ++pass) {
    changed = false;
    for (size_t i = 0; i < leads.size(); ++i) {
      if (leads[i]) continue;
      const PickleValue& value = pickle.values[i];
      leads[i] = value.kind == Kind::tensor || value.kind == Kind::storage ||
                 (value.kind == Kind::foreign && makes_a_tensor(value.text)) ||
                 std::any_of(value.items.begin(), value.items.end(),
                             [&](uint32_t item) { return leads[item]; });
      changed = changed || leads[i];
    }
  }
  if (changed) leads.assign(leads.size(), true);
  return leads;
}

}  // namespace lockstep
