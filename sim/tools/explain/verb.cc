#include <fmt/format.h>
#include <unistd.h>
#include <memory>
#include <nlohmann/json.hpp>

#include "scenarios/base/text.h"
#include "scenarios/json/json_text.h"
#include "sim/cli/outputs.h"
#include "sim/cli/shared_options.h"
#include "sim/report/document.h"
#include "sim/tools/explain/attribution.h"
#include "sim/tools/explain/dump.h"
#include "sim/tools/tools.h"

namespace lockstep {
namespace {

struct ExplainOptions {
  std::vector<std::string> paths;
  std::string json;
};

int code_of(const FlightFinding& found) {
  if (!found.decided) return kExitInconclusive;
  return found.guilty.empty() ? kExitPass : kExitFail;
}

const char* next_step(FlightClass kind) {
  switch (kind) {
    case FlightClass::never_entered:
      return "look at what the process does instead: its stack (py-spy dump), its log, its host";
    case FlightClass::held:
      return "look at its GPU and links (dmesg, nvidia-smi): its peers had all they needed";
    case FlightClass::late:
      return "look at what the process did before: its data loader, its checkpoint, its host";
    case FlightClass::mismatch:
      return "look at where its program takes another branch, or has other shapes";
    case FlightClass::nothing:
      return "";
  }
  return "";
}

std::string what_happened(const FlightFinding& found) {
  if (found.guilty.size() > 1 && found.kind != FlightClass::mismatch)
    return "are to blame, each as said above";
  const std::string collective = fmt::format("{} {} of group {} ({})", found.operation,
                                             found.sequence, found.group, found.description);
  switch (found.kind) {
    case FlightClass::never_entered:
      return "never entered " + collective;
    case FlightClass::held:
      return "did not complete " + collective + ", which peers completed";
    case FlightClass::late:
      return fmt::format("came {:.0f} ms late to {}, after the time-out",
                         found.lateness_ms.value_or(0), collective);
    case FlightClass::mismatch:
      return fmt::format("did not call what the others called as collective {} of group {} ({})",
                         found.sequence, found.group, found.description);
    case FlightClass::nothing:
      return "";
  }
  return "";
}

std::string text_of(const FlightFinding& found, size_t dumps) {
  std::string text;
  for (const std::string& line : found.evidence) text += "  " + printable(line) + "\n";
  for (const std::string& line : found.missing) text += "  missing: " + printable(line) + "\n";
  if (!found.victims.empty() && (!found.guilty.empty() || !found.decided))
    text += "  victims: " + rank_list(found.victims) + "\n";
  if (!found.decided)
    text +=
        fmt::format("undecided{}; exit {}\n",
                    found.candidates.empty() ? "" : ": candidates " + rank_list(found.candidates),
                    kExitInconclusive);
  else if (found.guilty.empty())
    text += fmt::format("nothing to explain: in {} {} nobody waits for anybody\n", dumps,
                        plural(static_cast<int64_t>(dumps), "dump"));
  else
    text += fmt::format("{} {}; {}; exit {}\n", rank_list(found.guilty),
                        printable(what_happened(found)), next_step(found.kind), kExitFail);
  return text;
}

nlohmann::ordered_json as_json(const FlightFinding& found, size_t dumps) {
  return {{"schema_version", 1},
          {"verdict", !found.decided         ? "undecided"
                      : found.guilty.empty() ? "nothing"
                                             : "explained"},
          {"dumps", dumps},
          {"guilty", found.guilty},
          {"candidates", found.candidates},
          {"victims", found.victims},
          {"class", name_of(found.kind)},
          {"group", or_null(found.group)},
          {"group_description", or_null(found.description)},
          {"collective", or_null(found.operation)},
          {"sequence", found.sequence < 0 ? nlohmann::ordered_json(nullptr)
                                          : nlohmann::ordered_json(found.sequence)},
          {"lateness_ms", or_null(found.lateness_ms)},
          {"evidence", found.evidence},
          {"missing", found.missing},
          {"exit_code", code_of(found)}};
}

int explain(const ExplainOptions& options) {
  InputErrors errors;
  check_output("--json", options.json, &errors);
  if (!errors.empty()) return bad_input(errors);
  const auto dumps = read_flight_dumps(options.paths);
  if (!dumps) return bad_input(dumps.errors(), options.json);
  const FlightFinding found = attribute(dumps.value());
  const size_t count = dumps.value().size();
  const int code = write_output("--json", options.json, code_of(found),
                                [&] { return to_text(as_json(found, count)); });
  return print_result(text_of(found, count), code);
}

void add_explain(CLI::App& app, std::function<int()>* action) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* verb = app.add_subcommand(
      "explain", "Say from flight recorder dumps of a hung PyTorch job which rank is to blame.");
  verb->add_option("PATH", options->paths, "Dumps, or folders of them: one a rank")->required();
  verb->add_option("--json", options->json, "Write the answer as JSON")
      ->option_text("FILE")
      ->group("Output");
  verb->footer(R"(Examples
  lockstep explain dumps
  lockstep explain dumps --json answer.json
  lockstep explain /tmp/nccl_trace_rank_0 /tmp/nccl_trace_rank_1

Exit codes
  0      nobody waits for anybody
  1      explained: the guilty ranks are named
  2      bad input, or an output could not be written
  3      undecided, with what is missing)");
  verb->callback([=] { *action = [=] { return explain(*options); }; });
}

}  // namespace

Tool explain_tool() {
  return {.verb = "explain", .add = add_explain, .forms = {{"", "", {" --json "}}}};
}

}  // namespace lockstep
