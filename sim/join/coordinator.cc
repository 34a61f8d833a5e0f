#include "sim/join/coordinator.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "sim/join/tcp.h"
#include "sim/launch/files.h"
#include "sim/launch/process_run.h"
#include "sim/launch/stored_run.h"

namespace lockstep {
namespace {

constexpr size_t kClientsMax = 4096;
constexpr int kSiteTailLines = 20;
constexpr int64_t kNobody = -1;

using Json = nlohmann::json;

Json site_json(const MemberIdentity& member) {
  return {{"nonce", member.nonce},
          {"identity", member.identity},
          {"ranks", member.ranks},
          {"host", member.host},
          {"where", member.where}};
}

// Only what a rank or golden run leaves, in this directory.
bool is_run_file(const std::string& name) {
  return (name.starts_with("rank-") || name.starts_with("golden-")) &&
         name.find('/') == std::string::npos && name.find('\0') == std::string::npos &&
         name.size() < 100;
}

ProcessEnd lost_end(int64_t rank) {
  ProcessEnd end;
  end.who = fmt::format("rank-{}", rank);
  end.rank = rank;
  end.time_ns = now_ns();
  end.signal = SIGKILL;  // a member takes its processes along
  return end;
}

Json site_json(const std::optional<ProcessState>& state) {
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

std::string encode(const MemberIdentity& member) {
  return site_json(member).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::optional<MemberIdentity> decode_member(const std::string& text) {
  const Json document = Json::parse(text, nullptr, false);
  try {
    MemberIdentity member;
    member.nonce = document.at("nonce").get<std::string>();
    member.identity = document.at("identity").get<std::string>();
    member.ranks = document.at("ranks").get<std::vector<int64_t>>();
    member.host = document.at("host").get<std::string>();
    member.where = document.at("where").get<std::string>();
    return member;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::string encode(const ProcessEnd& end) {
  const Json document = {{"who", end.who},
                         {"rank", end.rank},
                         {"age_ns", now_ns() - end.time_ns},
                         {"exit_code", end.exit_code},
                         {"signal", end.signal},
                         {"by_launcher", end.by_launcher},
                         {"past_deadline", end.past_deadline},
                         {"state", site_json(end.state)}};
  return document.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::optional<ProcessEnd> decode_end(const std::string& text) {
  const Json document = Json::parse(text, nullptr, false);
  try {
    ProcessEnd end;
    end.who = document.at("who").get<std::string>();
    end.rank = document.at("rank").get<int64_t>();
    end.time_ns = now_ns() - document.at("age_ns").get<int64_t>();
    end.exit_code = document.at("exit_code").get<int>();
    end.signal = document.at("signal").get<int>();
    end.by_launcher = document.at("by_launcher").get<bool>();
    end.past_deadline = document.at("past_deadline").get<bool>();
    end.state = decode_state(document.at("state"));
    return end;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

Coordinator::Coordinator(EventLoop& loop, UniqueFd listener, Options options)
    : loop_(loop),
      listener_(std::move(listener)),
      options_(std::move(options)),
      store_([this](int64_t client, const Wire::Message& message) { reply(client, message); }),
      taken_(static_cast<size_t>(options_.world_size)) {
  loop_.watch(listener_.get(), [this] { on_connection(); });
}

Coordinator::~Coordinator() {
  loop_.forget(listener_.get());
  for (const auto& [number, client] : clients_) loop_.forget(client.wire.fd());
}

void Coordinator::on_connection() {
  while (true) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) return;
    if (clients_.size() >= kClientsMax) continue;
    const int64_t number = ++last_client_;
    Client& client = clients_[number];
    client.wire = Wire(std::move(fd));
    loop_.watch(client.wire.fd(), [this, number] { on_readable(number); });
  }
}

void Coordinator::on_readable(int64_t client) {
  Wire::Message message;
  while (true) {
    const auto found = clients_.find(client);
    if (found == clients_.end()) return;
    const Channel::Got got = found->second.wire.receive(&message);
    if (got == Channel::Got::nothing) return;
    if (got == Channel::Got::closed || !handle(client, message)) return lose(client);
  }
}

// False for what no member says.
bool Coordinator::handle(int64_t client, const Wire::Message& message) {
  if (message.size() < 2) return false;
  const std::string &operation = message[0], &id = message[1];
  if (operation == "join" && message.size() == 3) {
    handle_join(client, id, message[2]);
    return true;
  }
  if (!clients_.at(client).member) return false;
  if (operation == "clock") {
    reply(client, {id, std::to_string(now_ns())});
    return true;
  }
  if (store_.handle(client, message)) return true;
  if (!handle_run(client, message)) return false;
  reply(client, {id, "ok"});
  return true;
}

bool Coordinator::handle_run(int64_t client, const Wire::Message& message) {
  if (message.size() < 3 || message[2] != std::to_string(run_)) return false;
  const std::string& operation = message[0];
  if (operation == "done") {
    clients_.at(client).done = true;
  } else if (operation == "end" && message.size() == 4) {
    const auto end = decode_end(message[3]);
    if (!end) return false;
    note_end(*end);
  } else if (operation == "golden_problem" && message.size() == 4) {
    if (outcome_.golden_problem.empty()) outcome_.golden_problem = message[3];
  } else if (operation == "file" && message.size() == 5) {
    return append_file(message[3], message[4]);
  } else {
    return false;
  }
  return true;
}

// Nobody else will come in the place of one that is refused: all end then, in the rendezvous.
void Coordinator::handle_join(int64_t client, const std::string& id, const std::string& text) {
  const auto member = decode_member(text);
  std::string why;
  const std::string answer = member ? join(client, *member, &why) : "stale";
  reply(client, {id, answer, why});
  if (answer == "ok" && all_joined()) publish_hosts();
  if (answer != "refused" || over_ || all_joined()) return;
  problem_ = fmt::format("{} with rank {} was refused: {}", member->where,
                         member->ranks.empty() ? -1 : member->ranks.front(), why);
  end(kExitRefused, problem_);
}

std::string Coordinator::join(int64_t client, const MemberIdentity& member, std::string* why) {
  if (!options_.nonce.empty() && member.nonce != options_.nonce) return "stale";
  if (over_) {
    *why = problem_.empty() ? "all is over" : problem_;
    return "refused";
  }
  if (member.identity != options_.identity) {
    *why = fmt::format("it has \"{}\", rank 0 has \"{}\"", member.identity, options_.identity);
    return "refused";
  }
  for (const int64_t rank : member.ranks) {
    const bool known = rank >= 0 && rank < options_.world_size;
    if (known && !taken_[static_cast<size_t>(rank)]) continue;
    *why = known ? fmt::format("rank {} has joined already", rank)
                 : fmt::format("there is no rank {} among {}", rank, options_.world_size);
    return "refused";
  }
  for (const int64_t rank : member.ranks) taken_[static_cast<size_t>(rank)] = true;
  joined_ += static_cast<int64_t>(member.ranks.size());
  clients_.at(client).member = member;
  return "ok";
}

void Coordinator::publish_hosts() {
  Json members = Json::array();
  std::string reached_at;
  for (const auto& [number, client] : clients_) {
    if (!client.member) continue;
    members.push_back(site_json(*client.member));
    const std::string address = own_address(client.wire.fd());
    if (!is_loopback(address)) reached_at = address;
  }
  set("reached_at", reached_at);
  set("hosts", members.dump());
}

std::string Coordinator::missing_ranks() const {
  std::string text;
  for (size_t rank = 0; rank < taken_.size(); ++rank)
    if (!taken_[rank]) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
  return text;
}

void Coordinator::begin_run(int64_t run, const RunPlan& plan, const std::string& run_dir) {
  run_ = run;
  began_ns_ = now_ns();
  outcome_ = RunOutcome();
  outcome_.plan = plan;
  outcome_.run_dir = run_dir;
  outcome_.began_ns = began_ns_;
  for (auto& [number, client] : clients_) client.done = false;
  set(fmt::format("run/{}/go", run), "go");
}

void Coordinator::note_end(const ProcessEnd& end) {
  insert_end(&outcome_.ends, end);
  if (end.exit_code == 0 && end.signal == 0) return;
  if (outcome_.failed_ns == 0) outcome_.failed_ns = now_ns();
  set(fmt::format("run/{}/failure", run_), end.who);
}

bool Coordinator::append_file(const std::string& name, const std::string& piece) {
  if (!is_run_file(name)) return false;
  append_to_file(outcome_.run_dir + "/" + name, piece);
  return true;
}

// Its connection is closed: the process and, with it, its ranks are gone.
void Coordinator::lose(int64_t client) {
  const Client lost = std::move(clients_.at(client));
  loop_.forget(lost.wire.fd());
  clients_.erase(client);
  store_.leave(client);
  if (!lost.member || over_) return;
  if (run_ < 0 || lost.done) {
    problem_ = fmt::format("the process of rank {} ({}) is gone",
                           lost.member->ranks.empty() ? -1 : lost.member->ranks.front(),
                           lost.member->where);
    end(kExitLostCoordinator, problem_);
    return;
  }
  for (const int64_t rank : lost.member->ranks) {
    bool known = false;
    for (const ProcessEnd& end : outcome_.ends) known = known || end.rank == rank;
    if (!known) note_end(lost_end(rank));
  }
}

bool Coordinator::run_over() const {
  for (const auto& [number, client] : clients_)
    if (client.member && !client.done) return false;
  return true;
}

RunOutcome Coordinator::take_outcome() {
  const std::string& dir = outcome_.run_dir;
  const int64_t ranks = options_.world_size;
  outcome_.duration_ms = (now_ns() - began_ns_) / 1'000'000;
  outcome_.ranks = read_all_records(dir, ranks);
  for (RankRecords& records : outcome_.ranks)
    for (Event& event : records.events) event.time_ns += records.clock_offset_ns;
  RankRecords rounding;
  std::string why;
  if (read_records(golden_records_path(dir, "rounding"), &rounding, &why))
    outcome_.goldens.push_back(std::move(rounding));
  std::vector<bool> bad(static_cast<size_t>(ranks));
  for (const ProcessEnd& end : outcome_.ends)
    if (end.rank >= 0 && end.rank < ranks && (end.exit_code != 0 || end.signal != 0))
      bad[static_cast<size_t>(end.rank)] = true;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const std::string log = log_path(dir, fmt::format("rank-{}", rank));
    outcome_.evidence.push_back(read_file(evidence_path(dir, rank)));
    outcome_.log_tails.push_back(bad[static_cast<size_t>(rank)] ? log_tail(log, kSiteTailLines)
                                                                : "");
  }
  leave_ends(outcome_, dir, to_text(outcome_.plan));
  return std::move(outcome_);
}

void Coordinator::end(int code, const std::string& why) {
  over_ = true;
  for (auto& [number, client] : clients_) client.wire.send({"over", std::to_string(code), why});
}

void Coordinator::reply(int64_t client, const Wire::Message& message) {
  const auto found = clients_.find(client);
  // One that takes nothing is closed now; the loop finds out.
  if (found != clients_.end()) found->second.wire.send(message);
}

void Coordinator::set(const std::string& key, const std::string& value) {
  store_.handle(kNobody, {"set", "0", key, value});
}

}  // namespace lockstep
