#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "scenarios/json/schema.h"
#include "sim/analysis/recorded_comparison.h"
#include "sim/analysis/recording.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/shared_options.h"
#include "sim/report/document.h"
#include "sim/tools/compare/certificate_report.h"
#include "sim/tools/compare/recorded_report.h"
#include "sim/tools/compare/report.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

// Two checkpoints, or two folders of them; or two recorded runs.
struct CompareOptions {
  std::string a, b;
  std::string key, a_key, b_key;  // --key: of both
  std::optional<double> rtol, atol;
  std::string json, html;
  std::string color = "auto";
  bool quiet = false, verbose = false;

  // Bit for bit is one, if somebody asks for it: --rtol 0.
  bool has_tolerance() const { return rtol || atol; }
  Tolerance tolerance() const { return {rtol.value_or(0), atol.value_or(0)}; }
};

Expected<Checkpoint> read_below(const std::string& path, const std::string& key) {
  auto checkpoint = read_weights_file(path);
  if (!checkpoint) return checkpoint;
  return below_key(std::move(checkpoint.value()), key);
}

// A missing file is a difference, not an error.
Expected<CompareDocument::File> compare_files(const FilePair& pair, const std::string& a_key,
                                              const std::string& b_key,
                                              const Tolerance& tolerance) {
  CompareDocument::File file{pair, "", "", {}};
  InputErrors errors;
  const auto read = [&](const std::string& path, const std::string& key) {
    auto checkpoint = read_below(path, key);
    if (!checkpoint)
      errors.insert(errors.end(), checkpoint.errors().begin(), checkpoint.errors().end());
    return checkpoint;
  };
  if (pair.a.empty() || pair.b.empty()) {
    auto one = pair.a.empty() ? read(pair.b, b_key) : read(pair.a, a_key);
    if (!errors.empty()) return errors;
    (pair.a.empty() ? file.b_format : file.a_format) = one.value().format;
    return file;
  }
  const auto a = read(pair.a, a_key);
  const auto b = read(pair.b, b_key);
  if (!errors.empty()) return errors;
  file.a_format = a.value().format;
  file.b_format = b.value().format;
  file.comparison = compare_checkpoints(a.value(), b.value(), tolerance);
  return file;
}

Expected<CompareDocument> compare_all(const CompareOptions& options) {
  CompareDocument document;
  document.a = options.a;
  document.b = options.b;
  document.a_key = options.a_key.empty() ? options.key : options.a_key;
  document.b_key = options.b_key.empty() ? options.key : options.b_key;
  document.tolerance = options.tolerance();
  const auto pairs = pair_files(options.a, options.b);
  if (!pairs) return pairs.errors();
  InputErrors errors;
  for (const FilePair& pair : pairs.value()) {
    auto file = compare_files(pair, document.a_key, document.b_key, document.tolerance);
    if (file)
      document.files.push_back(std::move(file.value()));
    else
      errors.insert(errors.end(), file.errors().begin(), file.errors().end());
  }
  if (!errors.empty()) return errors;
  conclude(&document);
  return document;
}

int report_text(const CompareOptions& options, int code, const std::function<std::string()>& json,
                const std::string& text) {
  code = write_output("--json", options.json, code, json);
  code = write_page(options.html, code, [&] { return HtmlPage{"compare", text, json()}; });
  return print_result(text, code);
}

int report_comparison(const CompareOptions& options, const CompareDocument& document) {
  const auto json = [&] { return to_text(as_json(document)); };
  const Style style = style_of(options.color, STDOUT_FILENO);
  const std::string text = compare_text(document, {options.quiet, options.verbose}, style);
  return report_text(options, document.exit_code, json, text);
}

using KeptStep = std::optional<int64_t>;  // nothing: the end

// That rank 0 hashed in both, and so kept.
std::vector<KeptStep> steps_in_both(const RecordedRank& a, const RecordedRank& b) {
  std::vector<KeptStep> steps;
  for (const HashedStep& step : a.hashed)
    if (std::any_of(b.hashed.begin(), b.hashed.end(),
                    [&](const HashedStep& other) { return other.step == step.step; }))
      steps.emplace_back(step.step);
  if (a.end && b.end && a.end->step == b.end->step) steps.emplace_back(std::nullopt);
  return steps;
}

