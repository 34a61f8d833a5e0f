#include <fmt/format.h>

#include <algorithm>

#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class EmulatedCheck : PartCheck {
 public:
  EmulatedCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    const auto manifest = manifest_of(s_.model, s_.dtype);
    if (!manifest)
      return refuse(true, fmt::format("the layers of model {} are not known", s_.model.kind),
                    "a shipped model");
    const auto& parameters = manifest->parameters;
    refuse(std::any_of(parameters.begin(), parameters.end(),
                       [](const TensorSpec& parameter) { return parameter.sparse_gradient; }),
           "emulated gradients are dense, and the model has a sparse one", "/model/sparse false");
    const Options& model = s_.model.options;
    const std::string norm = model.has("norm") ? model.text("norm") : "";
    refuse(norm == "sync" || norm == "sync_equal",
           fmt::format("norm {} asks all ranks in every layer, which no timer does", norm),
           "another /model/norm");
    const std::string unused = model.has("unused") ? model.text("unused") : "none";
    refuse(unused != "none", "emulated layers use all parameters", "/model/unused \"none\"");
    refuse(s_.reducer.kind == "data_parallel",
           "replicas that are threads of one rank have no timers of their own",
           "another /reducer/kind");
    refuse(asks_for(s_, "exact"), "lane exact judges arithmetic that does not round",
           "/lanes without \"exact\"");
    refuse(s_.golden.has_value(), "a stored golden holds what computed gradients lead to",
           "no /golden");
    refuse(s_.loss.options.has("published"), "published losses are those of computed gradients",
           "no /loss/published");
  }

 private:
  void refuse(bool bad, std::string why, const std::string& allowed) {
    need(!bad, "/compute/kind", std::move(why), fmt::format("\"real\", or {}", allowed));
  }
};

}  // namespace

void check_emulated(const Scenario& scenario, InputErrors* errors) {
  EmulatedCheck(scenario, errors).run();
}

}  // namespace lockstep
