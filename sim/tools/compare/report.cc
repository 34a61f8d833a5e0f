#include "sim/tools/compare/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

#include "golden/compare.h"
#include "scenarios/json/json_text.h"
#include "sim/record/evidence.h"
#include "sim/report/document.h"
#include "sim/report/machine.h"
#include "sim/report/text_style.h"
#include "sim/tools/compare/recorded_report.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

Json ulp_json(uint64_t ulp) { return ulp == kNoUlp ? Json(nullptr) : Json(ulp); }

Json side_json(const std::optional<CheckpointTensor>& tensor) {
  if (!tensor) return nullptr;
  return {{"name", tensor->name}, {"dtype", to_word(tensor->dtype)}, {"shape", tensor->shape}};
}

Json difference_json(const TensorComparison& tensor) {
  if (!tensor.difference) return nullptr;
  const TensorDifference& d = *tensor.difference;
  const int64_t width = bytes_of(tensor.a->dtype) / (is_complex(tensor.a->dtype) ? 2 : 1);
  Json json = {{"differing", d.differing},
               {"beyond_tolerance", d.disagreeing},
               {"numel", tensor.a->numel()},
               {"max_ulp", ulp_json(d.max_ulp)},
               {"largest_error", number_json(d.largest_error)},
               {"relative_error", number_json(d.relative_error())},
               {"first", nullptr}};
  if (d.disagreeing > 0)
    json["first"] = {{"element", element_index(d.element, tensor.a->shape)},
                     {"a_value", number_json(d.a_value)},
                     {"b_value", number_json(d.b_value)},
                     {"a_bits", bits_text(d.a_bits, width)},
                     {"b_bits", bits_text(d.b_bits, width)},
                     {"ulp", ulp_json(d.ulp)}};
  return json;
}

Json skipped_json(const CheckpointComparison& comparison) {
  Json json = Json::array();
  for (const auto& [side, values] :
       {std::pair{"A", &comparison.skipped_in_a}, {"B", &comparison.skipped_in_b}})
    for (const SkippedValue& value : *values)
      json.push_back({{"side", side}, {"name", value.name}, {"type", value.type}});
  return json;
}

Verdict file_verdict(const CompareDocument::File& file) {
  return file.agrees() ? Verdict::pass : Verdict::fail;
}

Json file_json(const CompareDocument::File& file) {
  const CheckpointComparison& comparison = file.comparison;
  Json tensors = Json::array();
  int64_t equal = 0;
  for (const TensorComparison& tensor : comparison.tensors) {
    if (tensor.outcome == TensorComparison::Outcome::equal) {
      ++equal;
      continue;
    }
    tensors.push_back({{"name", tensor.name},
                       {"outcome", to_word(tensor.outcome)},
                       {"a", side_json(tensor.a)},
                       {"b", side_json(tensor.b)},
                       {"difference", difference_json(tensor)}});
  }
  return {{"name", file.pair.name},
          {"a", or_null(file.pair.a)},
          {"b", or_null(file.pair.b)},
          {"a_format", or_null(file.a_format)},
          {"b_format", or_null(file.b_format)},
          {"verdict", file_verdict(file)},
          {"equal", equal},
          {"elements", comparison.elements},
          {"not_compared", skipped_json(comparison)},
          {"module_prefix_in_a", comparison.module_in_a},
          {"module_prefix_in_b", comparison.module_in_b},
          {"tensors", std::move(tensors)}};
}

}  // namespace

const char* to_word(TensorComparison::Outcome outcome) {
  switch (outcome) {
    case TensorComparison::Outcome::equal:
      return "equal";
    case TensorComparison::Outcome::close:
      return "close";
    case TensorComparison::Outcome::different:
      return "different";
    case TensorComparison::Outcome::other_shape:
      return "other_shape";
    case TensorComparison::Outcome::other_dtype:
      return "other_dtype";
    case TensorComparison::Outcome::only_a:
      return "only_a";
    default:
      return "only_b";
  }
}

void conclude(CompareDocument* document) {
  const auto& files = document->files;
  const bool any = std::any_of(files.begin(), files.end(), [](const CompareDocument::File& file) {
    return !file.comparison.tensors.empty() || file.pair.a.empty() || file.pair.b.empty();
  });
  const bool agree = std::all_of(files.begin(), files.end(),
                                 [](const CompareDocument::File& file) { return file.agrees(); });
  RecordedVerdict verdict = !any    ? RecordedVerdict::nothing
                            : agree ? RecordedVerdict::pass
                                    : RecordedVerdict::fail;
  if (const auto& recordings = document->recordings) {
    if (recordings->ranks_of_a.found() || recordings->ranks_of_b.found())
      verdict = RecordedVerdict::fail;
    else if (agree && !recordings->gaps.empty())
      verdict = RecordedVerdict::inconclusive;
  }
  document->verdict = verdict_of(verdict);
  document->exit_code = exit_code_of(verdict);
}

