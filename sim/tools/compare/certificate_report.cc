#include "sim/tools/compare/certificate_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <vector>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

struct MeanWords {
  MeanBy by;
  const char* name;
  const char* words;
};
constexpr MeanWords kMeans[] = {
    {MeanBy::sum, "sum", "does not divide"},
    {MeanBy::multiplied_before, "multiplied_before", "multiplies by 1/W before it adds"},
    {MeanBy::divided_before, "divided_before", "divides by W before it adds"},
    {MeanBy::divided_after, "divided_after", "divides the sum by W"},
    {MeanBy::multiplied_after, "multiplied_after", "multiplies the sum by 1/W"},
};

std::string means_text(uint32_t means) {
  if (means == 0) return "does not divide all in one way";
  std::string text;
  for (const MeanWords& mean : kMeans)
    if ((means & bit_of(mean.by)) != 0)
      text += (text.empty() ? "" : ", or ") + std::string(mean.words);
  return text;
}

Json means_json(uint32_t means) {
  Json names = Json::array();
  for (const MeanWords& mean : kMeans)
    if ((means & bit_of(mean.by)) != 0) names.push_back(mean.name);
  return names;
}

std::string rates_text(const Certificate& found) {
  if (found.rate_a == found.rate_b) return "";
  return fmt::format(": the learning rate is {:.9g} in A and {:.9g} in B", found.rate_a,
                     found.rate_b);
}

std::string difference_text(const Certificate& found) {
  const GradientPlace& at = found.place;
  const std::string name = printable(at.name);
  switch (found.difference) {
    case RunDifference::none:
      return "";
    case RunDifference::parameters:
      return fmt::format("the two runs train other parameters: {}", name);
    case RunDifference::start:
      return fmt::format("the two runs start from different weights: {}", name);
    case RunDifference::local_gradient:
      return fmt::format(
          "step {}: the local gradient of {} on rank {} differs before anything is added: element "
          "{} is {:.9g} in A and {:.9g} in B; {:.2g} of its norm apart",
          at.step, name, at.rank, at.element, at.a, at.b, found.distance);
    case RunDifference::missing_gradient:
      return fmt::format("step {}: the optimizer has a gradient of {} in one run alone", at.step,
                         name);
    case RunDifference::reduction:
      return fmt::format(
          "step {}: no order of addition of the ranks' gradients of {} gives both element {} of A, "
          "{:.9g}, and of B, {:.9g}",
          at.step, name, at.element, at.a, at.b);
    case RunDifference::clipping:
      if (found.a_clips != found.b_clips)
        return fmt::format("step {}: {} clips its gradients, and {} does not", at.step,
                           found.a_clips ? "A" : "B", found.a_clips ? "B" : "A");
      return fmt::format(
          "step {}: clipped, the gradient of {} is another one, {:.2g} of its norm apart", at.step,
          name, found.distance);
    case RunDifference::update:
      return fmt::format(
          "step {}: given the same gradients, the optimizer updates {} differently{}", at.step,
          name, rates_text(found));
    case RunDifference::replicas:
      return fmt::format("step {}: after it rank {} of {} holds another {} than rank 0", at.step,
                         at.rank, found.in_a ? "A" : "B", name);
  }
  return "";
}

std::string gap_text(const Certificate& found) {
  const GradientPlace& at = found.place;
  const std::string name = printable(at.name);
  switch (found.gap) {
    case CertificateGap::none:
      return "";
    case CertificateGap::other_world:
      return "A and B have different numbers of ranks, so that no rank's gradient in one is one in "
             "the other; lockstep verify compares each with one device";
    case CertificateGap::weights_apart:
      return fmt::format(
          "after step {} the weights differ by what the order of addition made, and later steps "
          "start from these; record B with --follow A to compare them all",
          at.step);
    case CertificateGap::local_rounding:
      return fmt::format(
          "step {}: the local gradient of {} on rank {} differs by {:.2g} of its norm before "
          "anything is added: its backward rounds otherwise (other threads, kernels or memory "
          "layout)",
          at.step, name, at.rank, found.distance);
    case CertificateGap::several_backwards:
      return fmt::format(
          "step {}: element {} of {} is accumulated over several backwards, and their sums were "
          "not recorded one by one",
          at.step, at.element, name);
    case CertificateGap::many_ranks:
      return fmt::format(
          "step {}: no ring or butterfly explains element {} of {}; every order is tried up to {} "
          "ranks",
          at.step, at.element, name, kEveryOrderRanks);
    case CertificateGap::stopped:
      return fmt::format("nothing is recorded after step {}: {}", at.step,
                         printable(found.stopped));
    case CertificateGap::not_ended:
      return fmt::format("a recording broke off; step {} is the last that both hold", found.steps);
    case CertificateGap::other_length:
      return fmt::format("one run has more steps than {}", found.steps);
    case CertificateGap::no_control:
      return "no control could fail: every element that differs is explained whatever is added";
  }
  return "";
}

