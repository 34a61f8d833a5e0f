#include "sim/tools/explain/log_prefix.h"

#include <algorithm>
#include <array>

#include "scenarios/base/text.h"
#include "sim/tools/explain/log_fields.h"
#include "sim/tools/explain/log_record.h"

namespace lockstep {
namespace {

constexpr size_t kPrefixMost = 240;  // before which "[rank3]:" may stand

constexpr size_t kHostMost = 80, kHostsMost = 4096;
constexpr std::array<std::string_view, 6> kLineBegins = {
    "[rank", "[default", "[trainer", "[worker", "[1,", "Traceback (most recent call last):"};

size_t skip_colors(std::string_view line) {
  size_t at = 0;
  while (line.substr(at).starts_with("\x1b[")) {
    const size_t end = line.find('m', at);
    if (end == std::string_view::npos) break;
    at = end + 1;
  }
  return at;
}

// "2024-05-01T10:00:00.123456789Z stderr F ", as containers write it; without a zone it is the
// program's own, and ends what stands before the line as well.
size_t skip_time(std::string_view line) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd";
  if (line.size() < kForm.size()) return 0;
  for (size_t at = 0; at < kForm.size(); ++at) {
    const char c = line[at];
    if (kForm[at] == 'd' ? !is_digit(c) : c != kForm[at]) return 0;
  }
  size_t at = kForm.size();
  while (at < line.size() && (is_digit(line[at]) || line[at] == '.')) ++at;
  if (line.substr(at).starts_with("Z")) ++at;
  if (line.substr(at).starts_with("+") && line.size() >= at + 6) at += 6;
  if (!line.substr(at).starts_with(" ")) return 0;
  ++at;
  for (const std::string_view stream : {"stdout F ", "stderr F "})
    if (line.substr(at).starts_with(stream)) at += stream.size();
  return at;
}

// "(TrainWorker pid=3264030, ip=10.1.101.236) ", as Ray writes it, and vLLM, "(EngineCore pid=7) ".
size_t skip_actor(std::string_view line) {
  if (!line.starts_with("(")) return 0;
  const size_t end = line.find(')');
  if (end == std::string_view::npos || end > kPrefixMost) return 0;
  if (line.substr(0, end).find("pid=") == std::string_view::npos) return 0;
  const size_t colored = end + 1 + skip_colors(line.substr(end + 1));
  return colored + (line.substr(colored).starts_with(" ") ? 1 : 0);
}

// "worker-1  | ", as docker compose writes it.
size_t skip_service(std::string_view line) {
  size_t at = 0;
  const auto in_name = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
  };
  while (at < line.size() && in_name(line[at])) ++at;
  const size_t name = at;
  while (at < line.size() && line[at] == ' ') ++at;
  if (name == 0 || at == name || at > kPrefixMost || !line.substr(at).starts_with("| ")) return 0;
  at += 2;
  return at + skip_colors(line.substr(at));
}

// "node-12: ", as pdsh and clush write it: lower case with a digit. Programs write names with a
// colon as well, so it must be known, or stand before words that begin a line of ours.
size_t skip_host(std::string_view line, LogHosts* hosts) {
  const size_t end = line.substr(0, kHostMost).find(": ");
  if (end == std::string_view::npos) return 0;
  const std::string_view name = line.substr(0, end), rest = line.substr(end + 2);
  if (hosts != nullptr && hosts->contains(name)) return end + 2;
  const auto in_host = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '.';
  };
  if (!std::all_of(name.begin(), name.end(), in_host)) return 0;
  if (std::none_of(name.begin(), name.end(), is_digit)) return 0;
  if (std::all_of(name.begin(), name.end(), is_digit)) return 0;  // srun's label
  if (std::none_of(kLineBegins.begin(), kLineBegins.end(),
                   [&](std::string_view begin) { return rest.starts_with(begin); }))
    return 0;
  if (hosts != nullptr && hosts->size() < kHostsMost) hosts->emplace(name);
  return end + 2;
}

// The number of "(VllmWorker rank=3 pid=406) " (vLLM to 0.10) or "(Worker_TP3_EP3 pid=1610) ", or
// -1. It counts the workers of one engine. "(Worker_DP1_TP3 " and "(Worker_PP1_TP3 " tell places in
// a mesh, of which no number is a rank.
int64_t worker_of(std::string_view actor) {
  for (const std::string_view name : {"(VllmWorker rank=", "(Worker_TP"}) {
    if (!actor.starts_with(name)) continue;
    const std::string_view number = actor.substr(name.size());
    const size_t end = std::min(number.find_first_not_of("0123456789"), number.size());
    if (end > 0 && (number.substr(end).starts_with(" ") || number.substr(end).starts_with("_EP")))
      return rank_at(number.substr(0, end)).value_or(-1);
  }
  return -1;
}

