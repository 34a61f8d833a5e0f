#include <fmt/format.h>

#include "scenarios/base/part.h"
#include "sim/plan/part_check.h"
#include "sim/plan/rules.h"

namespace lockstep {
namespace {

class RegisteredCheck : PartCheck {
 public:
  RegisteredCheck(const Scenario& scenario, InputErrors* errors) : PartCheck(scenario, errors) {}

  void run() {
    if (s_.reducer.kind == "registered")
      need(s_.reducer.options.has("name"), "/reducer/name",
           "missing key \"name\" in /reducer of kind \"registered\"",
           "the name under which the reducer is registered");
    else
      shipped_reducer();
    need(s_.data.kind != "registered" || s_.split.kind != "manual" || s_.world_size == 1,
         "/split/kind",
         "rank 0 alone would draw the data, and what a sample of a registered set looks like is "
         "not known to the others",
         "\"distributed\" or another split by which every rank takes its own");
  }

 private:
  void shipped_reducer() {
    const Options& options = s_.reducer.options;
    const auto only = [&](bool good, const char* key) {
      need(good, std::string("/reducer/") + key,
           fmt::format("reducer \"{}\" has no {}", s_.reducer.kind, key), "kind \"registered\"");
    };
    only(!options.has("name"), "name");
    only(options.text("same_bits_as") == "none", "same_bits_as");
    only(own_options(options).all().empty(), "options");
  }
};

}  // namespace

void check_registered(const Scenario& scenario, InputErrors* errors) {
  RegisteredCheck(scenario, errors).run();
}

}  // namespace lockstep
