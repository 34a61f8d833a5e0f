#include "sim/join/member.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "scenarios/base/clock.h"
#include "scenarios/json/json_text.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kRanksMax = 1 << 20;
constexpr int64_t kAgeMaxNs = int64_t{1} << 60;
constexpr size_t kTextMax = 1024;
constexpr int kSignalMax = 64;

std::string to_ascii(const Json& document) {
  return document.dump(-1, ' ', true, Json::error_handler_t::replace);
}

// As intervals: a node has its ranks in a row, and a join must be short.
Json encode_ranks(const std::vector<int64_t>& ranks) {
  Json intervals = Json::array();
  for (const int64_t rank : ranks) {
    if (!intervals.empty() && intervals.back()[1] == rank - 1)
      intervals.back()[1] = rank;
    else
      intervals.push_back({rank, rank});
  }
  return intervals;
}

// Empty where they are none.
std::vector<int64_t> decode_ranks(const Json& intervals) {
  std::vector<int64_t> ranks;
  for (const Json& interval : intervals) {
    const auto bounds = interval.get<std::vector<int64_t>>();
    if (bounds.size() != 2 || bounds[0] < 0 || bounds[1] < bounds[0] || bounds[1] >= kRanksMax)
      return {};
    if (!ranks.empty() && bounds[0] <= ranks.back()) return {};
    for (int64_t rank = bounds[0]; rank <= bounds[1]; ++rank) ranks.push_back(rank);
  }
  return ranks;
}

std::string text_at(const Json& document, const char* name) {
  return document.at(name).get<std::string>().substr(0, kTextMax);
}

Json to_json(const MemberIdentity& member) {
  return {{"nonce", member.nonce},       {"about", member.about},
          {"identity", member.identity}, {"ranks", encode_ranks(member.ranks)},
          {"host", member.host},         {"where", member.where}};
}

std::optional<MemberIdentity> member_of(const Json& document) {
  MemberIdentity member;
  member.nonce = text_at(document, "nonce");
  member.about = plain_ascii(text_at(document, "about"));
  member.identity = text_at(document, "identity");
  member.ranks = decode_ranks(document.at("ranks"));
  member.host = text_at(document, "host");
  member.where = plain_ascii(text_at(document, "where"));
  return member.ranks.empty() ? std::nullopt : std::optional(member);
}

Json to_json(const std::optional<ProcessState>& state) {
  if (!state) return nullptr;
  return {{"state", static_cast<int>(state->state)},
          {"syscall", state->syscall},
          {"wchan", state->wchan},
          {"store_key", state->store_key},
          {"stack", state->stack}};
}

std::optional<ProcessState> decode_state(const Json& document) {
  if (document.is_null()) return std::nullopt;
  ProcessState state;
  state.state = static_cast<char>(document.at("state").get<int>());
  state.syscall = document.at("syscall").get<std::string>();
  state.wchan = document.at("wchan").get<std::string>();
  state.store_key = document.at("store_key").get<std::string>();
  state.stack = document.at("stack").get<std::vector<std::string>>();
  return state;
}

}  // namespace

std::string plain_ascii(const std::string& text, size_t most) {
  std::string shown = text.substr(0, most);
  for (char& c : shown)
    if (c < ' ' || c > '~') c = '?';
  return shown;
}

std::string encode(const MemberIdentity& member) { return to_ascii(to_json(member)); }

std::optional<MemberIdentity> decode_member(const std::string& text) {
  try {
    return member_of(json_or_discarded(text));
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string encode(const std::vector<MemberIdentity>& members) {
  Json list = Json::array();
  for (const MemberIdentity& member : members) list.push_back(to_json(member));
  return to_ascii(list);
}

std::optional<std::vector<MemberIdentity>> decode_members(const std::string& text) {
  try {
    std::vector<MemberIdentity> members;
    const Json list = json_or_discarded(text);
    if (!list.is_array()) return std::nullopt;
    for (const Json& document : list) {
      const auto member = member_of(document);
      if (!member) return std::nullopt;
      members.push_back(*member);
    }
    return members;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string encode(const ProcessEnd& end) {
  return to_ascii({{"who", end.who},
                   {"rank", end.rank},
                   {"age_ns", now_ns() - end.time_ns},
                   {"exit_code", end.exit_code},
                   {"signal", end.signal},
                   {"by_launcher", end.by_launcher},
                   {"past_deadline", end.past_deadline},
                   {"state", to_json(end.state)}});
}

std::optional<ProcessEnd> decode_end(const std::string& text) {
  try {
    const Json document = json_or_discarded(text);
    ProcessEnd end;
    end.who = document.at("who").get<std::string>();
    end.rank = document.at("rank").get<int64_t>();
    const auto age_ns = document.at("age_ns").get<int64_t>();
    end.time_ns = now_ns() - std::clamp(age_ns, int64_t{0}, kAgeMaxNs);
    end.exit_code = document.at("exit_code").get<int>();
    end.signal = document.at("signal").get<int>();
    end.by_launcher = document.at("by_launcher").get<bool>();
    end.past_deadline = document.at("past_deadline").get<bool>();
    end.state = decode_state(document.at("state"));
    const bool possible = end.exit_code >= -1 && end.exit_code <= 255 && end.signal >= 0 &&
                          end.signal <= kSignalMax && age_ns >= 0;
    return possible ? std::optional(end) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace lockstep