// The last one counts: of two at once, the first is of a line that another process broke off.
void take_worker(std::string_view line, LogPrefix* prefix) {
  if (skip_actor(line) == 0) return;
  prefix->rank = worker_of(line);
  prefix->owner = prefix->rank < 0 ? LineOwner::nobody : LineOwner::node;
}

std::string_view without_wrapping(std::string_view line, LogHosts* hosts, LogPrefix* prefix) {
  for (int layers = 0; layers < 4; ++layers) {
    size_t skipped = 0;
    take_worker(line, prefix);
    for (const auto skip : {skip_colors, skip_time, skip_actor, skip_service})
      if (skipped == 0) skipped = skip(line);
    if (skipped == 0) skipped = skip_host(line, hosts);
    if (skipped == 0) break;
    line.remove_prefix(skipped);
  }
  return line;
}

bool take_bracket(std::string_view open, std::string_view close, LogPrefix* prefix, size_t most) {
  if (!prefix->rest.starts_with(open)) return false;
  const size_t end = prefix->rest.find(close);
  if (end == std::string_view::npos || end > open.size() + most) return false;
  const auto rank = number_in<int64_t>(prefix->rest.substr(open.size(), end - open.size()));
  if (!rank || *rank < 0 || *rank >= kLogRankMost) return false;
  prefix->rank = *rank;
  prefix->rest.remove_prefix(end + close.size());
  return true;
}

// torchrun's, by the role of its processes.
bool take_role(LogPrefix* prefix) {
  for (const std::string_view role : {"[default", "[trainer", "[worker"})
    if (take_bracket(role, "]:", prefix, 6)) return true;
  return false;
}

// "[3]<stderr>:" of horovodrun.
bool take_stream(LogPrefix* prefix) {
  LogPrefix taken = *prefix;
  if (!take_bracket("[", "]<std", &taken, 6)) return false;
  if (!taken.rest.starts_with("err>:") && !taken.rest.starts_with("out>:")) return false;
  taken.rest.remove_prefix(5);
  *prefix = taken;
  return true;
}

// "[rank=3] || " of Determined's log, behind a time and a container's name.
bool take_wrapped_rank(LogPrefix* prefix) {
  constexpr std::string_view kOpen = "[rank=";
  const size_t at = prefix->rest.substr(0, kPrefixMost).find(kOpen);
  if (at == std::string_view::npos || (at > 0 && prefix->rest[at - 1] != ' ')) return false;
  LogPrefix taken = *prefix;
  taken.rest.remove_prefix(at);
  if (!take_bracket(kOpen, "] ", &taken, 6)) return false;
  if (taken.rest.starts_with("|| ")) taken.rest.remove_prefix(3);
  *prefix = taken;
  return true;
}

// "[1,3]<stderr>:" of mpirun; "[prterun-node-4711@1,3]<stderr>:" since Open MPI 5;
// "[1,mpirank:3,algo-1]<stderr>:" of SageMaker; a collector of logs may put anything before them.
bool take_tagged(LogPrefix* prefix) {
  const size_t stream = prefix->rest.substr(0, kPrefixMost).find("]<std");
  if (stream == std::string_view::npos) return false;
  const size_t open = prefix->rest.rfind('[', stream);
  if (open == std::string_view::npos || (open > 0 && prefix->rest[open - 1] != ' ')) return false;
  const std::string_view line = prefix->rest.substr(open);
  const size_t close = line.find(">:");
  if (close == std::string_view::npos || close > 120) return false;
  size_t at = 1;
  if (line.starts_with("[prterun-")) at = std::min(line.find('@'), close) + 1;
  if (!line.substr(at).starts_with("1,")) return false;
  std::string_view number = line.substr(at + 2);
  if (number.starts_with("mpirank:")) number.remove_prefix(8);  // SageMaker's
  const auto rank = rank_at(number);
  if (!rank) return false;
  prefix->rank = *rank;
  prefix->rest.remove_prefix(open + close + 2);
  return true;
}

// "3: " of srun --label, with spaces before it.
bool take_label(LogPrefix* prefix) {
  size_t at = 0;
  while (at < prefix->rest.size() && at < 6 && prefix->rest[at] == ' ') ++at;
  size_t end = at;
  while (end < prefix->rest.size() && end - at < 6 && is_digit(prefix->rest[end])) ++end;
  if (end == at || !prefix->rest.substr(end).starts_with(": ")) return false;
  const auto rank = rank_at(prefix->rest.substr(at));
  if (!rank) return false;
  prefix->rank = *rank;
  prefix->rest.remove_prefix(end + 2);
  return true;
}

// "[3] " of mpiexec -prepend-rank (MPICH, Intel MPI).
bool take_number(LogPrefix* prefix) { return take_bracket("[", "] ", prefix, 6); }

