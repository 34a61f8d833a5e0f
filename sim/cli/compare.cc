#include "sim/cli/compare.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "sim/cli/conclude.h"
#include "sim/cli/output_files.h"
#include "sim/cli/range.h"
#include "sim/cli/recordings.h"
#include "sim/launch/recording.h"
#include "sim/report/compare_document.h"
#include "sim/report/document.h"

namespace lockstep {
namespace {

Expected<Checkpoint> read_below(const std::string& path, const std::string& key) {
  auto checkpoint = read_weights_file(path);
  if (!checkpoint) return checkpoint;
  return below_key(std::move(checkpoint.value()), key);
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

}  // namespace

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

int report_comparison(const CompareOptions& options, const CompareDocument& document) {
  const int code = write_output("--json", options.json, document.exit_code,
                                [&] { return to_text(as_json(document)); });
  const Style style(wants_color(options.color, STDOUT_FILENO));
  return print_result(compare_text(document, {options.quiet, options.verbose}, style), code);
}

int compare(const CompareOptions& options) {
  InputErrors errors;
  check_output("--json", options.json, &errors);
  if (!errors.empty()) return bad_input(errors);
  if (std::isnan(options.rtol.value_or(0)) || std::isnan(options.atol.value_or(0)))
    return bad_input({option_error("a tolerance that is no number")}, options.json);
  const bool recorded = is_recording(options.a);
  if (recorded != is_recording(options.b))
    return bad_input(
        {file_error(recorded ? options.b : options.a,
                    "is no recording, and " + (recorded ? options.a : options.b) + " is one",
                    "two recordings, or two checkpoints of theirs")},
        options.json);
  if (recorded) return compare_recordings(options);
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

Exit codes
  0      all numbers agree, and both have the same names, shapes and dtypes
  1      they do not
  2      bad input, or an output could not be written; nothing was concluded
  3      nothing differs in what two recordings hold, and one of them is not whole
  4      neither has a tensor)");
  verb->callback([=] { *action = [=] { return compare(*options); }; });
}

}  // namespace lockstep
