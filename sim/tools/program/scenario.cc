#include "sim/tools/program/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "scenarios/base/file.h"
#include "scenarios/base/text.h"
#include "scenarios/json/exact.h"
#include "scenarios/json/json_text.h"
#include "scenarios/json/pointer.h"
#include "scenarios/parse/document.h"
#include "scenarios/parse/make_scenario.h"
#include "sim/tools/program/command.h"
#include "sim/tools/program/launcher.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Problems = std::vector<SchemaProblem>;

// Of a document that matches the schema and has its defaults.
struct ProgramReader {
  const Json& json;

  template <class T>
  void operator()(const MemberRow& member, T& value) {
    if (json.contains(member.key)) get_exact(json[member.key], value);
  }
  template <class T>
  void operator()(const MemberRow& member, std::optional<T>& value) {
    if (json.contains(member.key)) value = get_exact<T>(json[member.key]);
  }
};

// A key that is there and of no use, with those with which it is of use.
void refuse_keys(const Json& json, const std::string& place, const std::vector<const char*>& keys,
                 const char* why, const char* allowed, Problems* problems) {
  for (const char* key : keys)
    if (json.contains(key))
      problems->push_back(
          {pointer_join(place, key), true, fmt::format("\"{}\" {}", key, why), allowed});
}

// `written`: without defaults.
void refuse_useless(const Json& written, bool is_run, Problems* problems) {
  const Json& program = written[kProgramKey];
  if (is_run) {
    const char* why = "is of no use in a run with faults";
    const char* allowed = "a scenario without \"faults\"";
    refuse_keys(program, "/program",
                {"fresh_processes", "drill", "hook_error", "hook_owed", "local_batch_norm"}, why,
                allowed, problems);
    refuse_keys(written, "", {"seed"}, why, allowed, problems);
  } else {
    refuse_keys(program, "/program", {"timeout_scale", "hang_after_s"},
                "is of a run with faults alone", "\"faults\" beside \"program\", if only []",
                problems);
    if (program.value("local_batch_norm", false) && program.value("drill", "") == "always")
      problems->push_back({"/program/drill", false,
                           "operators are not compared if BatchNorm is local",
                           "never, or no \"local_batch_norm\""});
  }
}

void refuse_expected(const Json& expect, const std::string& place, bool is_run,
                     Problems* problems) {
  if (is_run)
    refuse_keys(expect, place, {"lanes", "tensor"}, "is never known of a run with faults",
                "verdict, outcome, primary_rank, kind, step, cause, named or straggler", problems);
  else
    refuse_keys(expect, place, {"outcome", "straggler"}, "is of a run with faults alone",
                "verdict, cause, step, tensor, lanes, primary_rank, kind or named", problems);
  if (expect.contains("when") && expect["when"].contains("/libtorch"))
    problems->push_back({pointer_join(place, "when") + "/~1libtorch", true,
                         "the version of a program's PyTorch chooses no expectation",
                         "JSON pointers of this file"});
}

void check_expectations(const Json& written, bool is_run, Problems* problems) {
  const auto found = written.find("expect");
  if (found == written.end()) return;
  if (found->is_object()) refuse_expected(*found, "/expect", is_run, problems);
  if (found->is_array())
    for (size_t i = 0; i < found->size(); ++i)
      refuse_expected((*found)[i], fmt::format("/expect/{}", i), is_run, problems);
}

