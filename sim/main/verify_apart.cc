#include "sim/main/verify_apart.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "scenarios/base/file.h"
#include "scenarios/json/json_text.h"
#include "sim/cli/worker_program.h"
#include "sim/main/lockstep_main.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr const char* kApart = "--lockstep";
constexpr std::chrono::hours kMost(1);

// For one call: scenarios that are text, and the result. Removed again.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "lockstep-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error(name + ": cannot be made");
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

std::string text_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string divergence_text(const Json& divergence) {
  std::string text = fmt::format("step {}, {} {}", divergence["step"].dump(),
                                 text_of(divergence, "state_kind"), text_of(divergence, "tensor"));
  if (divergence["bucket"].is_number())
    text += fmt::format(", bucket {}", divergence["bucket"].dump());
  text += fmt::format(", element {}: {} where one device has {} (lane {}); cause {}",
                      divergence["element"].dump(), divergence["run_value"].dump(),
                      divergence["golden_value"].dump(), text_of(divergence, "lane"),
                      text_of(divergence, "cause"));
  const std::string why = text_of(divergence, "explanation");
  return why.empty() ? text : text + ": " + why;
}

std::string failure_text(const Json& failure) {
  std::string text =
      failure["rank"].is_number() ? fmt::format("rank {}: ", failure["rank"].dump()) : "";
  text += fmt::format("{} in step {}: {}", text_of(failure, "kind"), failure["step"].dump(),
                      text_of(failure, "message"));
  for (const Json& line : failure["log_tail"]) text += "\n    " + line.get<std::string>();
  return text;
}

// What lanes say of a run that neither diverged at a known place nor failed.
std::string lanes_text(const Json& lanes) {
  std::vector<std::string> parts;
  for (const auto& [name, lane] : lanes.items())
    if (from_word<LaneVerdict>(text_of(lane, "verdict")) != LaneVerdict::pass)
      parts.push_back(
          fmt::format("lane {} {}: {}", name, text_of(lane, "verdict"), text_of(lane, "reason")));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string finding_of(const Json& run, bool is_file) {
  std::string name = text_of(run, "name");
  if (const std::string label = text_of(run, "label"); !label.empty()) name += " (" + label + ")";
  const Json& divergence = run["first_divergence"];
  const Json& failure = run["failure"];
  const std::string what = !divergence.is_null() ? divergence_text(divergence)
                           : !failure.is_null()  ? failure_text(failure)
                                                 : lanes_text(run["lanes"]);
  const std::string text = fmt::format("{}: {}: {}", name, text_of(run, "verdict"), what);
  return is_file ? text + "\n    again: " + text_of(run, "again") : text;
}

bool compares_with_one_device(const Json& run) {
  for (const auto& [name, lane] : run["lanes"].items())
    if (name != "replica" &&
        from_word<LaneVerdict>(text_of(lane, "verdict")) == LaneVerdict::pass &&
        from_word<ControlVerdict>(text_of(lane, "control")) == ControlVerdict::detected)
      return true;
  return false;
}

ApartVerdict verdict_of(const Json& document, bool is_file) {
  ApartVerdict result;
  result.verdict = Verdict::pass;
  result.against_one_device = !document["runs"].empty();
  for (const Json& run : document["runs"]) {
    const Verdict verdict =
        from_word<Verdict>(text_of(run, "verdict")).value_or(Verdict::inconclusive);
    result.verdict = worse_verdict(result.verdict, verdict);
    result.against_one_device = result.against_one_device && compares_with_one_device(run);
    if (verdict != Verdict::pass) result.findings.push_back(finding_of(run, is_file));
    if (!run["first_divergence"].is_null())
      result.causes.push_back(text_of(run["first_divergence"], "cause"));
  }
  for (const Json& error : document["errors"]) {
    result.verdict = worse_verdict(result.verdict, Verdict::inconclusive);
    const std::string allowed = text_of(error, "allowed");
    result.findings.push_back(text_of(error, "message") +
                              (allowed.empty() ? "" : "; allowed: " + allowed));
  }
  if (document["runs"].empty() && result.findings.empty())
    result.findings.emplace_back("no run was selected");
  if (document["runs"].empty()) result.verdict = Verdict::inconclusive;
  return result;
}

ApartVerdict inconclusive(const std::string& why) {
  return {Verdict::inconclusive, false, {}, {why}};
}

}  // namespace

ApartVerdict verify_apart(const std::string& scenario, const std::vector<std::string>& words) {
  const Folder folder;
  const size_t first = scenario.find_first_not_of(" \t\n");
  const bool is_file = first == std::string::npos || scenario[first] != '{';
  const std::string path = is_file ? scenario : folder.file("scenario.json");
  if (!is_file) std::ofstream(path) << scenario;
  const std::string result = folder.file("result.json");
  std::vector<std::string> command = {
      fs::read_symlink("/proc/self/exe").string(), kApart, "verify", path, "--json", result, "-q"};
  command.insert(command.end(), words.begin(), words.end());
  std::string why = "wrote no result";
  output_of(command, kMost, &why);
  const Json document = json_or_discarded(read_foreign_file(result, kResultBytesMost).value_or(""));
  if (document.is_discarded()) return inconclusive("lockstep verify " + path + " " + why);
  return verdict_of(document, is_file);
}

void serve_tests(int argc, char** argv) {
  if (argc < 2 || std::strcmp(argv[1], kApart) != 0) {
    serve_if_worker(argc, argv);
    return;
  }
  std::string name = std::string(argv[0]) + " " + kApart;  // by which runs can be repeated
  argv[1] = name.data();
  std::exit(main(argc - 1, argv + 1));
}

}  // namespace lockstep
