#include <fmt/format.h>

#include <cmath>

#include "sim/judge/rank_view.h"
#include "sim/tools/program/drill.h"
#include "sim/tools/program/judge.h"

namespace lockstep {
namespace {

std::string words_of(const DrillPlace& place) {
  std::string text = place.function;
  if (!place.kind.empty())
    text += place.module.empty() ? fmt::format(" in {}", place.kind)
                                 : fmt::format(" in module {} ({})", place.module, place.kind);
  return text;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  if (shape.empty()) return "scalar";
  std::string text;
  for (const int64_t size : shape) text += fmt::format("{}{}", text.empty() ? "" : ", ", size);
  return "[" + text + "]";
}

std::string difference_of(const DrillFinding& found) {
  if (found.ratio && std::abs(*found.ratio - 1) > kProgramRatioBound)
    return fmt::format(
        "is {:.6g} times {}", *found.ratio,
        found.stage == DrillStage::backward ? "the correct value" : "that of one device");
  if (found.distance) return fmt::format("differs by {:.2g} of its norm", *found.distance);
  return found.shape == found.one_shape
             ? "is not on every rank"
             : fmt::format("is {} on one device: it is not computed row by row",
                           shape_text(found.one_shape));
}

std::string at_line(const std::string& line) { return line.empty() ? "" : ", at " + line; }

// Of the same function at the same place, though for another operator, there is nothing to say.
std::string parting_text(const DrillParting& parting, const std::string& begin) {
  const auto side = [](const DrillPlace& place) {
    return place.function.empty() ? "no such operator" : words_of(place) + at_line(place.line);
  };
  const std::string ranks = side(parting.ranks), one = side(parting.one);
  return ranks == one ? "" : fmt::format("{}ranks call {}; one device calls {}", begin, ranks, one);
}

std::string parted_text(const DrillFinding& found) {
  return found.parting ? parting_text(*found.parting, "; the calls diverge before that: ") : "";
}

std::string backward_sentence(const DrillFinding& found) {
  const std::string what = found.consumers == 0
                               ? "the gradient of its output"
                               : "the gradient it passes back to " + words_of(found.input);
  const std::string others =
      found.consumers > 1
          ? fmt::format(" (or another of the {} operators that were given it)", found.consumers)
          : "";
  return fmt::format("first operator outside the bound: {}, backward{}{}: {}, {}, {}{}",
                     words_of(found.place), at_line(found.place.line), others, what,
                     shape_text(found.shape), difference_of(found), parted_text(found));
}

}  // namespace

const char* name_of(DrillStage stage) {
  constexpr const char* kNames[] = {"not_drilled",    "nothing",   "start",
                                    "calls",          "forward",   "backward",
                                    "local_gradient", "reduction", "update"};
  return kNames[static_cast<size_t>(stage)];
}

std::string sentence_of(const DrillFinding& found) {
  switch (found.stage) {
    case DrillStage::not_drilled:
      return "not drilled: " + found.words;
    case DrillStage::nothing:
      return "no operator is beyond the bound";
    case DrillStage::start:
      return fmt::format(
          "the step starts from different weights than on one device: {} of {} differs by {:.2g} "
          "of "
          "its "
          "norm before any operator used it",
          found.parameter, ranks_text(found.ranks), *found.distance);
    case DrillStage::calls:
      return "every operator that both call fits, but their calls diverge" +
             parting_text(*found.parting, ": ");
    case DrillStage::forward:
      return fmt::format("first operator outside the bound: {}, forward{}: output {} {}{}",
                         words_of(found.place), at_line(found.place.line), shape_text(found.shape),
                         difference_of(found), parted_text(found));
    case DrillStage::backward:
      return backward_sentence(found);
    case DrillStage::local_gradient:
      return fmt::format(
          "every operator fits, but the ranks' gradients of {} do not, before any reduction: their "
          "sum {}",
          found.parameter, difference_of(found));
    case DrillStage::reduction:
      return fmt::format(
          "every operator fits, and so does each rank's gradient; between backward and the update "
          "the gradient of {} {}",
          found.parameter, difference_of(found));
    case DrillStage::update:
      return fmt::format("every operator and gradient fits; the update of {} {}", found.parameter,
                         difference_of(found));
  }
  return "";
}

}  // namespace lockstep
