#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "scenarios/base/text.h"
#include "scenarios/json/schema.h"
#include "sim/cli/outputs.h"
#include "sim/cli/run_directory.h"
#include "sim/cli/shared_options.h"
#include "sim/cli/verbs.h"
#include "sim/launch/run_files.h"
#include "sim/report/moving_line.h"
#include "sim/report/terminal.h"
#include "sim/tools/soak/report.h"
#include "sim/tools/soak/soak.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct SoakVerb {
  SoakOptions soak;
  std::optional<Shard> shard;
  std::vector<std::string> only;   // kinds of work
  std::vector<std::string> merge;  // folders, instead of running anything
  std::string out, json, markdown, html, color = "auto";
  bool quiet = false;
};

int report(const SoakVerb& verb, const SoakReport& report) {
  int code = exit_code_of(report);
  const auto json = [&] { return to_text(as_json(report)); };
  code = write_output("--json", verb.json, code, json);
  code = write_output("--markdown", verb.markdown, code, [&] { return soak_markdown(report); });
  const Style style = style_of(verb.color, STDOUT_FILENO);
  const std::string answer = colored_answer(soak_answer(report), style) + "\n";
  const std::string text = verb.quiet ? answer : soak_text(report, style) + "\n" + answer;
  code = write_page(verb.html, code, [&] { return HtmlPage{"soak", text, json()}; });
  return print_result(text, code);
}

// A folder of a soak, and those of its shards.
std::vector<std::string> with_shards(const std::string& folder) {
  std::vector<std::string> folders = {folder};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.is_directory(error) && fs::exists(ledger_path(entry.path().string()), error))
      folders.push_back(entry.path().string());
  std::sort(folders.begin() + 1, folders.end());
  return folders;
}

int merge(const SoakVerb& verb) {
  SoakReport merging;
  InputErrors errors;
  for (const std::string& named : verb.merge) {
    const size_t before = merging.slices.size();
    for (const std::string& folder : with_shards(named)) {
      const auto slices = read_ledger(folder);
      if (!slices) {
        errors.insert(errors.end(), slices.errors().begin(), slices.errors().end());
        continue;
      }
      merging.slices.insert(merging.slices.end(), slices.value().begin(), slices.value().end());
    }
    if (merging.slices.size() == before && errors.empty())
      errors.push_back(file_error(named, "has no ledger of a soak", "a folder that --out named"));
  }
  if (!errors.empty()) return bad_input(errors, verb.json);
  merging.slices = merged(std::move(merging.slices));
  merging.judged = merging.slices;
  return report(verb, merging);
}

Expected<std::vector<SoakWork>> works_of(const std::vector<std::string>& words) {
  std::vector<SoakWork> works;
  for (const std::string& word : words) {
    const SoakWorkRow* row = soak_work_of(word);
    if (row == nullptr)
      return option_error(fmt::format("--only \"{}\" is no kind of work", printable(word)),
                          soak_work_words());
    if (std::find(works.begin(), works.end(), row->work) != works.end())
      return option_error(fmt::format("--only {} is there twice", row->word));
    works.push_back(row->work);
  }
  if (works.empty())
    for (const SoakWorkRow& row : soak_works()) works.push_back(row.work);
  return works;
}

std::string progress_text(const SoakSlice& next, const std::vector<SoakSlice>& done) {
  const SoakTotal sum = sum_of(totals(done));
  return fmt::format("{} from seed {}; so far {} runs in {:.2f} h, {} failures",
                     row_of(next.work).word, next.seed, grouped(sum.runs), sum.duration_s / 3600,
                     sum.failures);
}

int run_soak(const SoakVerb& verb, const SoakOptions& options,
             const std::vector<SoakSlice>& ledger) {
  SoakReport soaked;
  try {
    MovingLine line(!verb.quiet && can_move(STDERR_FILENO));
    SoakEnd end =
        soak(options, ledger, [&](const SoakSlice& next, const std::vector<SoakSlice>& done) {
          line.show(progress_text(next, done));
        });
    soaked.slices = ledger;
    soaked.slices.insert(soaked.slices.end(), end.slices.begin(), end.slices.end());
    soaked.judged = std::move(end.slices);
    soaked.stopped = std::move(end.stopped);
    soaked.signal = end.signal;
    write_file(options.folder + "/soak.md", soak_markdown(soaked));
  } catch (const std::system_error& error) {
    return bad_input({option_error(fmt::format("--out {}: {}", printable(verb.out), error.what()))},
                     verb.json);
  }
  return report(verb, soaked);
}