// Relative to the file.
void place_directory(const std::string& beside, std::string* directory, Problems* problems) {
  fs::path path = (fs::path(beside) / *directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  *directory = path.string();
  std::error_code error;
  if (!fs::is_directory(path, error))
    problems->push_back({"/program/directory", false,
                         fmt::format("{}: there is no such folder", printable(*directory)),
                         "a folder, relative to this file"});
}

void check_caps(const std::vector<double>& caps, Problems* problems) {
  for (size_t i = 0; i < caps.size(); ++i)
    if (std::find(caps.begin(), caps.begin() + static_cast<std::ptrdiff_t>(i), caps[i]) !=
        caps.begin() + static_cast<std::ptrdiff_t>(i))
      problems->push_back({fmt::format("/sweep/caps/{}", i), false,
                           fmt::format("{:g} is there twice", caps[i]), "every cap once"});
}

void check_started(const ProgramPart& program, Problems* problems) {
  InputErrors errors;
  if (!program.start.spawns) {
    if (const auto of = of_launcher(program.start.command, &errors))
      errors.push_back(option_error(of->left_out + " starts ranks, and so does lockstep",
                                    "what each rank runs; world_size says how many"));
  }
  check_command(program.start.command, &errors, program.start.directory);
  for (const InputError& error : errors)
    problems->push_back({"/program/command", false, printable(error.message), error.allowed});
}

void take_faults(const Json& faults, ProgramScenario* scenario, Problems* problems) {
  for (size_t i = 0; i < faults.size(); ++i) {
    const std::string place = fmt::format("/faults/{}", i);
    const bool is_text = faults[i].is_string();
    Json json = faults[i];
    if (is_text) {
      auto words = program_fault_words(faults[i].get<std::string>());
      if (!words) {
        const InputError& error = words.errors()[0];
        problems->push_back({place, false, error.message, error.allowed});
        continue;
      }
      json = std::move(words.value());
    }
    const std::string text = is_text ? faults[i].get<std::string>() : program_fault_text(faults[i]);
    Problems own;
    auto fault = program_fault_from(std::move(json), text, scenario->world_size, &own);
    if (fault) scenario->faults.push_back(std::move(*fault));
    for (SchemaProblem& problem : own) {
      problem.pointer = is_text ? place : place + problem.pointer;
      problem.about_key = problem.about_key && !is_text;
      problems->push_back(std::move(problem));
    }
  }
}

class ProgramScenarioMaker {
 public:
  ProgramScenarioMaker(std::string directory, ProgramScenarioFile* file)
      : directory_(std::move(directory)), file_(file) {}

  void take(Json document, CombinationAxes axes, Problems* problems) const {
    const bool is_run = document.contains("faults");
    refuse_useless(document, is_run, problems);
    check_expectations(document, is_run, problems);
    fill_defaults(program_scenario_schema().root(), &document);
    ProgramScenario scenario;
    scenario.name = document["name"].get<std::string>();
    scenario.axes = std::move(axes);
    scenario.is_run = is_run;
    program_scenario_members(scenario, ProgramReader{document});
    const Json& program = document[kProgramKey];
    program["command"].get_to(scenario.program.start.command);
    program_members(scenario.program, ProgramReader{program});
    if (document.contains("sweep"))
      program_sweep_members(scenario.sweep, ProgramReader{document["sweep"]});
    check_caps(scenario.sweep.caps, problems);
    place_directory(directory_, &scenario.program.start.directory, problems);
    check_started(scenario.program, problems);
    if (is_run) take_faults(document["faults"], &scenario, problems);
    const auto expected = select_expectations(document, problems);
    if (!problems->empty()) return;
    scenario.expect = expected.front();
    file_->runs.push_back(std::move(scenario));
  }

 private:
  std::string directory_;
  ProgramScenarioFile* file_;
};

std::optional<SchemaProblem> refuse_without_program(const Json& document) {
  if (document.contains(kProgramKey)) return std::nullopt;
  return SchemaProblem{"", false, "this scenario has no \"program\", as others of this invocation",
                       "scenarios of programs alone, or none of them"};
}

bool has_program(const std::string& path) {
  const auto text = read_foreign_file(path);
  // Most files are other scenarios: what has not even the word need not be read as JSON.
  if (!text || text.value().find("\"program\"") == std::string::npos) return false;
  const Json document = json_or_discarded(text.value());
  return document.is_object() && document.contains(kProgramKey);
}

}  // namespace

bool is_program_scenario(const std::string& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return has_program(path);
  if (!fs::is_directory(path, error)) return false;
  const auto files = find_scenario_files(path);
  return files && std::any_of(files.value().begin(), files.value().end(), has_program);
}

Expected<ProgramScenarioFile> load_program_scenario(const std::string& path,
                                                    const SuiteOptions& options) {
  ProgramScenarioFile file;
  const ProgramScenarioMaker maker(directory_of(path), &file);
  const DocumentKind kind{.schema = &program_scenario_schema(),
                          .take =
                              [&](Json document, CombinationAxes axes, bool, Problems* problems) {
                                maker.take(std::move(document), std::move(axes), problems);
                              },
                          .refuse = refuse_without_program};
  auto loaded = load_document(path, options, kind);
  if (!loaded) return loaded.errors();
  file.path = path;
  file.name = std::move(loaded.value().name);
  file.what = std::move(loaded.value().what);
  file.has_full = loaded.value().has_full;
  file.notes = std::move(loaded.value().notes);
  return file;
}

}  // namespace lockstep
