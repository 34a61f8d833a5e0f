#include "sim/join/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "sim/join/wire.h"
#include "sim/launch/process_run.h"
#include "sim/launch/run_files.h"

namespace lockstep {
namespace {

constexpr int kSiteTailLines = 20;
constexpr int64_t kNobody = -1;
constexpr size_t kProblemMax = 4096;

ProcessEnd lost_end(int64_t rank) {
  ProcessEnd end;
  end.who = fmt::format("rank-{}", rank);
  end.rank = rank;
  end.time_ns = now_ns();
  end.lost = true;
  return end;
}

bool owns(const MemberIdentity& member, int64_t rank) {
  return std::binary_search(member.ranks.begin(), member.ranks.end(), rank);
}

// The keys that members set, as coordinator.h lists them; all others are the coordinator's.
bool may_set(const MemberIdentity& member, int64_t run, const std::string& key) {
  if (key.starts_with(fmt::format("run/{}/store/", run))) return true;
  return std::any_of(member.ranks.begin(), member.ranks.end(), [&](int64_t rank) {
    return key == fmt::format("run/{}/dir/{}", run, rank) || key == fmt::format("out/{}", rank);
  });
}

}  // namespace

Coordinator::Coordinator(EventLoop& loop, UniqueFd listener, Options options)
    : loop_(loop),
      options_(std::move(options)),
      store_([this](int64_t client, const Wire::Message& message) { reply(client, message); }),
      taken_(static_cast<size_t>(options_.world_size)),
      door_(
          loop, std::move(listener), door_options(),
          {[this](const MemberIdentity& member) { return problem_of(member); },
           [this](Wire wire, const MemberIdentity& member) { enter(std::move(wire), member); },
           [this](const MemberIdentity& member, const std::string& why) { refuse(member, why); }}) {
}

Coordinator::~Coordinator() {
  for (const auto& [number, client] : clients_) loop_.forget(client.wire.fd());
}

Door::Options Coordinator::door_options() const {
  return {options_.nonce, rendezvous_secret(options_.credentials, options_.notice_key),
          options_.about, has_key(options_.credentials, options_.notice_key), options_.tell};
}

// Why it is refused, or empty. It has proved that it knows the secret.
std::string Coordinator::problem_of(const MemberIdentity& member) const {
  if (over_) return problem_.empty() ? "all is over" : problem_;
  const std::string& identity = options_.credentials.identity;
  if (door_options().keyed && member.identity != identity)
    return fmt::format("it has \"{}\", rank 0 has \"{}\"", plain_ascii(member.identity), identity);
  for (const int64_t rank : member.ranks) {
    if (rank < 0 || rank >= options_.world_size)
      return fmt::format("there is no rank {} among {}", rank, options_.world_size);
    if (taken_[static_cast<size_t>(rank)]) return fmt::format("rank {} has joined already", rank);
  }
  return member.ranks.empty() ? "it has no ranks" : "";
}

void Coordinator::enter(Wire wire, const MemberIdentity& member) {
  for (const int64_t rank : member.ranks) taken_[static_cast<size_t>(rank)] = true;
  joined_ += static_cast<int64_t>(member.ranks.size());
  if (owns(member, 0)) first_host_ = member.host;
  const int64_t number = ++last_client_;
  Client& client = clients_[number];
  client.wire = std::move(wire);
  client.member = member;
  loop_.watch(client.wire.fd(), [this, number] { on_ready(number); });
  if (all_joined()) publish_hosts();
  on_ready(number);  // what came with the join is no news to the loop
}

// Nobody else will come in the place of one that has the job's key: all end then, in the
// rendezvous.
void Coordinator::refuse(const MemberIdentity& member, const std::string& why) {
  refused_ =
      fmt::format("{} with rank {} was refused: {}", member.where, member.ranks.front(), why);
  if (over_ || all_joined() || !door_options().keyed) return;
  problem_ = refused_;
  end(kExitRefused, problem_);
}

void Coordinator::on_ready(int64_t client) {
  Wire::Message message;
  while (true) {
    const auto found = clients_.find(client);
    if (found == clients_.end()) return;
    Wire& wire = found->second.wire;
    wire.flush();
    loop_.watch_writable(wire.fd(), wire.has_unsent());
    const Channel::Got got = wire.receive(&message);
    if (got == Channel::Got::nothing) return;
    if (got == Channel::Got::closed || !handle(client, message)) return lose(client);
  }
}

// False for what no member says.
bool Coordinator::handle(int64_t client, const Wire::Message& message) {
  if (message.size() < 2) return false;
  const std::string &operation = message[0], &id = message[1];
  if (operation == "clock") {
    reply(client, {id, std::to_string(now_ns())});
    return true;
  }
  if (operation == "set" || operation == "add" || operation == "get" || operation == "has" ||
      operation == "drop")
    return handle_store(client, message);
  if (!handle_run(client, message)) return false;
  reply(client, {id, "ok"});
  return true;
}

bool Coordinator::handle_store(int64_t client, const Wire::Message& message) {
  const bool writes = message[0] == "set" || message[0] == "add";
  if (writes && (message.size() < 3 ||
                 !may_set(clients_.at(client).member, std::max<int64_t>(run_, 0), message[2])))
    return false;
  return store_.handle(client, message);
}

bool Coordinator::handle_run(int64_t client, const Wire::Message& message) {
  if (message.size() < 3 || message[2] != std::to_string(run_)) return false;
  Client& from = clients_.at(client);
  const std::string& operation = message[0];
  if (from.done) return false;
  if (operation == "done") {
    from.done = true;
  } else if (operation == "end" && message.size() == 4) {
    const auto end = decode_end(message[3]);
    if (!end || !may_say(from.member, *end)) return false;
    note_end(*end);
  } else if (operation == "golden_problem" && message.size() == 4) {
    if (outcome_.golden_problem.empty())
      outcome_.golden_problem = message[3].substr(0, kProblemMax);
  } else if (operation == "file" && message.size() == 5) {
    if (!may_leave(from.member, message[3])) return false;
    append_to_file(outcome_.run_dir + "/" + message[3], message[4]);
  } else {
    return false;
  }
  return true;
}

// Of its own ranks, each once, and of golden runs that the plan has.
bool Coordinator::may_say(const MemberIdentity& member, const ProcessEnd& end) const {
  if (end.rank >= 0) {
    const auto known = [&](const ProcessEnd& one) { return one.rank == end.rank; };
    return owns(member, end.rank) && end.who == fmt::format("rank-{}", end.rank) &&
           std::none_of(outcome_.ends.begin(), outcome_.ends.end(), known);
  }
  const auto& goldens = outcome_.plan.goldens;
  return end.rank == -1 && (end.who == "golden-rounding" ||
                            std::any_of(goldens.begin(), goldens.end(), [&](const auto& golden) {
                              return end.who == "golden-" + golden;
                            }));
}

// What ranks on rank 0's host leave lies there already.
bool Coordinator::may_leave(const MemberIdentity& member, const std::string& file) const {
  return member.host != first_host_ &&
         std::any_of(member.ranks.begin(), member.ranks.end(),
                     [&](int64_t rank) { return is_rank_file(file, rank); });
}

void Coordinator::publish_hosts() {
  std::vector<MemberIdentity> members;
  std::string reached_at;
  for (const auto& [number, client] : clients_) {
    members.push_back(client.member);
    const std::string address = own_address(client.wire.fd());
    if (!is_loopback(address)) reached_at = address;
  }
  set("reached_at", reached_at);
  set("hosts", encode(members));
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

// Its connection is closed: the process and, with it, its ranks are gone.
void Coordinator::lose(int64_t client) {
  const Client lost = std::move(clients_.at(client));
  loop_.forget(lost.wire.fd());
  clients_.erase(client);
  store_.leave(client);
  if (over_) return;
  if (run_ < 0 || lost.done) {
    problem_ = fmt::format("the process of rank {} ({}) is gone", lost.member.ranks.front(),
                           lost.member.where);
    end(kExitLostCoordinator, problem_);
    return;
  }
  for (const int64_t rank : lost.member.ranks) {
    bool known = false;
    for (const ProcessEnd& end : outcome_.ends) known = known || end.rank == rank;
    if (!known) note_end(lost_end(rank));
  }
}

bool Coordinator::run_over() const {
  for (const auto& [number, client] : clients_)
    if (!client.done) return false;
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
  write_ends(outcome_, dir, to_text(outcome_.plan));
  return std::move(outcome_);
}

void Coordinator::end(int code, const std::string& why) {
  over_ = true;
  for (auto& [number, client] : clients_) send(client, {"over", std::to_string(code), why});
}

// What it does not take now goes out from the loop, which also finds out if it is closed.
void Coordinator::send(Client& client, const Wire::Message& message) {
  client.wire.send(message);
  loop_.watch_writable(client.wire.fd(), client.wire.has_unsent());
}

void Coordinator::reply(int64_t client, const Wire::Message& message) {
  const auto found = clients_.find(client);
  if (found != clients_.end()) send(found->second, message);
}

void Coordinator::set(const std::string& key, const std::string& value) {
  store_.handle(kNobody, {"set", "0", key, value});
}

}  // namespace lockstep