int soak_verb(const SoakVerb& verb) {
  InputErrors errors;
  check_output("--json", verb.json, &errors);
  check_output("--markdown", verb.markdown, &errors);
  check_output("--html", verb.html, &errors);
  if (verb.out.empty() && verb.merge.empty())
    errors.push_back(option_error("--out is missing", "--out FOLDER, or --merge FOLDER..."));
  if (!errors.empty()) return bad_input(errors, verb.json);
  if (!verb.merge.empty()) return merge(verb);
  const auto works = works_of(verb.only);
  if (!works) return bad_input(works.errors(), verb.json);
  const auto worker = find_worker();
  if (!worker) return bad_input(worker.errors(), verb.json);
  SoakOptions options = verb.soak;
  options.works = works.value();
  std::error_code error;
  options.program = fs::read_symlink("/proc/self/exe", error).string();
  options.shard = verb.shard.value_or(Shard());
  const Shard& shard = options.shard;
  options.folder =
      shard.count == 1 ? verb.out : fmt::format("{}/{}-of-{}", verb.out, shard.index, shard.count);
  const auto directory = RunDirectory::at(options.folder);  // locked: one ledger, one writer
  if (!directory) return bad_input(directory.errors(), verb.json);
  const auto ledger = read_ledger(options.folder);
  if (!ledger) return bad_input(ledger.errors(), verb.json);
  return run_soak(verb, options, ledger.value());
}

void add_what(CLI::App* verb, SoakVerb* options) {
  const char* group = "What is run";
  verb->add_option("--hours", options->soak.hours, "Hours to run (1)")
      ->option_text("H")
      ->check(between(1.0 / 3600, 8760.0))
      ->group(group);
  verb->add_option("--slices", options->soak.slices, "Maximum number of slices of seeds")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{1'000'000}))
      ->group(group);
  verb->add_option("--only", options->only,
                   fmt::format("Kinds of work: {} (all)", soak_work_words()))
      ->option_text("WORK,...")
      ->delimiter(',')
      ->group(group);
  verb->add_option("--seed", options->soak.seed, "The first seed (1)")
      ->option_text("S")
      ->check(between(uint64_t{1}, uint64_t{1} << 52))
      ->group(group);
  add_shard(verb, &options->shard);
  verb->add_option("--jobs", options->soak.jobs, "Runs side by side (as cores and memory allow)")
      ->option_text("N")
      ->check(between(int64_t{1}, int64_t{1024}))
      ->group("How");
}

void add_soak(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<SoakVerb>();
  CLI::App* verb = app.add_subcommand(
      "soak", "Run campaigns and schedules by seed for hours; keep what fails, add up the rest.");
  add_what(verb, options.get());
  auto* out =
      verb->add_option("--out", options->out,
                       "Ledger, page and scenarios that failed; a soak goes on where it ended")
          ->option_text("FOLDER")
          ->group("Output");
  auto* merge = verb->add_option("--merge", options->merge,
                                 "Add up the folders of several soaks; run nothing")
                    ->option_text("FOLDER...")
                    ->group("What is run");
  merge->excludes(out);
  verb->add_option("--json", options->json, "Write the result as JSON (see lockstep schema --soak)")
      ->option_text("FILE")
      ->group("Output");
  verb->add_option("--markdown", options->markdown, "Write the page of all commits as Markdown")
      ->option_text("FILE")
      ->group("Output");
  add_html(verb, &options->html);
  verb->add_option("--color", options->color, "When to colour verdicts")
      ->option_text("auto|always|never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->group("Output");
  verb->add_flag("-q,--quiet", options->quiet, "Only the last line")->group("Output");
  verb->footer(footer(R"(  lockstep soak --hours 8 --out soak
  lockstep soak --hours 0.5 --only mutants,clean,explore --out soak
  srun lockstep soak --hours 8 --shard auto --out soak
  lockstep soak --merge soak --markdown soak.md
)"));
  verb->callback([=] { *action = [=] { return soak_verb(*options); }; });
}

}  // namespace

Tool soak_tool() {
  const char* written = " --color --html --json --markdown --quiet ";
  return {.verb = "soak",
          .add = add_soak,
          .forms = {{"with --merge", "--merge", {"--merge", written}},
                    {"of seeds",
                     "",
                     {" --hours --jobs --only --out --seed --shard --slices ", written}}},
          .schema = {"--soak", "Of what soak --json writes", soak_schema_text}};
}

}  // namespace lockstep