Json as_json(const CompareDocument& document) {
  Json files = Json::array();
  for (const CompareDocument::File& file : document.files) files.push_back(file_json(file));
  Json json = with_head({{"verdict", or_null(document.verdict)},
                         {"exit_code", document.exit_code},
                         {"a", document.a},
                         {"b", document.b},
                         {"a_key", document.a_key},
                         {"b_key", document.b_key},
                         {"rtol", document.tolerance.rtol},
                         {"atol", document.tolerance.atol},
                         {"files", std::move(files)}});
  if (const auto& recordings = document.recordings)
    json["recordings"] = {{"compared", "tensors"},
                          {"last_step", recordings->last_step},
                          {"ranks_of_a", ranks_json(recordings->ranks_of_a)},
                          {"ranks_of_b", ranks_json(recordings->ranks_of_b)},
                          {"buffers_of_a", ranks_json(recordings->buffers_of_a)},
                          {"buffers_of_b", ranks_json(recordings->buffers_of_b)},
                          {"gaps", gaps_json(recordings->gaps)}};
  return json;
}

namespace {

using Outcome = TensorComparison::Outcome;
using File = CompareDocument::File;

// Names come from files that anybody may have written: they are not to steer a terminal.
std::string shown(std::string name) {
  for (char& c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return name;
}

std::string ulps_in_words(uint64_t ulp) {
  if (ulp == kNoUlp) return "not finite";
  if (ulp > INT64_MAX) return scientific(static_cast<double>(ulp)) + " ulp";
  return grouped(static_cast<int64_t>(ulp)) + " ulp";
}

// Two digits: "0.25", "1e-06".
std::string rough(double value) {
  return std::isfinite(value) ? fmt::format("{:.2g}", value) : scientific(value);
}

std::string shape_text(const CheckpointTensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

int64_t count_of(const File& file, Outcome outcome) {
  return std::count_if(file.comparison.tensors.begin(), file.comparison.tensors.end(),
                       [&](const TensorComparison& tensor) { return tensor.outcome == outcome; });
}
int64_t disagreeing(const File& file) {
  const auto& tensors = file.comparison.tensors;
  return std::count_if(tensors.begin(), tensors.end(),
                       [](const TensorComparison& tensor) { return !tensor.agrees(); });
}

// NaN and numbers beyond 2^53, which a double would round, are told by their bits as well.
std::string first_text(const TensorComparison& tensor) {
  const TensorDifference& d = *tensor.difference;
  const std::string a = digits_of(d.a_value), b = digits_of(d.b_value);
  const size_t width = std::max(a.size(), b.size());
  const int64_t bytes = bytes_of(tensor.a->dtype) / (is_complex(tensor.a->dtype) ? 2 : 1);
  const int64_t numel = tensor.a->numel();
  std::string element =
      tensor.a->shape.empty()
          ? ""
          : fmt::format(", element [{}]",
                        fmt::join(element_index(d.element, tensor.a->shape), ", "));
  return fmt::format(
      "  first difference  {} {} {}{}\n"
      "      A  {:<{}}  {}\n"
      "      B  {:<{}}  {}      {}; {} of {} {} {}{}\n",
      shown(tensor.name), to_word(tensor.a->dtype), shape_text(*tensor.a), element, a, width,
      bits_text(d.a_bits, bytes), b, width, bits_text(d.b_bits, bytes), ulps_in_words(d.ulp),
      grouped(d.disagreeing), grouped(numel), plural(numel, "element"),
      d.disagreeing == 1 ? "differs" : "differ",
      d.differing > 1 ? ", at most " + ulps_in_words(d.max_ulp) : "");
}

const TensorComparison* worst_of(const File& file) {
  const TensorComparison* worst = nullptr;
  for (const TensorComparison& tensor : file.comparison.tensors)
    if (tensor.difference && (worst == nullptr || tensor.difference->relative_error() >
                                                      worst->difference->relative_error()))
      worst = &tensor;
  return worst;
}

// "only in A  fc3.weight fc3.bias (and 4 more; -v names them)"
std::string names_line(const File& file, Outcome outcome, const std::string& head, bool all) {
  constexpr size_t kShown = 5;
  std::vector<std::string> names;
  for (const TensorComparison& tensor : file.comparison.tensors) {
    if (tensor.outcome != outcome) continue;
    std::string text = shown(tensor.name);
    if (outcome == Outcome::other_shape)
      text += fmt::format(" A {} B {}", shape_text(*tensor.a), shape_text(*tensor.b));
    if (outcome == Outcome::other_dtype)
      text += fmt::format(" A {} B {}", to_word(tensor.a->dtype), to_word(tensor.b->dtype));
    names.push_back(std::move(text));
  }
  if (names.empty()) return "";
  std::string more;
  if (!all && names.size() > kShown) {
    more = fmt::format(" (and {} more; -v names them)", names.size() - kShown);
    names.resize(kShown);
  }
  return fmt::format("  {}  {}{}\n", head, fmt::join(names, ", "), more);
}

std::string module_line(const CheckpointComparison& comparison) {
  const int64_t a = comparison.module_in_a, b = comparison.module_in_b;
  if (a + b == 0) return "";
  return fmt::format(
      "  names  {} {} of {} {} with module., the prefix of DDP's wrapper, and {} "
      "matched without\n",
      grouped(a + b), plural(a + b, "name"),
      a == 0   ? "B"
      : b == 0 ? "A"
               : "A or B",
      a + b == 1 ? "begins" : "begin", a + b == 1 ? "was" : "were");
}

// "not compared in A  args (argparse.Namespace), rng (numpy.core.multiarray._reconstruct)"
std::string skipped_line(const char* side, const std::vector<SkippedValue>& skipped, bool all) {
  constexpr size_t kShown = 5;
  if (skipped.empty()) return "";
  std::vector<std::string> names;
  for (const SkippedValue& value : skipped)
    if (all || names.size() < kShown)
      names.push_back(fmt::format("{} ({})", shown(value.name), shown(value.type)));
  const size_t more = skipped.size() - names.size();
  return fmt::format("  not compared in {}, for only code could make it  {}{}\n", side,
                     fmt::join(names, ", "),
                     more > 0 ? fmt::format(" (and {} more; -v names them)", more) : "");
}

std::string details(const File& file, bool all) {
  std::string text = module_line(file.comparison);
  text += skipped_line("A", file.comparison.skipped_in_a, all);
  text += skipped_line("B", file.comparison.skipped_in_b, all);
  const auto& tensors = file.comparison.tensors;
  const auto first = std::find_if(tensors.begin(), tensors.end(), [](const TensorComparison& t) {
    return t.outcome == Outcome::different;
  });
  if (first != tensors.end()) text += first_text(*first);
  if (const TensorComparison* worst = worst_of(file))
    text += fmt::format("  largest error  {} in {}, {} of its tensor's largest number\n",
                        rough(worst->difference->largest_error), shown(worst->name),
                        rough(worst->difference->relative_error()));
  text += names_line(file, Outcome::different, "different", all);
  text += names_line(file, Outcome::other_shape, "other shape", all);
  text += names_line(file, Outcome::other_dtype, "other dtype", all);
  text += names_line(file, Outcome::only_a, "only in A", all);
  text += names_line(file, Outcome::only_b, "only in B", all);
  return text;
}

std::string tensor_table(const File& file, const Style& style) {
  Table table;
  table.column("tensor");
  table.column("dtype");
  table.column("shape");
  for (const char* header : {"elements", "differing", "max ulp", "relative"})
    table.column(header, Table::Align::right);
  table.column("outcome");
  for (const TensorComparison& tensor : file.comparison.tensors) {
    const CheckpointTensor& any = tensor.a ? *tensor.a : *tensor.b;
    const auto& d = tensor.difference;
    const bool compared = d || tensor.outcome == Outcome::equal;
    const std::string none = compared ? "0" : "-";
    table.row({shown(tensor.name), to_word(any.dtype), shape_text(any), grouped(any.numel()),
               d ? grouped(d->differing) : none,
               d ? (d->max_ulp == kNoUlp
                        ? "-"
                        : grouped(static_cast<int64_t>(std::min<uint64_t>(d->max_ulp, INT64_MAX))))
                 : none,
               d ? rough(d->relative_error()) : none, to_word(tensor.outcome)});
  }
  return table.text(style);
}

std::string file_text(const CompareDocument& document, const File& file, bool verbose,
                      const Style& style) {
  std::string text = style.verdict(file_verdict(file)) + "  ";
  if (document.files.size() > 1) text += shown(file.pair.name) + "  ";
  if (file.pair.a.empty()) return text + "only in B: " + shown(file.pair.b) + "\n";
  if (file.pair.b.empty()) return text + "only in A: " + shown(file.pair.a) + "\n";
  text += fmt::format("A {}  B {}\n", shown(file.pair.a), shown(file.pair.b));
  text += details(file, verbose);
  return verbose ? text + tensor_table(file, style) : text;
}

std::string file_table(const CompareDocument& document, const Style& style) {
  Table table;
  table.column("file");
  for (const char* header : {"tensors", "equal", "close", "different", "missing"})
    table.column(header, Table::Align::right);
  table.column("verdict");
  for (const File& file : document.files) {
    const int64_t missing = count_of(file, Outcome::only_a) + count_of(file, Outcome::only_b);
    const Verdict verdict = file_verdict(file);
    const bool both = !file.pair.a.empty() && !file.pair.b.empty();
    const auto cell = [&](int64_t count) { return both ? grouped(count) : "-"; };
    table.row({shown(file.pair.name) + (file.pair.a.empty()   ? " (only in B)"
                                        : file.pair.b.empty() ? " (only in A)"
                                                              : ""),
               cell(static_cast<int64_t>(file.comparison.tensors.size())),
               cell(count_of(file, Outcome::equal)), cell(count_of(file, Outcome::close)),
               cell(disagreeing(file) - missing), cell(missing), to_word(verdict)},
              verdict);
  }
  return table.text(style, "verdict");
}

struct Totals {
  int64_t tensors = 0, disagree = 0, close = 0, elements = 0, files = 0, files_disagree = 0;
  uint64_t max_ulp = 0;
};

Totals totals_of(const CompareDocument& document) {
  Totals totals;
  for (const File& file : document.files) {
    ++totals.files;
    totals.files_disagree += file.agrees() ? 0 : 1;
    totals.tensors += static_cast<int64_t>(file.comparison.tensors.size());
    totals.disagree += disagreeing(file);
    totals.close += count_of(file, Outcome::close);
    totals.elements += file.comparison.elements;
    for (const TensorComparison& tensor : file.comparison.tensors)
      if (tensor.difference) totals.max_ulp = std::max(totals.max_ulp, tensor.difference->max_ulp);
  }
  return totals;
}

std::string compare_answer(const CompareDocument& document, const Style& style) {
  const Totals totals = totals_of(document);
  if (!document.verdict)
    return fmt::format("nothing to compare: no tensors in {} and {}; exit {}\n", document.a,
                       document.b, document.exit_code);
  const std::string verdict = style.verdict(*document.verdict);
  const bool folders = totals.files > 1;
  if (document.verdict == Verdict::inconclusive)
    return fmt::format("{}: {}; exit {}\n", verdict,
                       inconclusive_text(document.recordings->gaps, document.recordings->last_step),
                       document.exit_code);
  if (document.verdict == Verdict::fail && totals.disagree == 0 && totals.files_disagree == 0)
    return fmt::format("{}: ranks of one recording disagree; exit {}\n", verdict,
                       document.exit_code);
  if (document.verdict == Verdict::fail)
    return fmt::format("{}: {} of {} {}{}; exit {}\n", verdict, grouped(totals.disagree),
                       grouped(totals.tensors), plural(totals.tensors, "tensor"),
                       folders ? fmt::format(", {} of {} files", grouped(totals.files_disagree),
                                             grouped(totals.files))
                               : "",
                       document.exit_code);
  std::string text = fmt::format("{}: {} {}, {} {} compared", verdict, grouped(totals.tensors),
                                 plural(totals.tensors, "tensor"), grouped(totals.elements),
                                 plural(totals.elements, "element"));
  if (folders) text += fmt::format(" in {} pairs of files", grouped(totals.files));
  if (document.tolerance.bitwise()) return text + " bit for bit, 0 differ\n";
  text +=
      fmt::format(" within rtol {:g}, atol {:g}", document.tolerance.rtol, document.tolerance.atol);
  return text +
         (totals.close == 0
              ? "; all are the same bits\n"
              : fmt::format("; {} {} not the same bits, at most {} apart\n", grouped(totals.close),
                            totals.close == 1 ? "is" : "are", ulps_in_words(totals.max_ulp)));
}

}  // namespace

std::string compare_text(const CompareDocument& document, const CompareTextOptions& options,
                         const Style& style) {
  if (options.quiet) return compare_answer(document, style);
  std::string text = fmt::format("lockstep {} ({})\n\n", lockstep_version(), lockstep_commit());
  if (document.files.size() > 1) text += file_table(document, style) + "\n";
  if (const auto& recordings = document.recordings)
    text += ranks_text(recordings->ranks_of_a, recordings->ranks_of_b) +
            buffers_text(recordings->buffers_of_a, recordings->buffers_of_b) +
            gaps_text(recordings->gaps);
  bool said = false;  // of many files that fail the first is told in full
  for (const File& file : document.files) {
    const bool single = document.files.size() == 1;
    if (!options.verbose && !single && (file.agrees() || said)) continue;
    said = said || !file.agrees();
    text += file_text(document, file, options.verbose, style) + "\n";
  }
  return text + compare_answer(document, style);
}

}  // namespace lockstep
