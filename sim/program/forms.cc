#include "sim/program/forms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "sim/analysis/recording.h"
#include "sim/cli/shared_options.h"
#include "sim/program/command_line.h"

namespace lockstep {
namespace {

constexpr const char* kNarrowing = " --baseline --filter --last-failed --shard ";
constexpr const char* kHosts =
    " --hosts --interface --master-port --ranks-per-host --remote-shell ";
std::vector<std::string_view> words_in(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t begin = text.find_first_not_of(' '); begin != std::string_view::npos;) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(' ', end);
  }
  return words;
}

class FormTable {
 public:
  // `lists`: options, each a list of names that lives for ever.
  void form(const char* verb, const char* what, const char* mode, Reads reads,
            const std::vector<const char*>& lists) {
    Form form{verb, what, mode, reads, {}};
    for (const char* list : lists)
      for (const std::string_view word : words_in(list)) form.options.push_back(word);
    std::sort(form.options.begin(), form.options.end());
    rows.push_back(std::move(form));
  }
  // Told apart by an option.
  void mode(const char* verb, const char* mode, const char* what,
            const std::vector<const char*>& lists) {
    form(verb, what, mode, Reads::anything, lists);
  }
  void usual(const char* verb, const char* what, const std::vector<const char*>& lists) {
    form(verb, what, "", Reads::anything, lists);
  }
  std::vector<Form> rows;
};

// Before all others: a mode (--list) says nothing of what is read.
void add_programs(FormTable* table) {
  const auto has = [](const Tool& tool) { return tool.scenarios.has != nullptr; };
  if (std::none_of(tools().begin(), tools().end(), has)) return;
  const char* what = "of programs";
  const char* chosen = " --full --seed --set ";
  for (const char* verb : {"verify", "run"})
    table->form(verb, "of programs with --list", "--list", Reads::programs,
                {chosen, " --filter --list --trust-programs "});
  const char* reports =
      " --annotations --fail-fast --filter --html --json --junit --quiet --trust-programs ";
  table->form("verify", what, "", Reads::programs, {chosen, reports});
  table->form("run", what, "", Reads::programs, {chosen, reports, " --trace --trace-kind "});
  table->form("sweep", "of a program", "", Reads::programs,
              {" --allow-busy --annotations --caps --csv --full --html --json --junit --markdown "
               " --quiet --rounds --set --steps --trust-programs --warmup --worlds "});
  table->form("scenario check", what, "", Reads::programs, {chosen});
  table->form("scenario list", what, "", Reads::programs, {chosen, "--filter"});
}

void add_executions(FormTable* table) {
  for (const char* verb : {"verify", "run"}) {
    table->mode(verb, "--list", "with --list",
                {"--list", kSelectionOptions, " --filter --last-failed --shard "});
    table->mode(verb, "--hosts", "with --hosts",
                {kHosts, kSelectionOptions, "--filter", kOutputOptions});
    table->usual(verb, "on this machine",
                 {kSelectionOptions, kNarrowing, kOutputOptions, kHowOptions,
                  " --export --html --markdown --save-weights --trace --trace-kind "});
  }
  table->usual(
      "worker", "",
      {kSelectionOptions, "--filter", kOutputOptions,
       " --interface --job-key-file --launcher --master-addr --master-port --node-rank --nodes "
       " --ranks-per-node --rendezvous "});
}

void add_simulations(FormTable* table) {
  const char* verb = "simulate";
  const char* common =
      " --across-bandwidth-mb-per-s --across-latency-us --algorithm --average --backward-ms "
      " --bandwidth-mb-per-s --channels --checkpoint-every-s --checkpoint-s --color "
      "--collectives --comm-slowdown "
      " --engine --filter --forward-ms --html --json --latency-us --machine --mtbf-hours --noise "
      " --overlap-slowdown --quiet --ranks-per-host --restart-s --steps --svg --threads "
      " --work-hours --world-size ";
  table->mode(verb, "--predict", "with --predict", {"--predict", kSelectionOptions, common});
  table->usual(verb, "without --predict",
               {kSelectionOptions, common, " --out --trace --trace-kind "});
}

void add_readers(FormTable* table) {
  table->form("analyze", "of a recording", "", Reads::recordings,
              {" --color --html --json --metrics --trace --trace-kind "});
  table->form("analyze", "of a trace", "", Reads::files, {" --color --html --json "});
  table->form("analyze", "of kept runs", "", Reads::anything,
              {" --annotations --color --html --json --junit --machine --metrics --svg --svg-step "
               " --trace --trace-kind "});
}

void add_others(FormTable* table) {
  table->usual("sweep", "",
               {kSelectionOptions,
                " --allow-busy --annotations --baseline --caps --color --csv --html --json --junit "
                " --markdown --out --quiet --reducers --reference --rounds --steps --svg "
                " --threshold --vary --warmup --worlds "});
  table->usual("scenario check", "", {kSelectionOptions});
  table->usual("scenario list", "", {kSelectionOptions, "--filter"});
  table->usual("scenario explain", "", {kSelectionOptions, "--filter"});
  table->usual("data", "", {" --samples --seed "});
  table->usual("profile", "", {kSelectionOptions, " --filter --out --repetitions "});
  std::vector<const char*> schemas = {
      " --machine --recording --result --simulate --sweep --table "
      " --what-if "};
  for (const Tool& tool : tools()) {
    if (tool.schema.flag != nullptr) schemas.push_back(tool.schema.flag);
    for (const Tool::MadeSchema& more : tool.further_schemas) schemas.push_back(more.flag);
  }
  table->usual("schema", "", schemas);
}

