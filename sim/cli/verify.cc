#include "sim/cli/verify.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "scenarios/base/error.h"
#include "scenarios/base/text.h"
#include "sim/cli/execution.h"
#include "sim/cli/outputs.h"
#include "sim/cli/registered_names.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/select.h"
#include "sim/cli/verbs.h"
#include "sim/cli/worker_program.h"
#include "sim/report/document.h"
#include "sim/report/terminal.h"
#include "sim/report/text_style.h"
#include "sim/report/trace/trace.h"
#include "sim/weights/save.h"

namespace lockstep {
namespace {

int list(const std::vector<SelectedFile>& files) {
  Table table;
  table.column("scenario");
  table.column("runs", Table::Align::right);
  table.column("what");
  for (const SelectedFile& file : files)
    if (!file.plans.empty()) table.row({file.name, std::to_string(file.plans.size()), file.what});
  return print_result(table.text(style_of("never", STDOUT_FILENO)), kExitPass);
}

std::string no_match(const VerifyOptions& options, size_t files) {
  const auto count = static_cast<int64_t>(files);
  return fmt::format("no scenario name or run label in {} {} contains \"{}\"", count,
                     plural(count, "file"), options.selection.filter);
}

// So that nobody takes the answer for one about everything.
void say_last_failed(const std::vector<std::string>& kept, int64_t of) {
  constexpr size_t kNamed = 10;
  print_error(
      fmt::format("failed last: {} of {} {}\n", kept.size(), grouped(of), plural(of, "run")));
  for (size_t i = 0; i < std::min(kept.size(), kNamed); ++i)
    print_error(fmt::format("  {}\n", printable(kept[i])));
  if (kept.size() > kNamed) print_error(fmt::format("  and {} more\n", kept.size() - kNamed));
}

// What is left of a selection; a sentence where that is nothing.
std::string narrow(const VerifyOptions& options, std::vector<SelectedFile>* files) {
  const int64_t all = count_runs(*files);
  if (all == 0) return no_match(options, files->size());
  if (options.last_failed) {
    const std::vector<std::string> kept = keep_last_failed(files);
    if (kept.empty())
      return fmt::format("none of the {} {} failed last", grouped(all), plural(all, "run"));
    say_last_failed(kept, all);
  }
  if (!options.shard) return "";
  const int64_t before = count_runs(*files);
  keep_shard(*options.shard, files);
  if (count_runs(*files) > 0) return "";
  return fmt::format("shard {}/{} of {} {} is empty", options.shard->index, options.shard->count,
                     grouped(before), plural(before, "run"));
}

// Nothing where --baseline was not given.
Expected<std::optional<EarlierResult>> earlier_of(const VerifyOptions& options) {
  if (options.baseline.empty()) return std::optional<EarlierResult>();
  auto loaded = EarlierResult::load(options.baseline);
  if (!loaded) return loaded.errors();
  return std::optional<EarlierResult>(std::move(loaded.value()));
}

// Where results could not be put, before anything is run.
std::optional<InputError> output_error(const VerifyOptions& options,
                                       std::vector<SelectedFile>* files) {
  const auto runs = static_cast<size_t>(count_runs(*files));
  if (auto error = trace_error(options.trace, runs)) return error;
  if (!options.save_weights.empty())
    if (auto error = save_weights_error(options.save_weights, *files)) return error;
  if (options.export_dir) return make_export_folders(*options.export_dir, files);
  return std::nullopt;
}

int execute_and_report(const VerifyOptions& options, const std::string& worker,
                       const RunDirectory& directory, const std::optional<EarlierResult>& earlier,
                       std::vector<SelectedFile>* files) {
  // Weights that are saved come from an export, which maybe nobody asked for.
  const std::string exported = directory.path() + "/exported";
  const bool own_export = !options.save_weights.empty() && !options.export_dir;
  if (own_export)
    if (auto error = make_export_folders(exported, files)) return bad_input({*error}, options.json);
  const ResultDocument document =
      execute_selected(options, *files, worker, directory.path(), earlier ? &*earlier : nullptr);
  leave_result(directory, document);
  note_last_failed(document);
  std::optional<InputError> not_saved;
  if (!options.save_weights.empty())
    not_saved = save_weights(options.save_weights, only_run(*files).export_dir);
  std::error_code ignored;
  if (own_export) std::filesystem::remove_all(exported, ignored);
  if (not_saved) print_error(fmt::format("{}\n", to_text(*not_saved)));
  const int code = report(options, document);
  return code == kExitPass && not_saved ? kExitBadInput : code;
}

}  // namespace

int verify(const VerifyOptions& options) {
  const auto refuse = [&](const InputErrors& errors) {
    return bad_input(errors, options.json, options.ci);
  };
  InputErrors errors = ci_errors(options.ci);
  check_output("--json", options.json, &errors);
  check_output("--markdown", options.markdown, &errors);
  std::optional<EarlierResult> earlier;
  if (auto loaded = earlier_of(options))
    earlier = std::move(loaded.value());
  else
    errors.insert(errors.end(), loaded.errors().begin(), loaded.errors().end());
  auto files = select(options.selection);
  if (!files) errors.insert(errors.end(), files.errors().begin(), files.errors().end());
  if (!errors.empty()) return refuse(errors);
  if (const std::string why = narrow(options, &files.value()); !why.empty())
    return nothing_selected(why, options.verb(), options.json, options.ci);
  if (options.list) return list(files.value());
  const auto worker = find_worker();
  if (!worker) return refuse(worker.errors());
  errors = unknown_names(worker.value(), files.value());
  if (!errors.empty()) return refuse(errors);
  errors = settle_devices(worker.value(), options.quiet, &files.value());
  if (!errors.empty()) return refuse(errors);
  if (auto error = output_error(options, &files.value())) return refuse({*error});
  auto directory = options.out.empty() ? RunDirectory::numbered() : RunDirectory::at(options.out);
  if (!directory) return refuse(directory.errors());
  return execute_and_report(options, worker.value(), directory.value(), earlier, &files.value());
}

namespace {

namespace fs = std::filesystem;

InputError refused(const std::string& path, const std::string& why) {
  return option_error(fmt::format("--export {}: {}", path, why),
                      "an empty folder, or a path where one can be made");
}

}  // namespace

std::optional<InputError> make_export_folders(const std::string& path,
                                              std::vector<SelectedFile>* files) {
  std::error_code error;
  const fs::path folder = fs::absolute(path, error).lexically_normal();
  fs::create_directories(folder, error);
  if (error) return refused(path, error.message());
  if (!fs::is_empty(folder, error)) return refused(path, "is not empty");
  if (error) return refused(path, error.message());
  int64_t number = 0;
  for (SelectedFile& file : *files)
    for (RunPlan& plan : file.plans) {
      plan.export_dir = (folder / fmt::format("{:04}", ++number)).string();
      fs::create_directory(plan.export_dir, error);
      if (error) return refused(path, error.message());
    }
  return std::nullopt;
}

std::optional<InputError> save_weights_error(const std::string& path,
                                             const std::vector<SelectedFile>& files) {
  if (const std::string why = why_no_checkpoint_name(path); !why.empty())
    return option_error("--save-weights " + why);
  if (const auto why = why_not_writable(path)) return option_error("--save-weights " + *why);
  size_t runs = 0;
  for (const SelectedFile& file : files) runs += file.plans.size();
  if (runs == 1) return std::nullopt;
  return option_error(fmt::format("--save-weights {}: a file holds one run, not {}", path, runs),
                      "one run: pin axes with --set or choose with --filter");
}

const RunPlan& only_run(const std::vector<SelectedFile>& files) {
  for (const SelectedFile& file : files)
    if (!file.plans.empty()) return file.plans.front();
  LOCKSTEP_CHECK(false, "no run is selected");
}

std::optional<InputError> save_weights(const std::string& path, const std::string& export_dir) {
  std::error_code ignored;
  if (!std::filesystem::exists(export_dir + "/manifest.json", ignored))
    return option_error(
        fmt::format("--save-weights {}: the run did not reach its end, and left no weights", path));
  const auto state = read_export(export_dir);
  if (!state) return state.errors().front();
  try {
    save_checkpoint(path, state.value().tensors);
  } catch (const std::exception& error) {
    return option_error(fmt::format("--save-weights {}", error.what()));
  }
  return std::nullopt;
}

}  // namespace lockstep
