#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "sim/cli/conclude.h"
#include "sim/cli/execution.h"
#include "sim/cli/export_directory.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/verbs.h"
#include "sim/report/document.h"
#include "sim/report/table.h"
#include "sim/report/terminal.h"
#include "sim/report/trace.h"

namespace lockstep {
namespace {

int list(const std::vector<SelectedFile>& files) {
  Table table;
  table.column("scenario");
  table.column("runs", Table::Align::right);
  table.column("what");
  for (const SelectedFile& file : files)
    if (!file.plans.empty()) table.row({file.name, std::to_string(file.plans.size()), file.what});
  return print_result(table.text(Style(false)), kExitPass);
}

int nothing_selected(const VerifyOptions& options, const std::vector<SelectedFile>& files) {
  const auto count = static_cast<int64_t>(files.size());
  fmt::print(stderr,
             "nothing selected: no scenario name or run label in {} {} contains \"{}\"; "
             "exit {}\n",
             count, plural(count, "file"), options.selection.filter, kExitNothing);
  if (options.json.empty()) return kExitNothing;
  ResultDocument document;
  document.machine = this_machine();
  document.exit_code = kExitNothing;
  write_atomically(options.json, to_text(document));
  return kExitNothing;
}

// Where no trace could be written, before anything is run.
std::optional<InputError> trace_error(const std::string& path,
                                      const std::vector<SelectedFile>& files) {
  size_t runs = 0;
  for (const SelectedFile& file : files) runs += file.plans.size();
  if (is_trace_folder(path)) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (!error && access(path.c_str(), W_OK) == 0) return std::nullopt;
    return option_error(fmt::format("--trace {}: cannot be written to", path));
  }
  if (const auto why = why_not_writable(path)) return option_error("--trace " + *why);
  if (runs == 1) return std::nullopt;
  InputError error =
      option_error(fmt::format("--trace {}: a file holds one run, not {}", path, runs));
  error.allowed = "a folder (DIR/), or one run: pin axes with --set or choose with --filter";
  return error;
}

}  // namespace

int verify(const VerifyOptions& options) {
  InputErrors errors;
  if (!options.json.empty())
    if (auto why = why_not_writable(options.json)) errors.push_back(option_error("--json " + *why));
  auto files = select(options.selection);
  if (!files) errors.insert(errors.end(), files.errors().begin(), files.errors().end());
  if (!errors.empty()) return bad_input(errors, options.json);
  bool any = false;
  for (const SelectedFile& file : files.value()) any = any || !file.plans.empty();
  if (!any) return nothing_selected(options, files.value());
  if (options.list) return list(files.value());
  const auto worker = find_worker();
  if (!worker) return bad_input(worker.errors(), options.json);
  if (!options.trace.empty())
    if (auto error = trace_error(options.trace, files.value()))
      return bad_input({*error}, options.json);
  if (options.export_dir)
    if (auto error = make_export_folders(*options.export_dir, &files.value()))
      return bad_input({*error}, options.json);
  auto directory = options.out.empty() ? RunDirectory::numbered() : RunDirectory::at(options.out);
  if (!directory) return bad_input(directory.errors(), options.json);
  const ResultDocument document =
      execute_selected(options, files.value(), worker.value(), directory.value().path());
  leave_result(directory.value(), document);
  return report(options, document);
}

}  // namespace lockstep