std::vector<Form> make_forms() {
  FormTable table;
  add_programs(&table);
  add_executions(&table);
  add_simulations(&table);
  add_readers(&table);
  add_others(&table);
  for (const Tool& tool : tools())
    for (const Tool::Form& form : tool.forms)
      table.form(tool.verb, form.what, form.mode, form.reads, form.options);
  return std::move(table.rows);
}

bool is_folder_of(Reads reads, const std::string& path) {
  std::error_code error;
  if (reads == Reads::recordings) return is_recording(path);
  return std::filesystem::exists(path, error) && !std::filesystem::is_directory(path, error);
}

}  // namespace

bool Form::takes(std::string_view option) const {
  return std::binary_search(options.begin(), options.end(), option);
}

const std::vector<Form>& all_forms() {
  static const std::vector<Form> forms = make_forms();
  return forms;
}

const Form* form_of(std::string_view verb, const std::vector<std::string>& given, Reads reads) {
  for (const Form& form : all_forms()) {
    if (form.verb != verb) continue;
    const bool chosen =
        form.mode.empty() || std::find(given.begin(), given.end(), form.mode) != given.end();
    if (chosen && (form.reads == Reads::anything || form.reads == reads)) return &form;
  }
  return nullptr;
}

std::vector<const Form*> forms_with(std::string_view verb, std::string_view option) {
  std::vector<const Form*> found;
  for (const Form& form : all_forms())
    if (form.verb == verb && form.takes(option)) found.push_back(&form);
  return found;
}

const std::vector<SilentOption>& silent_options() {
  static const char* const kHowOnly = "changes how runs are executed, not their results";
  static const char* const kChecked = "checked with the scenario; does not affect counts and names";
  static const char* const kAlone = "a single process has no peers to find";
  static const std::vector<SilentOption> silent = [] {
    std::vector<SilentOption> all = {
        {"--jobs", "", kHowOnly},
        {"--threads", "", kHowOnly},
        {"--fresh-processes", "", kHowOnly},
        {"--seed", "scenario check", kChecked},
        {"--seed", "scenario list", kChecked},
        {"--device", "scenario check", kChecked},
        {"--device", "scenario list", kChecked},
        {"--seed", "profile", "draws other weights and data, which take the same time"},
        {"--color", "analyze", "for a trace there is no verdict to colour"},
        {"--rendezvous", "worker", kAlone},
        {"--master-addr", "worker", kAlone},
        {"--master-port", "worker", kAlone}};
    for (const Tool& tool : tools())
      for (const auto& [option, why] : tool.silent) all.push_back({option, tool.verb, why});
    return all;
  }();
  return silent;
}

Reads reads_of(std::string_view verb, const std::vector<std::string>& paths) {
  const auto of_programs = [&](const Form& form) {
    return form.verb == verb && form.reads == Reads::programs;
  };
  // Of other verbs a folder may be anything, and large.
  if (std::any_of(all_forms().begin(), all_forms().end(), of_programs) &&
      tool_of_scenarios(paths) != nullptr)
    return Reads::programs;
  for (const Reads reads : {Reads::recordings, Reads::files})
    if (!paths.empty() && std::all_of(paths.begin(), paths.end(), [&](const std::string& path) {
          return is_folder_of(reads, path);
        }))
      return reads;
  return Reads::folders;
}

std::string forms_markdown() {
  std::string text =
      "# Which options an invocation takes\n\n"
      "An option that an invocation cannot honour is refused: exit 2, with its name, and nothing "
      "is run.\nWhich options are honoured depends on the verb, and for some verbs on another "
      "option or on the input.\nThis page is generated from the program's own table "
      "(`sim/program/forms.cc`); a test compares them.\nWhat an option does: `lockstep VERB "
      "--help`.\n"
      "\n| invocation | options |\n| --- | --- |\n";
  for (const Form& form : all_forms()) {
    std::vector<std::string> options;
    for (const std::string_view option : form.options)
      options.push_back(fmt::format("`{}`", option));
    text += fmt::format("| `lockstep {}`{}{} | {} |\n", form.verb, form.what.empty() ? "" : " ",
                        form.what, fmt::join(options, " "));
  }
  text +=
      "\n`doctor`, `version`, `completion` and `man` take no option except `--help`.\n"
      "\n## Honoured without a visible effect on the result\n\n| option | of | why |\n| --- | --- "
      "| --- |\n";
  for (const SilentOption& one : silent_options())
    text += fmt::format("| `{}` | {} | {} |\n", one.option,
                        one.verb.empty() ? "every verb" : fmt::format("`lockstep {}`", one.verb),
                        one.why);
  return text +
         "\n## Values\n\n"
         "* A number outside its range, a word that is not a number, `nan`, an empty value and a "
         "value of a\n  flag (`--quiet=yes`) are refused with the range.\n"
         "* A file that is written must be writable before anything runs, and is written whole or "
         "not at\n  all. Two options cannot name the same file, nor one that is read. `-` is not "
         "a file:\n  standard output is `/dev/stdout`.\n";
}

}  // namespace lockstep
