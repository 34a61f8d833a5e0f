#include "sim/weights/comparison.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace lockstep {
namespace {

constexpr std::string_view kModule = "module.";

// "model/module.fc.weight" -> "model/fc.weight"
std::string without_module(const std::string& name) {
  const size_t slash = name.rfind('/');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  if (name.compare(begin, kModule.size(), kModule) != 0) return name;
  return name.substr(0, begin) + name.substr(begin + kModule.size());
}

using IndexByName = std::map<std::string, size_t, std::less<>>;

// The places of b's tensors by name.
IndexByName places_of(const Checkpoint& b) {
  IndexByName places;
  for (size_t i = 0; i < b.tensors.size(); ++i) places[b.tensors[i].name] = i;
  return places;
}

// For each of a's tensors its partner in b. First by name; of those that are left, without DDP's
// prefix on one side.
class Partners {
 public:
  Partners(const Checkpoint& a, const Checkpoint& b) : of_a_(a.tensors.size(), kNone) {
    const IndexByName places = places_of(b);
    taken_.resize(b.tensors.size());
    for (size_t i = 0; i < a.tensors.size(); ++i) match(i, places.find(a.tensors[i].name), places);
    IndexByName bare;  // of b's names that begin with the prefix
    for (size_t i = 0; i < b.tensors.size(); ++i)
      if (!taken_[i]) bare.emplace(without_module(b.tensors[i].name), i);
    for (size_t i = 0; i < a.tensors.size(); ++i) {
      if (of_a_[i] != kNone) continue;
      const std::string& name = a.tensors[i].name;
      if (match(i, bare.find(name), bare))
        ++module_in_b;
      else if (const std::string less = without_module(name);
               less != name && match(i, places.find(less), places))
        ++module_in_a;
    }
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);
  size_t of_a(size_t i) const { return of_a_[i]; }
  bool taken(size_t i) const { return taken_[i]; }
  int64_t module_in_a = 0, module_in_b = 0;

 private:
  bool match(size_t i, IndexByName::const_iterator found, const IndexByName& places) {
    if (found == places.end() || taken_[found->second]) return false;
    of_a_[i] = found->second;
    taken_[found->second] = true;
    return true;
  }

  std::vector<size_t> of_a_;
  std::vector<bool> taken_;
};

using Outcome = TensorComparison::Outcome;

TensorComparison compare_pair(const CheckpointTensor& a, const CheckpointTensor& b,
                              const Tolerance& tolerance) {
  TensorComparison made{Outcome::equal, a.name, a, b, std::nullopt};
  if (a.shape != b.shape) {
    made.outcome = Outcome::other_shape;
  } else if (a.dtype != b.dtype) {
    made.outcome = Outcome::other_dtype;
  } else if (const auto difference = compare_tensors(a, b, tolerance)) {
    made.difference = difference;
    made.outcome = difference->disagreeing > 0 ? Outcome::different : Outcome::close;
  }
  // What is kept of a comparison must not refer to files that are closed.
  made.a->first = made.b->first = nullptr;
  return made;
}

}  // namespace

bool CheckpointComparison::agrees() const {
  return std::all_of(tensors.begin(), tensors.end(),
                     [](const TensorComparison& tensor) { return tensor.agrees(); });
}

CheckpointComparison compare_checkpoints(const Checkpoint& a, const Checkpoint& b,
                                         const Tolerance& tolerance) {
  const Partners partners(a, b);
  CheckpointComparison made;
  made.module_in_a = partners.module_in_a;
  made.module_in_b = partners.module_in_b;
  made.skipped_in_a = a.skipped;
  made.skipped_in_b = b.skipped;
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const CheckpointTensor& tensor = a.tensors[i];
    if (partners.of_a(i) == Partners::kNone) {
      made.tensors.push_back({Outcome::only_a, tensor.name, tensor, std::nullopt, std::nullopt});
      continue;
    }
    made.tensors.push_back(compare_pair(tensor, b.tensors[partners.of_a(i)], tolerance));
    const Outcome outcome = made.tensors.back().outcome;
    if (outcome != Outcome::other_shape && outcome != Outcome::other_dtype)
      made.elements += tensor.numel();
  }
  for (size_t i = 0; i < b.tensors.size(); ++i)
    if (!partners.taken(i))
      made.tensors.push_back(
          {Outcome::only_b, b.tensors[i].name, std::nullopt, b.tensors[i], std::nullopt});
  return made;
}

}  // namespace lockstep
