#include "sim/report/terminal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "golden/compare.h"
#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/report/kill_matrix.h"
#include "sim/report/machine.h"
#include "sim/report/run_text.h"
#include "sim/report/text_style.h"

namespace lockstep {
namespace {

// More failures than these are named in a line each: the JSON has them all.
constexpr size_t kFullFailures = 5;

using Runs = std::vector<const RunResult*>;

// Runs of one scenario file, files in the order in which they were run.
std::vector<Runs> by_file(const std::vector<RunResult>& runs) {
  std::vector<Runs> groups;
  std::map<std::string, size_t> known;
  for (const RunResult& run : runs) {
    const auto [place, fresh] = known.try_emplace(run.file + "\n" + run.name, groups.size());
    if (fresh) groups.emplace_back();
    groups[place->second].push_back(&run);
  }
  return groups;
}

// "1..8" where no number in between is absent, else "2 3 5".
std::string world_sizes(const Runs& runs) {
  std::set<int64_t> sizes;
  for (const RunResult* run : runs) sizes.insert(run->world_size);
  const int64_t first = *sizes.begin(), last = *sizes.rbegin();
  if (sizes.size() > 2 && last - first + 1 == static_cast<int64_t>(sizes.size()))
    return fmt::format("{}..{}", first, last);
  return fmt::format("{}", fmt::join(sizes, " "));
}

std::string lanes_of(const Runs& runs) {
  std::vector<std::string> names;
  for (const RunResult* run : runs)
    for (const LaneResult& lane : run->lanes)
      if (std::find(names.begin(), names.end(), to_word(lane.lane)) == names.end())
        names.emplace_back(to_word(lane.lane));
  return fmt::format("{}", fmt::join(names, " "));
}

std::string controls_of(const Runs& runs) {
  int64_t detected = 0, all = 0;
  for (const RunResult* run : runs)
    for (const LaneResult& lane : run->lanes) {
      if (lane.verdict == LaneVerdict::not_applicable) continue;
      ++all;
      detected += lane.control == ControlVerdict::detected;
    }
  return fmt::format("{} of {}", grouped(detected), grouped(all));
}

struct GroupVerdict {
  Verdict color;
  std::string words;
};
GroupVerdict verdict_of(const Runs& runs) {
  const auto any = [&](auto&& test) { return std::any_of(runs.begin(), runs.end(), test); };
  const auto unmet = [](auto* run) { return run->met == false && run->baseline != "known"; };
  if (any(unmet)) {
    const bool passed =
        !any([&](auto* run) { return unmet(run) && run->verdict != Verdict::pass; });
    return {Verdict::fail, passed ? "pass, unexpected" : "fail"};
  }
  if (any([](auto* run) { return !run->met && run->baseline != "known"; }))
    return {Verdict::inconclusive, "inconclusive"};
  if (any([](auto* run) { return run->baseline == "known"; }))
    return {Verdict::inconclusive, "known"};
  const Verdict first = runs.front()->verdict;
  if (any([&](auto* run) { return run->verdict != first; })) return {Verdict::pass, "as expected"};
  const std::string word = to_word(first);
  return {Verdict::pass, first == Verdict::pass ? word : word + ", as expected"};
}

}  // namespace

Table results_table(const std::vector<RunResult>& runs) {
  Table table;
  table.column("scenario");
  table.column("runs", Table::Align::right);
  table.column("world sizes");
  table.column("lanes");
  table.column("controls", Table::Align::right);
  table.column("verdict");
  table.column("time/s", Table::Align::right);
  for (const Runs& group : by_file(runs)) {
    int64_t duration_ms = 0;
    for (const RunResult* run : group) duration_ms += run->duration_ms;
    const GroupVerdict verdict = verdict_of(group);
    table.row({group.front()->name, grouped(static_cast<int64_t>(group.size())), world_sizes(group),
               lanes_of(group), controls_of(group), verdict.words,
               fmt::format("{:.1f}", static_cast<double>(duration_ms) * 1e-3)},
              verdict.color);
  }
  return table;
}

namespace {

using GoldenJson = nlohmann::ordered_json;

// "one device  pass: 110 of 110 weights equal at 4 decimals; 42 of 100 of weight differ ..."
std::string golden_line(const RunResult& run) {
  const auto golden = json_or_discarded(run.golden);
  if (!golden.is_object() || !golden.contains("verdict")) return "";
  const auto word = [](const GoldenJson& j, const char* key) {
    const GoldenJson value = j.is_object() ? j.value(key, GoldenJson()) : GoldenJson();
    return value.is_string() ? printable(value.get<std::string>()) : "";
  };
  const auto number = [](const GoldenJson& j, const char* key) {
    const GoldenJson value = j.is_object() ? j.value(key, GoldenJson()) : GoldenJson();
    return grouped(value.is_number_integer() ? value.get<int64_t>() : 0);
  };
  std::string text = "stored golden  " + word(golden, "verdict");
  if (!word(golden, "reason").empty()) return text + ": " + word(golden, "reason");
  text +=
      fmt::format(": {} of {} weights are printed identically with {} decimals",
                  number(golden, "run_equal"), number(golden, "total"), number(golden, "decimals"));
  for (const auto& published : golden.value("published", GoldenJson::array()))
    text += fmt::format(", {} of {} published of {}", number(published, "equal"),
                        number(published, "total"),
                        word(published, "of") == "run" ? "DDP" : "one device");
  std::string differing;
  for (const auto& tensor : golden.value("differing_from_one_device", GoldenJson::array()))
    differing +=
        fmt::format("{}{} of {} of {}", differing.empty() ? "" : ", ", number(tensor, "differing"),
                    number(tensor, "total"), word(tensor, "name"));
  return text + "\n  against one device in float32, in the last bits: " + differing + " differ";
}

std::string goldens_of(const std::vector<RunResult>& runs) {
  std::string text;
  for (const RunResult& run : runs) {
    if (run.golden.empty()) continue;
    const std::string line = golden_line(run);
    if (line.empty()) continue;
    text += fmt::format("{}{}{}  {}\n", run.name, run.label.empty() ? "" : "  ", run.label, line);
  }
  return text.empty() ? "" : "\n" + text;
}

// "  optimizer state 1,236 to 1,412 B a rank"
std::string optimizer_bytes(const RunResult& run) {
  if (run.optimizer_bytes.empty()) return "";
  const auto [least, most] =
      std::minmax_element(run.optimizer_bytes.begin(), run.optimizer_bytes.end());
  if (*most == 0) return "";
  return fmt::format("  optimizer state {}{} B a rank",
                     *least == *most ? "" : grouped(*least) + " to ", grouped(*most));
}

// In full with -v; else where they stand beside published ones.
std::string losses_of(const std::vector<RunResult>& runs, bool all) {
  std::string text;
  for (const RunResult& run : runs)
    if (!run.losses.empty() && (all || !run.published_losses.empty()))
      text += fmt::format("\n{}{}{}\n{}", run.name, run.label.empty() ? "" : "  ", run.label,
                          losses_text(run));
  return text;
}

std::string metrics_of(const std::vector<RunResult>& runs, const Style& style) {
  std::string text;
  for (const RunResult& run : runs)
    if (run.metrics)
      text += fmt::format("\n{}{}{}\n{}", run.name, run.label.empty() ? "" : "  ", run.label,
                          metrics_table(run, style));
  return text;
}

std::string run_line(const RunResult& run, const Style& style) {
  return fmt::format("{}  {}{}{}  {:.2f} s{}\n", style.verdict(run.verdict), run.name,
                     run.label.empty() ? "" : "  ", run.label,
                     static_cast<double>(run.duration_ms) * 1e-3, optimizer_bytes(run));
}

std::string failures_of(const std::vector<RunResult>& runs, bool all, const Style& style) {
  std::string text;
  size_t shown = 0;
  int64_t left = 0;
  for (const RunResult& run : runs) {
    if (run.met == true || run.baseline == "known") continue;
    if (all || shown < kFullFailures) {
      text += "\n" + failure_text(run, style);
      ++shown;
    } else {
      ++left;
    }
  }
  if (left > 0)
    text += fmt::format("\nand {} more such {}: -v shows all, --json contains all\n", grouped(left),
                        plural(left, "run"));
  return text;
}

// Runs that the baseline knows, and those that have come right since, a line each.
std::string beside_baseline(const std::vector<RunResult>& runs, const Style& style) {
  std::string text;
  for (const RunResult& run : runs)
    if (run.baseline == "known" || run.baseline == "fixed")
      text += fmt::format(
          "{}  {}{}{}  {}\n",
          style.verdict(run.met == true ? Verdict::pass : Verdict::inconclusive, run.baseline),
          run.name, run.label.empty() ? "" : "  ", run.label,
          run.met == true ? "not as expected in the baseline"
          : run.met       ? "not as expected in the baseline either"
                          : "inconclusive in the baseline too");
  return text.empty() ? "" : "\n" + text;
}

std::string pass_line(const Summary& s) {
  std::string text = fmt::format("pass: {} {}", grouped(s.runs), plural(s.runs, "run"));
  if (s.known > 0) {
    text = fmt::format("pass: {} of {} {} as expected, {} known to the baseline", grouped(s.met),
                       grouped(s.runs), plural(s.runs, "run"), grouped(s.known));
  } else if (s.pass < s.runs) {
    text += " as expected (";
    std::string parts;
    for (const auto& [count, word] : {std::pair(s.pass, "pass"), std::pair(s.fail, "fail"),
                                      std::pair(s.inconclusive, "inconclusive")})
      if (count > 0) parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", count, word);
    text += parts + ")";
  }
  if (s.tensors_compared > 0)
    text += fmt::format(", {} tensors compared bit for bit, 0 differ", grouped(s.tensors_compared));
  if (s.worst_distance)
    text += fmt::format("; worst float64 distance {} (bound 1e-12)", scientific(*s.worst_distance));
  if (s.worst_statistic) text += fmt::format("; worst R {:.2f} (threshold 8)", *s.worst_statistic);
  return text;
}

std::string not_run_of(const ResultDocument& document) {
  if (document.not_run.empty()) return "";
  return fmt::format(", {} not run", grouped(static_cast<int64_t>(document.not_run.size())));
}

}  // namespace

std::string head_line(const ResultDocument& document) {
  const Libraries& l = document.libraries;
  std::string text = fmt::format("lockstep {} ({})", lockstep_version(), lockstep_commit());
  if (!l.torch.empty()) text += "  LibTorch " + l.torch;
  if (!l.gloo.empty()) text += "  Gloo " + l.gloo;
  if (!l.blas.empty()) text += "  " + l.blas;
  if (!l.blas_cpu_capability.empty()) text += " " + l.blas_cpu_capability;
  const bool differ = std::any_of(document.runs.begin(), document.runs.end(),
                                  [&](const RunResult& run) { return run.seed != document.seed; });
  return text + fmt::format("  {} {}  {}\n", document.machine.cores,
                            plural(document.machine.cores, "core"),
                            differ ? "seeds of the files" : fmt::format("seed {}", document.seed));
}

std::string answer_line(const ResultDocument& document) {
  const Summary s = summary_of(document.runs);
  std::string text;
  if (document.exit_code == kExitPass) return pass_line(s) + not_run_of(document) + "\n";
  if (document.exit_code > 128) {
    text = fmt::format("interrupted by signal {}: {} {} known so far, {} as expected",
                       document.exit_code - 128, grouped(s.runs), plural(s.runs, "run"),
                       grouped(s.met));
  } else if (document.exit_code == kExitFail) {
    text =
        fmt::format("fail: {} of {} {}", grouped(s.unmet), grouped(s.runs), plural(s.runs, "run"));
    if (s.undecided > 0) text += fmt::format(", {} inconclusive", grouped(s.undecided));
    if (s.known > 0) text += fmt::format(", {} known to the baseline", grouped(s.known));
  } else {
    text = fmt::format("inconclusive: {} of {} {}", grouped(s.undecided), grouped(s.runs),
                       plural(s.runs, "run"));
  }
  return text + not_run_of(document) + fmt::format("; exit {}\n", document.exit_code);
}

std::string colored_answer(const std::string& answer, const Style& style) {
  const size_t end = answer.find(':');
  const std::string word = answer.substr(0, end);
  return style.verdict(from_word<Verdict>(word), word) + answer.substr(end);
}

std::string terminal_text(const ResultDocument& document, const TerminalOptions& options) {
  const Style& style = options.style;
  std::string colored = colored_answer(answer_line(document), style);
  if (options.quiet || document.runs.empty()) return colored;
  std::string text = head_line(document) + "\n";
  if (options.verbose) {
    for (const RunResult& run : document.runs) text += run_line(run, style);
    text += "\n";
  }
  text += results_table(document.runs).text(style, "verdict");
  text += goldens_of(document.runs);
  text += losses_of(document.runs, options.verbose);
  if (options.metrics && !options.explain) text += metrics_of(document.runs, style);
  text += beside_baseline(document.runs, style);
  if (!options.explain) text += failures_of(document.runs, options.verbose, style);
  if (const std::string kills = kill_summary(document.runs); !kills.empty())
    text += "\n" + kill_matrix(document.runs).text(style, "verdict") + "\n" + kills;
  for (const RunResult& run : document.runs)
    if (options.explain) text += "\n" + run_text(run, style);
  return text + "\n" + colored;
}

int print(const std::string& text) {
  const std::string safe = printable_lines(text);
  errno = 0;
  const bool good =
      std::fwrite(safe.data(), 1, safe.size(), stdout) == safe.size() && std::fflush(stdout) == 0;
  return good ? 0 : errno;
}

std::string verify_markdown(const ResultDocument& document) {
  std::string text =
      markdown_text(head_line(document)) + "\n" + results_table(document.runs).markdown();
  const std::string kills = kill_summary(document.runs);
  if (!kills.empty())
    text += "\n" + kill_matrix(document.runs).markdown() + "\n" + markdown_text(kills);
  return text + "\n" + markdown_text(answer_line(document));
}

namespace {

constexpr std::chrono::milliseconds kMoveEvery{100};
constexpr std::chrono::seconds kPlainEvery{5};

}  // namespace

Progress::Progress(std::map<std::string, Group> groups, bool terminal, bool quiet)
    : groups_(std::move(groups)),
      terminal_(terminal),
      quiet_(quiet),
      moving_(terminal && !quiet),
      start_(Clock::now()),
      last_(start_) {
  for (const auto& [name, group] : groups_) cost_ += group.runs * group.cost;
}

std::string Progress::line(const std::string& name, std::chrono::nanoseconds elapsed) const {
  const auto done = done_.find(name);
  const auto group = groups_.find(name);
  std::string text = fmt::format("{} {}/{}  {} %", name, done == done_.end() ? 0 : done->second,
                                 group == groups_.end() ? 0 : group->second.runs,
                                 cost_ == 0 ? 100 : cost_done_ * 100 / cost_);
  if (cost_done_ > 0) {
    const double left = std::chrono::duration<double>(elapsed).count() *
                        static_cast<double>(cost_ - cost_done_) / static_cast<double>(cost_done_);
    text += fmt::format("  {:.0f} s left", std::ceil(left));
  }
  return text + fmt::format("  {} failed", failed_);
}

void Progress::done(const RunResult& run) {
  ++done_[run.name];
  if (const auto group = groups_.find(run.name); group != groups_.end())
    cost_done_ += group->second.cost;
  const bool failed = run.met == false && run.baseline != "known";
  failed_ += failed;
  if (quiet_) return;
  if (terminal_ && failed) {
    moving_.show("");
    print_error(fmt::format("{}  {}  {}\n", to_word(run.verdict), run.name, run.label));
  }
  const Deadline now = Clock::now();
  const auto every = terminal_ ? std::chrono::nanoseconds(kMoveEvery) : kPlainEvery;
  if (now - last_ < every) return;
  last_ = now;
  const std::string text = line(run.name, now - start_);
  moving_.show(text);
  if (!terminal_) print_error(text + "\n");
}

}  // namespace lockstep
