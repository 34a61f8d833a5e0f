#include "scenarios/workloads/containers.h"

namespace lockstep {
namespace {

void collect(const c10::IValue& value, std::vector<at::Tensor>* found) {
  if (value.isTensor()) {
    found->push_back(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) collect(item, found);
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) collect(item, found);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) collect(entry.value(), found);
  }
}

}  // namespace

std::vector<at::Tensor> tensors_in(const c10::IValue& value) {
  std::vector<at::Tensor> found;
  collect(value, &found);
  return found;
}

}  // namespace lockstep
