#include "sim/explore/shrink.h"

#include <algorithm>

namespace lockstep {
namespace {

class Shrinker {
 public:
  Shrinker(ShrinkLab& lab, ExploreCase from, Script script)
      : lab_(lab), known_{std::move(from), std::move(script)} {}

  Shrunk shrink() {
    fewer(&ExploreCase::steps, 1);
    fewer(&ExploreCase::world_size, 2);
    fewer_parameters();
    search_again();
    fewer_decisions();
    return std::move(known_);
  }

 private:
  bool accept(const ExploreCase& tried) {
    if (lab_.is_late()) return false;
    const auto choices = lab_.search(tried);
    if (!choices) return false;
    known_ = {tried, script_of(*choices)};
    return true;
  }

  // The least value with which the failure is found.
  void fewer(int64_t ExploreCase::*number, int64_t least) {
    const int64_t now = known_.smallest.*number;
    for (int64_t value = least; value < now; ++value) {
      ExploreCase tried = known_.smallest;
      tried.*number = value;
      if (accept(tried)) return;
    }
  }

  void fewer_parameters() {
    for (size_t i = known_.smallest.parameters.size(); i > 0; --i) {
      ExploreCase tried = known_.smallest;
      if (tried.parameters.size() == 1) return;
      tried.parameters.erase(tried.parameters.begin() + static_cast<std::ptrdiff_t>(i - 1));
      accept(tried);
    }
  }

  void search_again() {
    if (lab_.is_late() || known_.script.empty()) return;
    if (const auto choices = lab_.search(known_.smallest))
      if (Script script = script_of(*choices); script.size() < known_.script.size())
        known_.script = std::move(script);
  }

  bool accept(const Script& tried) {
    if (lab_.is_late()) return false;
    const auto choices = lab_.run(known_.smallest, tried);
    if (!choices) return false;
    Script script = script_of(*choices);
    if (script.size() >= known_.script.size()) return false;
    known_.script = std::move(script);
    return true;
  }

  // Whole runs of decisions first, halves of what is left, then one by one until all are needed.
  void fewer_decisions() {
    for (size_t length = std::max<size_t>(1, known_.script.size()); length > 0;) {
      bool any = false;
      for (size_t at = 0; at < known_.script.size();) {
        Script tried = known_.script;
        const auto from = tried.begin() + static_cast<std::ptrdiff_t>(at);
        const size_t count = std::min(length, tried.size() - at);
        tried.erase(from, from + static_cast<std::ptrdiff_t>(count));
        if (accept(tried))
          any = true;
        else
          at += length;
      }
      if (lab_.is_late()) return;
      if (length == 1 && !any) return;
      length = std::max<size_t>(1, length / 2);
    }
  }

  ShrinkLab& lab_;
  Shrunk known_;
};

}  // namespace

Shrunk shrink(ShrinkLab& lab, ExploreCase from, const Script& script) {
  return Shrinker(lab, std::move(from), script).shrink();
}

}  // namespace lockstep
