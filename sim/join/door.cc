#include "sim/join/door.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>

#include "scenarios/base/clock.h"
#include "scenarios/base/random_bytes.h"
#include "scenarios/json/exact.h"
#include "scenarios/json/json_text.h"
#include "sim/join/wire.h"
#include "sim/launch/run_files.h"

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
    const auto bounds = get_exact<std::vector<int64_t>>(interval);
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
                   {"state", end.state ? as_json(*end.state) : Json(nullptr)}});
}

std::optional<ProcessEnd> decode_end(const std::string& text) {
  try {
    const Json document = json_or_discarded(text);
    ProcessEnd end;
    end.who = document.at("who").get<std::string>();
    end.rank = whole_number(document.at("rank"));
    const auto age_ns = whole_number(document.at("age_ns"));
    end.time_ns = now_ns() - std::clamp(age_ns, int64_t{0}, kAgeMaxNs);
    end.exit_code = get_exact<int>(document.at("exit_code"));
    end.signal = get_exact<int>(document.at("signal"));
    end.by_launcher = document.at("by_launcher").get<bool>();
    end.past_deadline = document.at("past_deadline").get<bool>();
    if (const Json& state = document.at("state"); !state.is_null())
      end.state = process_state_from(state);
    const int64_t waited_ns = end.state ? end.state->core_wait_ns : 0;
    const bool possible = waited_ns >= 0 && waited_ns <= kAgeMaxNs && end.exit_code >= -1 &&
                          end.exit_code <= 255 && end.signal >= 0 && end.signal <= kSignalMax &&
                          age_ns >= 0;
    return possible ? std::optional(end) : std::nullopt;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

namespace {

using std::chrono::milliseconds;

constexpr const char* kVersion = "1";
constexpr size_t kStrangersMax = 256;
constexpr milliseconds kGoodbyePatience{1000};
constexpr int kAtATime = 64;
constexpr int64_t kToldMax = 5;

UniqueFd ticking_timer() {
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const itimerspec every{{0, 500'000'000}, {0, 500'000'000}};
  ::timerfd_settime(timer.get(), 0, &every, nullptr);
  return timer;
}

// What a proof is about: no two different lists give the same text.
std::string joined_text(const Wire::Message& fields) {
  std::string text;
  for (const std::string& field : fields) text += fmt::format("{}:{}", field.size(), field);
  return text;
}

std::string proof_of(const std::string& key, const Wire::Message& fields) {
  return hmac_sha256(key, joined_text(fields));
}

}  // namespace

Door::Door(EventLoop& loop, UniqueFd listener, Options options, Handlers handlers)
    : loop_(loop),
      listener_(std::move(listener)),
      timer_(ticking_timer()),
      options_(std::move(options)),
      handlers_(std::move(handlers)) {
  loop_.watch(listener_.get(), [this] { on_connection(); });
  loop_.watch(timer_.get(), [this] { send_away_late_ones(); });
}

Door::~Door() {
  loop_.forget(timer_.get());
  loop_.forget(listener_.get());
  for (const auto& [number, stranger] : strangers_) loop_.forget(stranger.wire.fd());
}

void Door::on_connection() {
  for (int i = 0; i < kAtATime; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const bool no_room = !fd.valid() && (errno == EMFILE || errno == ENFILE);
    if ((no_room || strangers_.size() >= kStrangersMax) && !strangers_.empty())
      send_away(strangers_.begin()->first);
    if (fd.valid())
      admit(std::move(fd));
    else if (!no_room && errno != ECONNABORTED && errno != EINTR)
      return;
  }
}

void Door::admit(UniqueFd fd) {
  const int64_t number = ++last_;
  Stranger& stranger = strangers_[number];
  stranger.from = peer_address(fd.get());
  stranger.wire = Wire(std::move(fd));
  stranger.nonce = random_bytes(kNonceBytes);
  stranger.until = deadline_after(options_.patience);
  loop_.watch(stranger.wire.fd(), [this, number] { on_ready(number); });
  stranger.wire.send({"lockstep", kVersion, stranger.nonce});
}

void Door::on_ready(int64_t number) {
  Wire::Message message;
  while (true) {
    const auto found = strangers_.find(number);
    if (found == strangers_.end()) return;
    const Channel::Got got = found->second.wire.receive(&message);
    if (got == Channel::Got::nothing) return;
    if (got == Channel::Got::closed || !handle(number, found->second, message))
      return send_away(number);
  }
}

// False for what no member says. It may be gone afterwards.
bool Door::handle(int64_t number, Stranger& stranger, const Wire::Message& message) {
  const bool join = message.size() == 4 && message[0] == "join" &&
                    message[1].size() == kNonceBytes && !stranger.answered;
  if (join) return handle_join(number, stranger, message);
  if (!stranger.answered)
    tell(fmt::format("closed a connection from {}: it does not join", stranger.from));
  return false;
}

bool Door::handle_join(int64_t number, Stranger& stranger, const Wire::Message& message) {
  const auto member = decode_member(message[2]);
  if (!member) {
    tell(fmt::format("closed a connection from {}: it names no ranks", stranger.from));
    return false;
  }
  if (!options_.nonce.empty() && member->nonce != options_.nonce)
    return answer(stranger, {"stale"});
  const ConnectionKeys keys = connection_keys(options_.secret, stranger.nonce, message[1]);
  if (!equal_bytes(message[3], proof_of(keys.member_proves, {"join", message[2]}))) {
    tell(fmt::format("refused to let {} join: {}", stranger.from, problem_of(*member)));
    return answer(stranger,
                  {"refused",
                   options_.keyed ? "it does not know the job's key"
                                  : "it has another scenario, option, program, job or world size",
                   ""});
  }
  const std::string why = handlers_.decide(*member);
  const Wire::Message said = why.empty() ? Wire::Message{"ok"} : Wire::Message{"refused", why};
  Wire::Message proved = said;
  proved.push_back(proof_of(keys.coordinator_proves, said));
  if (!why.empty()) {
    if (!answer(stranger, proved)) return false;
    tell(fmt::format("refused to let {} join: {}", stranger.from, why));
    handlers_.refused(*member, why);
    return true;
  }
  if (!stranger.wire.send(proved)) return false;
  Wire wire = std::move(stranger.wire);
  loop_.forget(wire.fd());
  strangers_.erase(number);
  wire.seal(keys.to_member, keys.to_coordinator);
  handlers_.enter(std::move(wire), *member);
  return true;
}

// The last that it is told; it closes the connection when it has read that.
bool Door::answer(Stranger& stranger, const Wire::Message& message) {
  stranger.answered = true;
  stranger.until = std::min(stranger.until, deadline_after(kGoodbyePatience));
  const bool sent = stranger.wire.send(message);
  stranger.wire.end_output();
  return sent;
}

// For our own log, which the stranger does not see.
std::string Door::problem_of(const MemberIdentity& member) const {
  if (options_.keyed) return "it does not know the job's key";
  if (member.about != options_.about)
    return fmt::format("it has \"{}\", rank 0 has \"{}\"", member.about, options_.about);
  return "it has another scenario or other options than rank 0";
}

void Door::send_away(int64_t number) {
  const auto found = strangers_.find(number);
  if (found == strangers_.end()) return;
  loop_.forget(found->second.wire.fd());
  strangers_.erase(found);
}

void Door::send_away_late_ones() {
  uint64_t ticks = 0;
  (void)!::read(timer_.get(), &ticks, sizeof ticks);
  std::vector<int64_t> late;
  for (const auto& [number, stranger] : strangers_)
    if (time_left(stranger.until).count() == 0) late.push_back(number);
  for (const int64_t number : late) send_away(number);
}

void Door::tell(const std::string& what) {
  if (!options_.tell || told_ > kToldMax) return;
  options_.tell(++told_ <= kToldMax ? what : "further strangers are refused without a word");
}

namespace {

// The next message; none once the connection is closed, or at the deadline.
std::optional<Wire::Message> next_message(EventLoop& loop, Wire& wire, Deadline deadline) {
  Wire::Message message;
  while (true) {
    const Channel::Got got = wire.receive(&message);
    if (got == Channel::Got::message) return message;
    if (got == Channel::Got::closed || time_left(deadline).count() == 0) return std::nullopt;
    loop.wait(std::min(milliseconds(50), time_left(deadline)));
  }
}

Joined not_joined(bool refused, std::string why) { return {Wire(), refused, std::move(why)}; }

Joined join_over(EventLoop& loop, Wire& wire, const MemberIdentity& member,
                 const std::string& secret, Deadline deadline) {
  const auto hello = next_message(loop, wire, deadline);
  if (!hello) return not_joined(false, "it says nothing");
  if (hello->size() != 3 || hello->at(0) != "lockstep" || hello->at(1) != kVersion ||
      hello->at(2).size() != kNonceBytes)
    return not_joined(false, "another program, or another version of lockstep");
  const std::string nonce = random_bytes(kNonceBytes), text = encode(member);
  const ConnectionKeys keys = connection_keys(secret, hello->at(2), nonce);
  wire.send({"join", nonce, text, proof_of(keys.member_proves, {"join", text})});
  const auto answer = next_message(loop, wire, deadline);
  if (!answer) return not_joined(false, "no answer to the join");
  if (answer->front() == "stale") return not_joined(false, "it is another run's");
  if (answer->front() == "refused" && answer->size() == 3)
    return not_joined(true, plain_ascii(answer->at(1), 2000));
  if (answer->size() != 2 || answer->front() != "ok" ||
      !equal_bytes(answer->back(), proof_of(keys.coordinator_proves, {"ok"})))
    return not_joined(false, "who answers there is not rank 0 of this job");
  wire.seal(keys.to_coordinator, keys.to_member);
  return {std::move(wire), false, ""};
}

}  // namespace

Joined ask_to_join(EventLoop& loop, Wire wire, const MemberIdentity& member,
                   const std::string& secret, Deadline deadline) {
  const int fd = wire.fd();
  loop.watch(fd, [] {});  // only to wake up
  Joined joined = join_over(loop, wire, member, secret, deadline);
  loop.forget(fd);
  return joined;
}

}  // namespace lockstep