void take_launcher(LogPrefix* prefix) {
  if (take_role(prefix))
    prefix->owner = LineOwner::node;
  else if (take_tagged(prefix) || take_stream(prefix) || take_wrapped_rank(prefix))
    prefix->owner = LineOwner::job;
  else if (take_label(prefix))
    prefix->owner = LineOwner::label;
  else if (take_number(prefix))
    prefix->owner = LineOwner::number;
  prefix->rest.remove_prefix(skip_colors(prefix->rest));
  // A launcher starts engines, whose workers are several.
  take_worker(prefix->rest, prefix);
  prefix->rest.remove_prefix(skip_actor(prefix->rest));
  if (prefix->local()) prefix->rest.remove_prefix(python_record_head(prefix->rest));
}

// "[2025-01-29 08:52:44 TP3] " of sglang's schedulers, or " TP3 EP3] ", which count those of all
// nodes. " DP1 TP3] " and " PP1 TP3] " tell places in a mesh; behind an actor's name it is one of
// several engines.
bool take_scheduler(std::string_view line, LogPrefix* prefix) {
  constexpr std::string_view kForm = "[dddd-dd-dd dd:dd:dd TP";
  if (line.size() < kForm.size()) return false;
  for (size_t at = 0; at < kForm.size(); ++at)
    if (kForm[at] == 'd' ? !is_digit(line[at]) : line[at] != kForm[at]) return false;
  const std::string_view rest = line.substr(kForm.size());
  const auto rank = rank_at(rest);
  const size_t close = rest.find("] ");
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (!rank || close == std::string_view::npos || close > 16) return false;
  if (close != digits && !rest.substr(digits).starts_with(" EP")) return false;
  prefix->rank = *rank;
  prefix->owner = LineOwner::job;
  prefix->of_record = true;
  prefix->rest = rest.substr(close + 2);
  return true;
}

// PyTorch's, at the line's start or behind what others put there.
bool take_process(LogPrefix* prefix) {
  LogPrefix taken = *prefix;
  while (true) {
    const size_t at = taken.rest.substr(0, kPrefixMost).find("[rank");
    if (at == std::string_view::npos) return false;
    taken.rest.remove_prefix(at);
    if (take_bracket("[rank", "]:", &taken, 6)) break;
    taken.rest.remove_prefix(1);
  }
  *prefix = taken;
  return true;
}

}  // namespace

LogPrefix log_prefix(std::string_view line, LogHosts* hosts) {
  LogPrefix prefix;
  if (take_scheduler(line, &prefix)) return prefix;
  prefix.rest = without_wrapping(line, hosts, &prefix);
  take_launcher(&prefix);
  const LogPrefix launcher = prefix;
  if (take_process(&prefix)) {
    const int64_t first = prefix.rank;
    if (take_bracket("[rank", "]:", &prefix, 6)) {
      prefix.node_rank = first;
      prefix.role_rank = true;
    } else if (launcher.owner == LineOwner::node) {
      prefix.node_rank = launcher.rank;
    }
    prefix.owner = LineOwner::process;
    prefix.uncaught = prefix.rest.empty() || prefix.rest[0] == ' ';
  }
  if (prefix.rest.starts_with(" ") && (prefix.uncaught || prefix.local()))
    prefix.rest.remove_prefix(1);
  return prefix;
}

std::string without_escapes(std::string_view line) {
  std::string plain;
  plain.reserve(line.size());
  while (!line.empty()) {
    const size_t at = std::min(line.find("\x1b["), line.size());
    plain += line.substr(0, at);
    line.remove_prefix(at);
    if (line.empty()) break;
    const size_t end = line.find_first_not_of("0123456789;?", 2);
    line.remove_prefix(std::min(end == std::string_view::npos ? end : end + 1, line.size()));
  }
  return plain;
}

std::string_view after_time(std::string_view line) { return line.substr(skip_time(line)); }

bool is_time_alone(std::string_view line) {
  constexpr std::string_view kForm = "dddd-dd-dd?dd:dd:dd";
  constexpr size_t kMost = 35;
  if (line.size() < kForm.size() || line.size() > kMost) return false;
  for (size_t at = 0; at < kForm.size(); ++at) {
    const char c = line[at];
    const bool fits = kForm[at] == 'd'   ? is_digit(c)
                      : kForm[at] == '?' ? c == 'T' || c == ' '
                                         : c == kForm[at];
    if (!fits) return false;
  }
  return line.substr(kForm.size()).find_first_not_of("0123456789.,:+-Z ") == std::string_view::npos;
}

std::optional<int64_t> rank_before(std::string_view line, size_t end) {
  const size_t at = line.substr(0, end).rfind("[rank");
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = line.substr(at + 5);
  const size_t close = rest.find("]:");
  if (close == 0 || close > 6) return std::nullopt;
  const auto rank = number_in<int64_t>(rest.substr(0, close));
  return rank && *rank >= 0 && *rank < kLogRankMost ? rank : std::nullopt;
}

}  // namespace lockstep