std::string details(const Certificate& found) {
  std::string text =
      fmt::format("{} {}, {} {} compared{}\n", found.world, plural(found.world, "rank"),
                  grouped(found.steps), plural(found.steps, "step"),
                  found.a_follows   ? "; A follows B"
                  : found.b_follows ? "; B follows A"
                                    : "");
  if (found.first)
    text += fmt::format(
        "  reduced gradients  {} of {} elements differ, first in step {}: {}, element {}\n      A  "
        "{:.9g}\n      B  {:.9g}\n",
        grouped(found.differing), grouped(found.elements), found.first->step,
        printable(found.first->name), found.first->element, found.first->a, found.first->b);
  if (found.differing > 0 && found.difference != RunDifference::reduction)
    text += fmt::format(
        "  explained by the order of addition, element for element; {}\n      A  {}\n      B  {}\n",
        found.control_failed ? "control failed, as it must" : "no control",
        means_text(found.means_a), means_text(found.means_b));
  if (found.clipping > 0)
    text +=
        fmt::format("  clipping  rounds its norm otherwise: {:.2g} of a gradient's norm apart\n",
                    found.clipping);
  return text;
}

std::string answer(const Certificate& found, const Style& style) {
  const std::string verdict = style.verdict(found.verdict);
  const int code = exit_code_of(found.verdict);
  if (found.verdict == Verdict::pass)
    return fmt::format("{}: the runs {}; exit {}\n", verdict,
                       found.differing > 0
                           ? "differ in nothing but the order in which gradients are added"
                           : "are the same, bit for bit",
                       code);
  return fmt::format("{}: {}; exit {}\n", verdict,
                     found.verdict == Verdict::fail ? difference_text(found) : gap_text(found),
                     code);
}

Json place_json(const GradientPlace& at) {
  return {{"step", at.step},       {"rank", at.rank},        {"parameter", or_null(at.name)},
          {"element", at.element}, {"a", number_json(at.a)}, {"b", number_json(at.b)}};
}

}  // namespace

std::string certificate_text(const Certificate& certificate, const std::string& a,
                             const std::string& b, bool quiet, const Style& style) {
  if (quiet) return answer(certificate, style);
  return fmt::format("lockstep {} ({})\n\nA {}\nB {}\n", lockstep_version(), lockstep_commit(),
                     printable(a), printable(b)) +
         details(certificate) + "\n" + answer(certificate, style);
}

nlohmann::ordered_json as_json(const Certificate& certificate, const std::string& a,
                               const std::string& b) {
  const bool placed =
      certificate.difference != RunDifference::none || certificate.gap != CertificateGap::none;
  Json gradients = {
      {"world_size", certificate.world},
      {"steps", certificate.steps},
      {"elements", certificate.elements},
      {"explained", certificate.differing},
      {"first", certificate.first ? place_json(*certificate.first) : Json(nullptr)},
      {"means_a", certificate.differing > 0 ? means_json(certificate.means_a) : Json(nullptr)},
      {"means_b", certificate.differing > 0 ? means_json(certificate.means_b) : Json(nullptr)},
      {"follows", certificate.a_follows   ? Json("A")
                  : certificate.b_follows ? Json("B")
                                          : Json(nullptr)},
      {"clipping", number_json(certificate.clipping)},
      {"control_failed", certificate.control_failed},
      {"difference", name_of(certificate.difference)},
      {"gap", name_of(certificate.gap)},
      {"place", placed ? place_json(certificate.place) : Json(nullptr)},
      {"text",
       placed ? Json(difference_text(certificate) + gap_text(certificate)) : Json(nullptr)}};
  return with_head({{"verdict", certificate.verdict},
                    {"exit_code", exit_code_of(certificate.verdict)},
                    {"a", a},
                    {"b", b},
                    {"gradients", std::move(gradients)}});
}

}  // namespace lockstep
