#include "sim/fault/gradient_mutants.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "sim/fault/damage.h"

namespace lockstep {
namespace {

constexpr const char* kGradientPlace = "gradient";

bool is_of(const MutantSpec& mutant, int64_t rank, const std::string& parameter) {
  return operation_at(mutant.kind, kGradientPlace) && mutant.rank.value_or(rank) == rank &&
         mutant.tensor.value_or(parameter) == parameter;
}

}  // namespace

GradientMutants::GradientMutants(const Scenario& scenario, int64_t rank, Recorder& recorder)
    : scenario_(scenario), rank_(rank), recorder_(recorder) {}

bool GradientMutants::wants(const std::string& parameter) const {
  for (const MutantSpec& mutant : scenario_.mutants)
    if (is_of(mutant, rank_, parameter)) return true;
  return false;
}

void GradientMutants::watch(const Training& training) {
  hooks_.forget();
  for (const NamedTensor& named : training.parameters) {
    if (!named.tensor.requires_grad() || !wants(named.name)) continue;
    hooks_.add(named.tensor,
               [this, name = named.name, last = std::make_shared<at::Tensor>()](
                   const at::Tensor& gradient) { return seen(name, gradient, last.get()); });
  }
}

at::Tensor GradientMutants::seen(const std::string& parameter, const at::Tensor& gradient,
                                 at::Tensor* last) {
  const c10::NoGradGuard no_grad;
  at::Tensor changed;
  for (size_t i = 0; i < scenario_.mutants.size(); ++i) {
    const MutantSpec& mutant = scenario_.mutants[i];
    if (!is_of(mutant, rank_, parameter) ||
        mutant.step.value_or(recorder_.step()) != recorder_.step())
      continue;
    if (!changed.defined())
      changed = gradient.is_sparse() ? gradient.clone() : gradient.contiguous().clone();
    if (damage(*operation_at(mutant.kind, kGradientPlace), mutant, *last, changed))
      recorder_.append(EventKind::receipt, static_cast<int32_t>(i));
  }
  if (!gradient.is_sparse()) *last = gradient.contiguous().clone();
  return changed.defined() ? changed : gradient;
}

}  // namespace lockstep