Expected<CompareDocument> compare_recorded_tensors(const CompareOptions& options,
                                                   const RecordedHashes& a,
                                                   const RecordedHashes& b) {
  CompareDocument document;
  document.a = options.a;
  document.b = options.b;
  document.tolerance = options.tolerance();
  CompareDocument::Recordings found{
      divergence_of_ranks(a),   divergence_of_ranks(b), divergence_of_buffers(a),
      divergence_of_buffers(b), gaps_of(a, b),          0};
  for (const KeptStep& step : steps_in_both(a.ranks.front(), b.ranks.front())) {
    const FilePair pair{std::filesystem::path(recorded_tensors_path("", step)).filename().string(),
                        recorded_tensors_path(a.folder, step),
                        recorded_tensors_path(b.folder, step)};
    bool both = true;
    for (const auto& [side, path] :
         {std::pair{RecordedSide::a, &pair.a}, {RecordedSide::b, &pair.b}}) {
      std::error_code error;
      if (std::filesystem::exists(*path, error)) continue;
      found.gaps.push_back({RecordedGap::Kind::no_tensors, side, 0, step.value_or(0), 0});
      both = false;
    }
    if (!both) continue;
    auto file = compare_files(pair, "", "", document.tolerance);
    if (!file) return file.errors();
    document.files.push_back(std::move(file.value()));
    found.last_step = step ? *step : a.ranks.front().end->step;
  }
  document.recordings = std::move(found);
  conclude(&document);
  return document;
}

// Nothing, or why these options cannot be honoured for recordings.
std::optional<InputError> refused_option(const CompareOptions& options) {
  for (const auto& [name, value] :
       {std::pair{"--key", &options.key}, {"--key-a", &options.a_key}, {"--key-b", &options.b_key}})
    if (!value->empty())
      return option_error(fmt::format("{} {}: recordings have no keys", name, *value),
                          "checkpoints, as those of record(..., keep_tensors=True) are");
  if (options.verbose) return option_error("--verbose is not there for recordings; take --json");
  return std::nullopt;
}

// Nothing, or why the numbers of these two cannot be compared in the way that was asked for.
std::optional<InputError> refused_pair(const CompareOptions& options, const RecordedHashes& a,
                                       const RecordedHashes& b) {
  const char* keep = "recordings of record(..., keep_tensors=True), with --rtol and --atol";
  const bool tensors = a.tensors && b.tensors;
  if (a.world_size != b.world_size && (!tensors || !options.has_tolerance()))
    return option_error(
        fmt::format("{} was recorded by {} {}, {} by {}: sums of other addends are rounded "
                    "otherwise, and {} have no tolerance",
                    options.a, a.world_size, plural(a.world_size, "rank"), options.b, b.world_size,
                    tensors ? "without --rtol or --atol numbers" : "hashes"),
        keep);
  if (options.has_tolerance() && !tensors)
    return option_error(
        fmt::format("{}: {} holds hashes alone, which have no tolerance",
                    options.rtol ? "--rtol" : "--atol", a.tensors ? options.b : options.a),
        keep);
  if (a.hash_version != b.hash_version && !options.has_tolerance())
    return file_error(options.b,
                      "was hashed in another way, by another version of lockstep_record.py",
                      "two recordings of one version");
  return std::nullopt;
}

int compare_by_hashes(const CompareOptions& options, const RecordedHashes& a,
                      const RecordedHashes& b) {
  const RecordedComparison comparison = compare_recordings(a, b);
  const auto json = [&] { return to_text(as_json(comparison, options.a, options.b)); };
  const Style style = style_of(options.color, STDOUT_FILENO);
  return report_text(
      options, exit_code_of(comparison.verdict), json,
      recorded_comparison_text(comparison, options.a, options.b, options.quiet, style));
}

int compare_recordings(const CompareOptions& options) {
  if (auto refused = refused_option(options)) return bad_input({*refused}, options.json);
  const auto a = read_recorded_hashes(options.a), b = read_recorded_hashes(options.b);
  if (!a) return bad_input(a.errors(), options.json);
  if (!b) return bad_input(b.errors(), options.json);
  if (auto refused = refused_pair(options, a.value(), b.value()))
    return bad_input({*refused}, options.json);
  if (!options.has_tolerance()) return compare_by_hashes(options, a.value(), b.value());
  const auto document = compare_recorded_tensors(options, a.value(), b.value());
  if (!document) return bad_input(document.errors(), options.json);
  return report_comparison(options, document.value());
}

// Of the same options as recordings, and no tolerance: the order of addition is the only one.
int compare_gradients(const CompareOptions& options) {
  if (auto refused = refused_option(options)) return bad_input({*refused}, options.json);
  if (options.has_tolerance())
    return bad_input({option_error("--rtol and --atol are not there for gradients: they agree bit "
                                   "for bit, or by the order of addition")},
                     options.json);
  const auto a = read_gradient_log(options.a), b = read_gradient_log(options.b);
  if (!a) return bad_input(a.errors(), options.json);
  if (!b) return bad_input(b.errors(), options.json);
  const Certificate certificate = certify(a.value(), b.value());
  const auto json = [&] { return to_text(as_json(certificate, options.a, options.b)); };
  const Style style = style_of(options.color, STDOUT_FILENO);
  return report_text(options, exit_code_of(certificate.verdict), json,
                     certificate_text(certificate, options.a, options.b, options.quiet, style));
}

// Which of two kinds both must be of; nothing, where neither is.
using IsOfKind = bool (*)(const std::string&);
std::optional<InputError> of_one_kind(const CompareOptions& options, IsOfKind is,
                                      const char* what) {
  const bool a = is(options.a);
  if (a == is(options.b)) return std::nullopt;
  return file_error(a ? options.b : options.a,
                    fmt::format("is no {}, and {} is one", what, a ? options.a : options.b),
                    fmt::format("two {}s, or two checkpoints", what));
}

int compare(const CompareOptions& options) {
  InputErrors errors;
  check_output("--json", options.json, &errors);
  if (!errors.empty()) return bad_input(errors);
  if (std::isnan(options.rtol.value_or(0)) || std::isnan(options.atol.value_or(0)))
    return bad_input({option_error("a tolerance that is no number")}, options.json);
  for (const auto& mixed : {of_one_kind(options, is_gradient_log, "gradient log"),
                            of_one_kind(options, is_recording, "recording")})
    if (mixed) return bad_input({*mixed}, options.json);
  if (is_gradient_log(options.a)) return compare_gradients(options);
  if (is_recording(options.a)) return compare_recordings(options);
  const auto document = compare_all(options);
  if (!document) return bad_input(document.errors(), options.json);
  return report_comparison(options, document.value());
}

void add_compare(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<CompareOptions>();
  CLI::App* verb = app.add_subcommand(
      "compare", "Compare two checkpoints (.safetensors, .pt), folders of them, or recorded runs.");
  verb->add_option("A", options->a, "A checkpoint, or a folder of them")->required();
  verb->add_option("B", options->b, "The reference: errors are relative to it")->required();
  const auto add = [&](const char* name, auto* value, const char* what, const char* text,
                       const char* group) {
    return verb->add_option(name, *value, what)->option_text(text)->group(group);
  };
  const char* what = "What is compared";
  add("--key", &options->key, "Only what stands below this key, as in model/state_dict", "PATH",
      what);
  add("--key-a", &options->a_key, "... in A, where it is another there", "PATH", what);
  add("--key-b", &options->b_key, "... in B", "PATH", what);
  const char* how = "When numbers agree (bit for bit)";
  add("--rtol", &options->rtol, "|a - b| <= atol + rtol * |b|", "X", how)
      ->check(between(0.0, 1e300));
  add("--atol", &options->atol, "", "X", how)->check(between(0.0, 1e300));
  const char* output = "Output";
  add("--json", &options->json, "Write the result as JSON (see lockstep schema --compare)", "FILE",
      output);
  add_html(verb, &options->html);
  add("--color", &options->color, "When to colour verdicts", "auto|always|never", output)
      ->check(CLI::IsMember({"auto", "always", "never"}));
  auto* quiet = verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group(output);
  verb->add_flag("-v,--verbose", options->verbose, "A line for every tensor, all names")
      ->excludes(quiet)
      ->group(output);
  verb->footer(R"(Examples
  lockstep compare ddp.pt one_device.pt
  lockstep compare ddp.pt one_device.safetensors --key-a state_dict --rtol 1e-5 --atol 1e-8
  lockstep compare run/checkpoints yesterday/checkpoints --json result.json
  lockstep compare ddp_gradients fsdp_gradients   # of lockstep run --gradients FOLDER -- COMMAND

Exit codes
  0      all numbers agree, and both have the same names, shapes and dtypes
  1      they do not
  2      bad input, or an output could not be written; nothing was concluded
  3      nothing differs in what two recordings hold, and one of them is not whole
  4      neither has a tensor)");
  verb->callback([=] { *action = [=] { return compare(*options); }; });
}

}  // namespace

Tool compare_tool() {
  return {.verb = "compare",
          .add = add_compare,
          .forms =
              {{"of recordings",
                "",
                {" --atol --color --html --json --quiet --rtol "},
                Reads::recordings},
               {"of checkpoints",
                "",
                {" --atol --color --html --json --key --key-a --key-b --quiet --rtol --verbose "}}},
          .schema = {"--compare", "Of what compare --json writes", compare_schema_text}};
}

}  // namespace lockstep
